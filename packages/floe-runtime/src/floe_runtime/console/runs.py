"""What a run wrote, checked, logged and failed at."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from floe_core.formatting import human_bytes, printable
from floe_core.security import redact
from floe_runtime.console.tables import fitted_table
from floe_runtime.console.text import sign

if TYPE_CHECKING:
    from floe_runtime.runs.failures import Failure
    from floe_runtime.runs.runner import LogLine, Materialized, RunReport

__all__ = ["check_lines", "failure_lines", "log_printer", "report_table", "schema_lines"]


def report_table(
    report: RunReport, console: Console, *, elsewhere: str = "floe runs show --json has them"
) -> RenderableType:
    """What each asset wrote; on a narrow screen the asset column is dropped if it repeats the table."""
    plain = all(materialized.asset.replace("/", ".") == materialized.table for materialized in report.materialized)
    with_asset = console.width >= 100 or not plain
    columns = {
        "asset": [materialized.asset for materialized in report.materialized],
        "table": [materialized.table for materialized in report.materialized],
        "partition": [materialized.partitions for materialized in report.materialized],
        "rows": [f"{materialized.rows:,}" for materialized in report.materialized],
        "files": [_files(materialized) for materialized in report.materialized],
        "bytes": [human_bytes(materialized.bytes) for materialized in report.materialized],
        "snapshot": [str(materialized.snapshot_id) for materialized in report.materialized],
        "seconds": [f"{materialized.seconds:.1f}" for materialized in report.materialized],
    }
    if not with_asset:
        del columns["asset"]
    if not any(columns["partition"]):
        del columns["partition"]
    numbers = columns.keys() - {"asset", "table", "partition"}
    return fitted_table(columns, console, numbers=numbers, optional=("seconds", "bytes", "files"), elsewhere=elsewhere)


def schema_lines(report: RunReport) -> Iterator[Text]:
    """One line for each change of a table's schema."""
    for made in report.materialized:
        if made.schema_change:
            yield Text(printable(f"schema of {made.table}: {made.schema_change}"))


def check_lines(report: RunReport, console: Console) -> Iterator[Text]:
    """One line for each asset check."""
    for check in report.checks:
        colour = "green" if check.passed else "red" if check.severity == "ERROR" else "yellow"
        shown = (f"  {sign(console, good=check.passed)} ", colour)
        yield Text.assemble(shown, f"check {check.check} of {check.asset}", (f"  {check.description}", "dim"))


def _files(materialized: Materialized) -> str:
    if materialized.deduplicated:
        return "done before"
    return (
        f"+{materialized.files} -{materialized.files_removed}"
        if materialized.files_removed
        else f"+{materialized.files}"
    )


def failure_lines(failure: Failure) -> Iterator[str]:
    """Where an asset failed, in the user's code; where it is defined, if none of its lines raised the error."""
    place = failure.place or failure.defined
    if place is None:
        return
    named = not place.function.startswith("<")  # a lambda, or the module itself
    verb = f", in {place.function}" if failure.place else f", where {place.function} is defined"
    yield f"{place.file}:{place.line}{verb if named else ''}"
    if place.source:
        yield f"  {place.source}"


def log_printer(console: Console, *, verbose: bool) -> Callable[[LogLine], None]:
    """Print what assets log with `context.log`: warnings and errors, and if `verbose` the rest too."""

    def listen(line: LogLine) -> None:
        if not verbose and line.level < logging.WARNING:
            return
        colour = "red" if line.level >= logging.ERROR else "yellow" if line.level >= logging.WARNING else "dim"
        level = logging.getLevelName(line.level).lower()
        text = Text.assemble((f"  {level}", colour), f" {line.source}: ", redact(line.message))
        console.print(text, soft_wrap=True)

    return listen
