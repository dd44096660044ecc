"""What floe run prints about a run that failed or was interrupted."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from floe_dagster.differences import Difference
    from floe_runtime.runs.batches import Batch
    from floe_runtime.runs.interruption import Interruption
    from floe_runtime.runs.planning import RunPlan, RunRequest
    from floe_runtime.runs.runner import Materialized, RunReport, Skipped

__all__ = [
    "action_text",
    "command_for_the_rest",
    "grouped",
    "interruption_sentence",
    "print_interruption",
    "title_of",
    "unpublished_interruption",
    "unpublished_text",
]


_LISTED = 3  # partitions of an asset that one line names


def interruption_sentence(stopped: Interruption, report: RunReport, rest: str) -> str:
    """What happened, and the next step."""
    if not stopped.run_id and report.run_ids:
        return "interrupted after the last run; everything that was planned is written"
    if not stopped.run_id:
        return "interrupted before the first run; nothing was written"
    hint = f"; run the rest with: {rest}" if rest else ""
    return f"run {stopped.run_id} was interrupted; what is listed as written is complete{hint}"


def command_for_the_rest(plan: RunPlan, rest: Sequence[Batch], request: RunRequest, options: Sequence[str] = ()) -> str:
    """The command, or commands, that run what is not written; empty if nothing is left.

    Args:
        plan: The plan of the whole run.
        rest: What is left of it.
        request: What the run was asked for.
        options: The other options that the run was given.
    """
    if request.missing:
        return shlex.join(["floe", "run", *request.selection, "--missing", *options])
    every = {asset.key for asset in plan.assets}
    commands = []
    for batch in rest:
        named = [key.to_user_string() for key in batch.assets]
        selection = request.selection if set(batch.assets) == every else named
        commands.append(shlex.join(["floe", "run", *selection, *_partition_options(plan, batch, request), *options]))
    return " && ".join(commands)


def _partition_options(plan: RunPlan, batch: Batch, request: RunRequest) -> list[str]:
    """The options that select exactly these partitions."""
    partitioned = {asset.key for asset in plan.assets if asset.partitions}
    if not partitioned.intersection(batch.assets):
        return []
    first, last = (plan.partitions.index(key) for key in (batch.keys[0], batch.keys[-1]))
    is_range = not request.partitions and len(batch.keys) == last - first + 1  # those of --partition may have gaps
    if is_range and len(batch.keys) > 1:
        options = ["--partition-range", f"{batch.keys[0]}...{batch.keys[-1]}"]
    else:
        options = [argument for key in batch.keys for argument in ("--partition", key)]
    return options + ["--with-unpartitioned"] * (not partitioned.issuperset(batch.assets))


def print_interruption(stopped: Interruption) -> None:
    """Print the writes in progress and what did not start."""
    for write in stopped.in_progress:
        of = f" ({write.partitions})" if write.partitions else ""
        if write.outcome == "absent":
            click.echo(f"{write.asset}{of} was in progress: {write.table} holds nothing of it", err=True)
        else:
            unknown = f"it is unknown whether it was written: {write.reason}"
            click.echo(f"{write.asset}{of} was in progress: {unknown}", err=True)
    if stopped.not_started:
        click.echo(f"not started: {grouped(stopped.not_started)}", err=True)


def grouped(skipped: Sequence[Skipped]) -> str:
    """Assets by their partitions; of many runs the first and the last."""
    partitions: dict[str, list[str]] = {}
    for one in skipped:
        partitions.setdefault(one.asset, []).append(one.partitions)
    by_partitions: dict[str, list[str]] = {}
    for asset, labels in partitions.items():
        named = list(dict.fromkeys(filter(None, labels)))
        text = ", ".join(named) if len(named) <= _LISTED else f"{named[0]} to {named[-1]}, {len(named):,} runs"
        by_partitions.setdefault(text, []).append(asset)
    return "; ".join(f"{', '.join(names)}{f' ({keys})' if keys else ''}" for keys, names in by_partitions.items())


def action_text(difference: Difference) -> str:
    """What --missing does about a difference."""
    if not difference.recompute:
        return "it is not recomputed"
    return "only its latest materialization is computed again" if difference.appends else "it is recomputed"


def title_of(name: str, plan: RunPlan) -> str:
    """The title of the progress: the project and its partitions."""
    keys = plan.partitions
    if not keys:
        return name
    if len(keys) == 1:
        return f"{name}, partition {keys[0]}"
    return f"{name}, {len(keys):,} partitions {keys[0]}...{keys[-1]}"


def unpublished_text(run_id: str, unpublished: Sequence[Materialized]) -> str:
    """What an atomic run left on its branch, which no reader of main sees."""
    assets = ", ".join(made.asset for made in unpublished)
    return (
        f"not published: {assets}; no reader of main sees anything of this run. Look at it with: floe read "
        f"{unpublished[0].table} --ref floe-run-{run_id}; remove it with: floe runs discard {run_id[:8]}"
    )


def unpublished_interruption(stopped: Interruption) -> str:
    """What an interrupted atomic run left, and the next step."""
    written = ", ".join(made.asset for made in stopped.written)
    state = f"published: {written}" if written else "not published: no reader of main sees anything of it"
    return (
        f"run {stopped.run_id} was interrupted; it is {state}. Run all of it again; remove what it left on branches "
        f"with: floe runs discard {stopped.run_id[:8]}"
    )
