"""floe maintain."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from floe_runtime.cli.common import (
    Verbs,
    compile_here,
    consent,
    console,
    environment_option,
    facts_document,
    json_option,
    named,
    namespaces_option,
    observe,
    only_json,
    print_json,
    project_option,
    table_argument,
    tables_option,
    tells_errors,
)
from floe_runtime.cli.table_names import complete_table

if TYPE_CHECKING:
    from rich.console import Console

    from floe_core.config import CompiledArtifacts
    from floe_core.maintenance import Step
    from floe_iceberg import Lake
    from floe_iceberg.maintenance import TableOutcome, TablePlan

__all__ = ["maintain"]

C = TypeVar("C", bound=Callable[..., object])


class NoSparkError(click.ClickException):
    """Spark did not start, so no table can be maintained."""


def _steps(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[Step, ...]:
    from floe_core.maintenance import Step

    if value is None:
        return tuple(Step)
    chosen = {name.strip() for name in value.split(",")}
    known = [step.value for step in Step]
    unknown = sorted(chosen - set(known))
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is no step; they are {', '.join(known)}.")
    return tuple(step for step in Step if step.value in chosen)


def _choice(command: C) -> C:
    """The options that select tables and steps."""
    steps = click.option(
        "--only", metavar="STEP,...", callback=_steps, help="Only these steps, such as compact,expire."
    )
    return tables_option(namespaces_option(steps(project_option(environment_option(json_option(command))))))


@click.group(cls=Verbs)
def maintain() -> None:
    """Compact tables, expire history and remove orphans, or show what would be done.

    What is due follows from maintenance in floe.yaml and from the tables' own properties, such as
    floe.maintenance.expire.older-than; the policy enforcer of the project's definitions has to agree, as in the Dagster
    job. The steps are compact, manifests, statistics, expire and orphans.
    """


@maintain.command()
@_choice
@tells_errors
def plan(
    tables: tuple[str, ...],
    namespaces: tuple[str, ...],
    only: tuple[Step, ...],
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """Show which steps each table needs, and why; nothing is changed."""
    _show_plan(compile_here(project, environment), tables, namespaces, only, as_json)


@maintain.command()
@click.option("--dry-run", is_flag=True, help="Show the plan, and do nothing.")
@click.option("--yes", is_flag=True, help="Consent where the environment is protected.")
@_choice
@tells_errors
def run(
    tables: tuple[str, ...],
    namespaces: tuple[str, ...],
    only: tuple[Step, ...],
    project: Path | None,
    environment: str | None,
    as_json: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Run the steps that each table's policy requires. A table that fails does not stop the others.

    The exit code is 1 if a due step was not done: it failed, was refused, or was postponed because another
    maintenance or a write is in progress. If interrupted, run it again; finished steps are not repeated.
    """
    artifacts = compile_here(project, environment)
    if dry_run:
        _show_plan(artifacts, tables, namespaces, only, as_json)
        return
    consent(artifacts, yes, "to maintain tables")
    began = time.perf_counter()
    out = console(quiet=as_json)
    try:
        with only_json(as_json):
            outcomes = list(_maintained(artifacts, tables, namespaces, only, out))
    except KeyboardInterrupt:
        if not as_json:
            click.echo("to see which steps were done, run: floe maintain history", err=True)
        raise
    undone = [outcome for outcome in outcomes if not outcome.is_complete]
    if as_json:
        print_json(
            {
                "ok": not undone,
                "error": _undone_text(undone) if undone else None,
                "tables": [_outcome_document(outcome) for outcome in outcomes],
                "files_removed": sum(outcome.files_removed for outcome in outcomes),
                "bytes_freed": sum(outcome.bytes_freed for outcome in outcomes),
            }
        )
    else:
        _print_outcomes(out, outcomes, only, time.perf_counter() - began)
    raise click.exceptions.Exit(1 if undone else 0)


