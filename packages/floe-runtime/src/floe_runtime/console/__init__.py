"""Terminal output: progress of runs and maintenance, and their results."""

from floe_runtime.console.maintenance import (
    UpkeepLine,
    done_table,
    health_table,
    kept_lines,
    plan_lines,
    print_findings,
    print_records,
    shown_status,
    skipped_lines,
)
from floe_runtime.console.progress import progress
from floe_runtime.console.runs import check_lines, failure_lines, log_printer, report_table, schema_lines
from floe_runtime.console.tables import columns_table, fitted_table, headed_table
from floe_runtime.console.text import age, command_name, exact_text, sign

__all__ = [
    "UpkeepLine",
    "age",
    "check_lines",
    "columns_table",
    "command_name",
    "done_table",
    "exact_text",
    "failure_lines",
    "fitted_table",
    "headed_table",
    "health_table",
    "kept_lines",
    "log_printer",
    "plan_lines",
    "print_findings",
    "print_records",
    "progress",
    "report_table",
    "schema_lines",
    "shown_status",
    "sign",
    "skipped_lines",
]
