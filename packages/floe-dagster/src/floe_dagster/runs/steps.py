"""The step that reads and writes: which run a write belongs to, what the step has read, and what tells them apart."""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dagster import DagsterRunStatus, InputContext, OutputContext

from floe_core.identifiers import TableIdentifier
from floe_dagster._dagster.names import StepEventStatus, step_context_of

__all__ = [
    "ASSET",
    "INPUTS",
    "PARTITION",
    "followed",
    "follows",
    "has_read",
    "inputs_of",
    "labelled",
    "partition_label",
    "step_of",
    "tags_of",
    "trace",
    "write_id",
]

# The keys of a snapshot's summary that name the asset and its partitions.
ASSET = "floe.asset"
PARTITION = "floe.partition"
# The key of a snapshot's summary that names the snapshots its rows were made from.
INPUTS = "floe.input-snapshots"
# What Dagster puts on a run that goes on where another one failed; a deliberate re-execution has none of them.
_RETRY_TAGS = {"dagster/retry_number", "dagster/is_resume_retry", "dagster/is_asset_resume_retry"}
# What it puts on a run of steps that somebody chose.
_SELECTION_TAG = "dagster/step_selection"
# Steps whose notes are kept: those of one process that run at the same time, and many more.
_KEPT = 1000


@dataclass
class _Notes:
    """What one attempt of one step did so far."""

    read: dict[str, None] = field(default_factory=dict)
    followed: dict[TableIdentifier, int | None] = field(default_factory=dict)
    written: dict[tuple[str, ...], itertools.count[int]] = field(default_factory=dict)


_NOTES: OrderedDict[tuple[str, str, int], _Notes] = OrderedDict()
_LOCK = threading.Lock()


def step_of(context: InputContext | OutputContext) -> Any:
    """The step at work, or None: values can be loaded, and managers called, without one."""
    return step_context_of(context)


def tags_of(context: OutputContext) -> dict[str, str]:
    """The tags of the run and of the asset."""
    step = step_of(context)
    if step is None:
        return {}
    return {**step.dagster_run.tags, **step.job_def.asset_layer.get(context.asset_key).tags}


def _notes(step: Any) -> _Notes:
    with _LOCK:
        key = (step.run_id, step.step.key, step.previous_attempt_count)
        notes = _NOTES.setdefault(key, _Notes())
        _NOTES.move_to_end(key)
        while len(_NOTES) > _KEPT:
            _NOTES.popitem(last=False)
    return notes


def has_read(step: Any, table: TableIdentifier, snapshot_id: int | None) -> None:
    """Note which snapshot of a table the step has read."""
    if step is not None and snapshot_id is not None:
        _notes(step).read[f"{table}@{snapshot_id}"] = None


def follows(step: Any, table: TableIdentifier, since: int | None) -> None:
    """Note that the step reads what is new in a table since a snapshot, or all of it."""
    _notes(step).followed[table] = since


def followed(step: Any) -> dict[TableIdentifier, int | None]:
    """The tables of which the step reads what is new, and since which snapshot."""
    return dict(_notes(step).followed) if step is not None else {}


def _consumed(step: Any) -> str:
    """What the step has read, as it stands in the summary of what it writes."""
    return ",".join(_notes(step).read) if step is not None else ""


def inputs_of(summary: Mapping[str, str]) -> dict[str, int]:
    """The snapshots that a write was made from, by their tables; of several of one table, the one read last."""
    pairs = (one.rpartition("@") for one in summary.get(INPUTS, "").split(",") if one)
    return {table: int(snapshot_id) for table, _, snapshot_id in pairs}


def write_id(context: OutputContext) -> str | None:
    """The same for every attempt at the same write, another one for every other write; None outside of a run."""
    step = step_of(context)
    if step is None:
        return None
    target = (
        context.asset_key.to_user_string(),
        context.name,
        context.mapping_key or "",
        step.job_def.asset_layer.get(context.asset_key).code_version or "",
        *sorted(context.asset_partition_keys if context.has_asset_partitions else ()),
    )
    number = next(_notes(step).written.setdefault(target, itertools.count()))
    parts = [_run_of_write(step), step.step.key, str(number), *target]
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def _run_of_write(step: Any) -> str:
    """The run a write belongs to: a retry goes on with the writes of its parent, a re-execution makes new ones."""
    run = step.dagster_run
    while run.parent_run_id is not None and _continues(run, step):
        parent = step.instance.get_run_by_id(run.parent_run_id)
        if parent is None:
            return str(run.parent_run_id)
        if parent.status is DagsterRunStatus.SUCCESS:  # nothing is left to go on with: the tag was inherited
            break
        run = parent
    return str(run.run_id)


def _continues(run: Any, step: Any) -> bool:
    """Does the run go on where its parent failed?

    Dagster's own retries say so. A resume from Python says nothing, and has the steps that did not succeed.
    """
    if _RETRY_TAGS & run.tags.keys():
        return True
    if run.step_keys_to_execute is None or _SELECTION_TAG in run.tags:
        return False
    before = step.instance.get_run_step_stats(run.parent_run_id, [step.step.key])
    return all(one.status is not StepEventStatus.SUCCESS for one in before)


def partition_label(keys: Iterable[str]) -> str | None:
    """The partitions of a write, in few words."""
    listed = list(keys)
    if not listed:
        return None
    return listed[0] if len(listed) == 1 else f"{listed[0]}...{listed[-1]} ({len(listed)})"


def labelled(label: str, known: Mapping[str, int]) -> list[str]:
    """The partitions that a label stands for; none if it does not tell them apart. `known` has the place of each."""
    found = re.fullmatch(r"(.+)\.\.\.(.+) \((\d+)\)", label)
    if found is None:
        return [label]
    first, last = known.get(found[1]), known.get(found[2])
    if first is None or last is None or last - first + 1 != int(found[3]):
        return []
    return list(known)[first : last + 1]


def trace(context: OutputContext) -> dict[str, str]:
    """What leads from a snapshot back to the run that made it."""
    step = step_of(context)
    keys = list(context.asset_partition_keys) if context.has_asset_partitions else []
    facts = {
        ASSET: context.asset_key.to_user_string(),
        PARTITION: partition_label(keys) or "",
        "floe.run-id": step.run_id if step is not None else "",
        "floe.code-version": step.job_def.asset_layer.get(context.asset_key).code_version or "" if step else "",
        INPUTS: _consumed(step),
    }
    return {key: value for key, value in facts.items() if value}
