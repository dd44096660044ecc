"""Checks of tables: what must hold of their rows, columns and history, and what was found."""

from floe_iceberg.checks.outcome import CheckOutcome
from floe_iceberg.checks.rows import CheckedRows
from floe_iceberg.checks.run import engine_of, refuse_equal_names, run_checks

__all__ = ["CheckOutcome", "CheckedRows", "engine_of", "refuse_equal_names", "run_checks"]