@maintain.command()
@table_argument
@click.option("--force", is_flag=True, help="Even if its holder is still running on this machine.")
@click.option("--yes", is_flag=True, help="Consent where the environment is protected.")
@project_option
@environment_option
@json_option
@tells_errors
def release(table: str, force: bool, yes: bool, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Release the lease of a maintenance that failed or was killed, so that the next need not wait for it to expire.

    A holder that is still running stops before its next step.
    """
    from floe_core.identifiers import TableIdentifier
    from floe_iceberg import Lake

    artifacts = compile_here(project, environment)
    consent(artifacts, yes, "to release a lease")
    observe(artifacts)
    identifier = TableIdentifier.from_string(table)
    holder = Lake(artifacts).tables.release_lease(identifier, force=force)
    if as_json:
        print_json({"ok": True, "table": str(identifier), "released": holder})
    elif holder is None:
        click.echo(f"{identifier} has no lease")
    else:
        click.echo(f"the lease of {holder} on {identifier} is released")


@maintain.command()
@click.option("--table", metavar="NAMESPACE.TABLE", help="Only this table.", shell_complete=complete_table)
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many steps to show, the latest."
)
@click.option("--files", "with_files", is_flag=True, help="Name the files that were removed.")
@project_option
@environment_option
@json_option
@tells_errors
def history(
    table: str | None, limit: int, with_files: bool, project: Path | None, environment: str | None, as_json: bool
) -> None:
    """Show past maintenance steps and the files they removed, the latest last; times are in UTC."""
    from floe_core.identifiers import TableIdentifier
    from floe_core.maintenance import read_records, records_path
    from floe_runtime.console import print_records, shown_status

    name = None if table is None else str(TableIdentifier.from_string(table))
    records = read_records(records_path(compile_here(project, environment)))
    latest = [record for record in records if name in (None, record.table)][-limit:]
    if as_json:
        documents = [record.model_dump(mode="json") for record in latest]
        for document in documents:
            document["status"] = shown_status(document["status"])
        print_json({"ok": True, "records": documents})
        return
    if not latest:
        click.echo(f"no maintenance of {name} is recorded" if name else "no maintenance is recorded yet")
    print_records(console(), latest, with_files=with_files)


def _show_plan(
    artifacts: CompiledArtifacts,
    tables: Sequence[str],
    namespaces: Sequence[str],
    only: Sequence[Step],
    as_json: bool,
) -> None:
    """Print the plan of each table as soon as it is made; exit with 1 if one could not be made."""
    from floe_iceberg import Lake
    from floe_iceberg.maintenance import Maintenance, Outcome, TableOutcome, TablePlan
    from floe_runtime.console import UpkeepLine, plan_lines
    from floe_runtime.enforcement import policy_enforcer

    observe(artifacts)
    out = console(quiet=as_json)
    with only_json(as_json):  # importing the definitions, for their enforcer, may print
        enforcer = policy_enforcer(artifacts)
    maintenance = Maintenance(Lake(artifacts), enforcer=enforcer)
    chosen = maintenance.tables(*named(tables, namespaces))
    line = UpkeepLine(out, chosen)
    entries: list[TablePlan | TableOutcome] = []
    with line.shown():
        for identifier in chosen:
            with line.over(identifier):
                entries += maintenance.plan([identifier], only)
            if not as_json:
                entry = entries[-1]
                for text in plan_lines(entry, only) if isinstance(entry, TablePlan) else _ending(entry, only):
                    out.print(text)
    failed = [
        str(entry.table) for entry in entries if isinstance(entry, TableOutcome) and entry.outcome is Outcome.FAILED
    ]
    if as_json:
        documents = [
            _plan_document(entry) if isinstance(entry, TablePlan) else _outcome_document(entry) for entry in entries
        ]
        error = f"no plan for {', '.join(failed)}" if failed else None
        print_json({"ok": not failed, "error": error, "tables": documents})
    else:
        _print_sum(out, [entry for entry in entries if isinstance(entry, TablePlan)], failed)
    raise click.exceptions.Exit(1 if failed else 0)


def _maintained(
    artifacts: CompiledArtifacts, tables: Sequence[str], namespaces: Sequence[str], only: Sequence[Step], out: Console
) -> Iterator[TableOutcome]:
    """Maintain the tables; Spark starts with the first due step."""
    from floe_core.maintenance import Step
    from floe_iceberg import Lake
    from floe_iceberg.maintenance import Maintenance, Outcome
    from floe_runtime.console import UpkeepLine
    from floe_runtime.enforcement import policy_enforcer

    observe(artifacts)
    lake = Lake(artifacts)
    is_started = False

    def start() -> None:
        nonlocal is_started
        if not is_started:
            line.say("starting Spark (the first start on a machine fetches its jars)")
            _start_spark(lake)
            is_started = True

    maintenance = Maintenance(
        lake, enforcer=policy_enforcer(artifacts), start=start, watch=lambda event: line.watch(event)
    )
    chosen = maintenance.tables(*named(tables, namespaces))
    if Step.EXPIRE in only and not tables and not namespaces:
        for name in maintenance.discard_branches():
            out.print(f"discarded branch {name}, which was not used for {_kept(artifacts)}")
    line = UpkeepLine(out, chosen)
    with line.shown():
        for identifier in chosen:
            with line.over(identifier):
                (outcome,) = maintenance.run([identifier], only)
            if outcome.outcome is Outcome.FAILED:
                line.failed(identifier)
            yield outcome


def _kept(artifacts: CompiledArtifacts) -> str:
    from floe_core.config import duration_text

    return duration_text(artifacts.maintenance.branches)


def _start_spark(lake: Lake) -> None:
    from floe_core.errors import FloeError
    from floe_core.java import java_problem
    from floe_core.security import redact

    problem = None if lake.artifacts.spark.remote else java_problem()
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        if problem is None:
            _ = lake.spark
            # PySpark's handler would call Spark over the connection on which this thread waits for a procedure.
            signal.signal(signal.SIGINT, on_interrupt)
            logging.getLogger("py4j").setLevel(logging.CRITICAL)
            logging.getLogger().addFilter(_is_not_py4j)
    except FloeError as exc:
        problem = str(exc)
    if problem is not None:
        raise NoSparkError(redact(problem))


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs Ctrl-C to the root logger with a traceback, besides raising it."""
    return "py4j" not in Path(record.pathname).parts


def _print_sum(out: Console, plans: Sequence[TablePlan], failed: Sequence[str]) -> None:
    from floe_core.formatting import counted, human_bytes
    from floe_core.maintenance import Step

    due = [plan for plan in plans if plan.steps]
    if due:
        steps = [step for plan in due for step in plan.steps]
        freed = sum(step.bytes for step in steps if step.step in (Step.EXPIRE, Step.ORPHANS))
        about = f", about {human_bytes(freed)} to be freed" if freed else ""
        out.print(
            f"{len(due)} of {counted(len(plans), 'table')} to be maintained in {counted(len(steps), 'step')}{about}"
        )
    elif plans:
        out.print(f"nothing to do for {counted(len(plans), 'table')}")
    elif not failed:
        out.print("no tables found")
    if failed:
        out.print(f"no plan for {counted(len(failed), 'table')}", style="red")


def _print_outcomes(out: Console, outcomes: Sequence[TableOutcome], only: Sequence[Step], seconds: float) -> None:
    from floe_core.formatting import counted, human_bytes
    from floe_iceberg.maintenance import Outcome
    from floe_runtime.console import done_table

    done = [outcome for outcome in outcomes if outcome.reports]
    if done:
        out.print(done_table(done))
    for outcome in outcomes:
        for text in _ending(outcome, only):
            out.print(text)
    if not outcomes:
        out.print("no tables found")
        return
    files, freed = sum(outcome.files_removed for outcome in done), sum(outcome.bytes_freed for outcome in done)
    kinds = [outcome.outcome for outcome in outcomes]
    counts = ", ".join(f"{kinds.count(kind)} {kind.value}" for kind in Outcome if kind in kinds)
    removed = f"; {counted(files, 'file')} removed, {human_bytes(freed)} freed" if done else ""
    out.print(f"{counted(len(outcomes), 'table')} in {seconds:.1f} s: {counts}{removed}")


def _undone_text(undone: Sequence[TableOutcome]) -> str:
    """The tables that were not fully maintained, each with its outcome."""
    tables = []
    for outcome in undone:
        steps = f" {', '.join(sorted(step.value for step in outcome.refused))}" if outcome.refused else ""
        tables.append(f"{outcome.table} ({'refused' if outcome.refused else outcome.outcome.value}{steps})")
    return f"not everything was done: {', '.join(tables)}"


def _ending(outcome: TableOutcome, only: Sequence[Step]) -> Iterator[Any]:
    """The skipped steps of a table, the files not removed, and why it was not maintained."""
    from rich.text import Text

    from floe_core.security import redact
    from floe_iceberg.maintenance import Outcome
    from floe_runtime.console import kept_lines, skipped_lines

    yield from skipped_lines(outcome.table, outcome.skipped, only)
    yield from kept_lines(outcome.table, outcome.not_removed)
    if outcome.reason:
        style = "yellow" if outcome.outcome is Outcome.GONE else "red"
        yield Text(f"{outcome.table} {outcome.outcome.value}: {redact(outcome.reason)}", style=style)


def _plan_document(plan: TablePlan) -> dict[str, Any]:
    return {
        "table": str(plan.table),
        "outcome": "planned" if plan.steps else "nothing to do",
        "steps": [
            {"step": step.step.value, "reason": step.reason, "files": step.files, "bytes": step.bytes}
            for step in plan.steps
        ],
        "skipped": _skipped_document(plan.skipped),
        "not_removed": [file.model_dump() for file in plan.not_removed],
        "facts": facts_document(plan.facts),
        "policy": plan.policy.model_dump(mode="json"),
    }


def _outcome_document(outcome: TableOutcome) -> dict[str, Any]:
    return {
        "table": str(outcome.table),
        "outcome": outcome.outcome.value,
        "reason": outcome.reason,
        "reports": [{"step": report.step.value, **report.model_dump(mode="json")} for report in outcome.reports],
        "skipped": _skipped_document(outcome.skipped),
        "not_removed": [file.model_dump() for file in outcome.not_removed],
        "files_removed": outcome.files_removed,
        "bytes_freed": outcome.bytes_freed,
    }


def _skipped_document(skipped: Sequence[tuple[Step, str]]) -> list[dict[str, str]]:
    return [{"step": step.value, "reason": reason} for step, reason in skipped]
