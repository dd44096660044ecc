"""Maintenance: its progress, its plan, what it did, and the health of tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timezone
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as LiveLine
from rich.table import Column, Table
from rich.text import Text

from floe_core.formatting import counted, human_bytes
from floe_core.maintenance import KeptFile, Step
from floe_core.security import redact
from floe_runtime.console.tables import columns_table, fitted_table
from floe_runtime.console.text import age, sign

if TYPE_CHECKING:
    from floe_core.identifiers import TableIdentifier
    from floe_core.maintenance import Record
    from floe_iceberg.maintenance import Finding, Light, Progress, TableFacts, TableOutcome, TablePlan

__all__ = [
    "UpkeepLine",
    "done_table",
    "health_table",
    "kept_lines",
    "plan_lines",
    "print_findings",
    "print_records",
    "shown_status",
    "skipped_lines",
]

_KEPT = 20  # files listed per table that were not removed
_COLOURS = {"done": "green", "failed": "red", "interrupted": "yellow", "killed": "red"}
# The columns that the health table drops on a narrow screen, in this order; findings repeat what matters.
_LEFT_OUT = ("manifests", "skew", "partitions", "written", "deletes", "small", "bytes", "maintained", "snapshots")


class UpkeepLine:
    """The progress of maintenance: one live line on a terminal, elsewhere one line per finished step."""

    def __init__(self, console: Console, tables: Sequence[TableIdentifier]) -> None:
        self._console = console
        self._width = min(40, max((len(str(table)) for table in tables), default=0))
        column = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self._live = LiveLine(
            SpinnerColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False, table_column=column),
            console=console,
            transient=True,
            expand=True,
            disable=not console.is_terminal,
        )
        self._task = self._live.add_task("", total=len(tables))

    @contextmanager
    def over(self, table: TableIdentifier) -> Iterator[None]:
        """The block in which one table is inspected and maintained."""
        self.say(f"looking at {table}")
        yield
        self._live.advance(self._task)

    def shown(self) -> AbstractContextManager[object]:
        return self._live

    def say(self, text: str) -> None:
        self._live.update(self._task, description=text)

    def watch(self, event: Progress) -> None:
        step = event.step.step.value
        if event.report is None:
            self.say(f"{event.table}: {step}, {event.step.reason}")
        elif not self._console.is_terminal:
            self._print(event.table, f"{step:<10}", event.report.summary(), f"{event.report.seconds:.1f} s")

    def failed(self, table: TableIdentifier) -> None:
        if not self._console.is_terminal:
            self._print(table, "failed", good=False)

    def _print(self, table: TableIdentifier, *cells: str, good: bool = True) -> None:
        shown = (sign(self._console, good=good), "green" if good else "red")
        text = Text.assemble("  ", shown, f" {table!s:<{self._width}}  ", "  ".join(cells))
        self._console.print(text, soft_wrap=True)


def plan_lines(plan: TablePlan, only: Collection[Step]) -> Iterator[RenderableType]:
    """The planned steps of a table and its current state; no lines if nothing is planned, skipped or kept."""
    if plan.steps:
        facts = plan.facts
        state = [
            f"{counted(facts.files, 'file')} of {human_bytes(facts.bytes)}",
            f"{counted(facts.snapshots, 'snapshot')} since {age(facts.oldest_snapshot)}",
            *([counted(facts.delete_files, "delete file")] if facts.delete_files else []),
        ]
        yield Text.assemble((str(plan.table), "bold"), f": {', '.join(state)}")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, min_width=10)
        grid.add_column(overflow="fold")
        for step in plan.steps:
            about = "rewrites {}" if step.step is Step.COMPACT else "frees about {}"
            size = f"; {about.format(human_bytes(step.bytes))}" if step.bytes else ""
            grid.add_row(Text(step.step.value, style="cyan"), Text(f"{step.reason}{size}"))
        yield Padding(grid, (0, 0, 0, 2), expand=False)
    for text in skipped_lines(plan.table, plan.skipped, only):
        yield Padding(text, (0, 0, 0, 2), expand=False) if plan.steps else text
    yield from kept_lines(plan.table, plan.not_removed)


def kept_lines(table: TableIdentifier, kept: Sequence[KeptFile]) -> Iterator[Text]:
    """A line for each file that was not removed, with the reason; at most `_KEPT`."""
    for file in kept[:_KEPT]:
        yield Text.assemble((f"{table} not removed", "yellow"), f": {redact(str(file))}")
    if len(kept) > _KEPT:
        more = f": {counted(len(kept) - _KEPT, 'more file')}; --json lists them all"
        yield Text.assemble((f"{table} not removed", "yellow"), more)


def skipped_lines(
    table: TableIdentifier, skipped: Sequence[tuple[Step, str]], only: Collection[Step]
) -> Iterator[Text]:
    """One line per reason for skipping steps."""
    by_reason: dict[str, list[str]] = {}
    for step, reason in skipped:
        by_reason.setdefault(reason, []).append(step.value)
    for reason, steps in by_reason.items():
        status = "left alone" if len(steps) == len(only) else f"{', '.join(steps)} skipped"
        yield Text.assemble((f"{table} {status}", "yellow"), f": {redact(reason)}")


def done_table(outcomes: Sequence[TableOutcome]) -> Table:
    """What each step did, under the name of its table."""
    rows = [
        (str(outcome.table) if number == 0 else "", report)
        for outcome in outcomes
        for number, report in enumerate(outcome.reports)
    ]
    return columns_table(
        {
            "table": [table for table, _report in rows],
            "what was done": [f"{report.step.value}: {report.summary()}" for _table, report in rows],
            "removed": [f"{len(report.files_removed):,}" for _table, report in rows],
            "freed": [human_bytes(report.bytes_freed) for _table, report in rows],
            "seconds": [f"{report.seconds:.1f}" for _table, report in rows],
        },
        numbers=("removed", "freed", "seconds"),
    )


def shown_status(recorded: str) -> str:
    """The status to show: a step whose end is not recorded was killed."""
    return "killed" if recorded == "began" else recorded


def print_records(console: Console, records: Sequence[Record], *, with_files: bool) -> None:
    """The maintenance records: a line per step, the reason below it, and the removed files."""
    width = max((len(record.table) for record in records), default=0)
    for record in records:
        status = shown_status(record.status)
        freed = f"{counted(record.files, 'file')}, {human_bytes(record.bytes)}" if record.files else ""
        head = Text.assemble(
            f"{record.at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}  ",
            f"{record.table:<{width}}  {record.step.value:<10}  ",
            (f"{status:<11}", _COLOURS[status]),
            f"  {freed}",
        )
        head.rstrip()
        console.print(head, soft_wrap=True)
        unknown = "its end was never recorded: killed, or still running" if record.status == "began" else ""
        error = record.error if record.status == "failed" else None
        for reason in filter(None, (record.reason, error, unknown)):
            console.print(Padding(Text(redact(reason), style="dim"), (0, 0, 0, 4), expand=False))
        for path in record.removed if with_files else ():
            console.print(Text(f"    - {path}"), soft_wrap=True)


def health_table(rows: Sequence[tuple[str, Light, TableFacts | None]], console: Console) -> RenderableType:
    """One row per table, with as many columns as fit; a table without facts could not be read."""

    def column(text: Callable[[TableFacts], str]) -> list[str]:
        return ["-" if facts is None else text(facts) for _table, _light, facts in rows]

    columns: dict[str, Sequence[str | Text]] = {
        "health": [_light(light) for _table, light, _facts in rows],
        "table": [table for table, _light, _facts in rows],
        "files": column(lambda facts: f"{facts.files:,}"),
        "small": column(lambda facts: f"{facts.small_files:,}"),
        "bytes": column(lambda facts: human_bytes(facts.bytes)),
        "partitions": column(lambda facts: f"{facts.partitions:,}"),
        "skew": column(lambda facts: f"{facts.skew:.1f}"),
        "snapshots": column(lambda facts: f"{facts.snapshots:,}"),
        "manifests": column(lambda facts: f"{facts.manifests:,}"),
        "deletes": column(lambda facts: f"{facts.delete_ratio:.0%}"),
        "written": column(
            lambda facts: age(facts.last_write) if facts.last_write or not facts.snapshots else "unknown"
        ),
        "maintained": column(lambda facts: age(facts.last_maintenance)),
    }
    return fitted_table(columns, console, numbers=columns.keys() - {"health", "table"}, optional=_LEFT_OUT)


def _light(light: Light) -> Text:
    """The light as a coloured dot and its name."""
    return Text.assemble(("● ", light.value), light.value, no_wrap=True)


def print_findings(console: Console, table: str, light: Light, findings: Sequence[Finding]) -> None:
    """The findings of a table with the command that fixes each, on one line for copying."""
    console.print(Text.assemble(("● ", light.value), (table, "bold")))
    for finding in findings:
        console.print(Padding(Text(redact(finding.reason)), (0, 0, 0, 2), expand=False))
        if finding.mend:
            console.print(Text(f"    {finding.mend}", style="cyan"), soft_wrap=True)
