"""The current step: what it has read, the id of each write, and the run that a write belongs to."""

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
# Dagster's tags of a run that resumes a failed one; a deliberate re-execution has none of them.
_RETRY_TAGS = {"dagster/retry_number", "dagster/is_resume_retry", "dagster/is_asset_resume_retry"}
# Dagster's tag of a run of steps that the user selected.
_SELECTION_TAG = "dagster/step_selection"
# Steps whose notes are kept: far more than run concurrently in one process.
_KEPT = 1000


@dataclass
class _Notes:
    """What one attempt of a step has read and written so far."""

    read: dict[str, None] = field(default_factory=dict)
    followed: dict[TableIdentifier, int | None] = field(default_factory=dict)
    written: dict[tuple[str, ...], itertools.count[int]] = field(default_factory=dict)


_NOTES: OrderedDict[tuple[str, str, int], _Notes] = OrderedDict()
_LOCK = threading.Lock()


def step_of(context: InputContext | OutputContext) -> Any:
    """The current step, or None: values can be loaded, and managers called, outside of a step."""
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
    """Record which snapshot of a table the step has read."""
    if step is not None and snapshot_id is not None:
        _notes(step).read[f"{table}@{snapshot_id}"] = None


def follows(step: Any, table: TableIdentifier, since: int | None) -> None:
    """Record that the step reads a table incrementally, since a snapshot or (None) from the beginning."""
    _notes(step).followed[table] = since


def followed(step: Any) -> dict[TableIdentifier, int | None]:
    """The tables that the step reads incrementally, and since which snapshot."""
    return dict(_notes(step).followed) if step is not None else {}


def _consumed(step: Any) -> str:
    """The snapshots that the step has read, in the format of the snapshot summary."""
    return ",".join(_notes(step).read) if step is not None else ""


def inputs_of(summary: Mapping[str, str]) -> dict[str, int]:
    """The input snapshots of a write, by table; if a table was read more than once, the last one."""
    pairs = (entry.rpartition("@") for entry in summary.get(INPUTS, "").split(",") if entry)
    return {table: int(snapshot_id) for table, _, snapshot_id in pairs}


def write_id(context: OutputContext) -> str | None:
    """An idempotency key: the same for every attempt at a write, unique to the write; None outside of a run."""
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
    """The run that a write belongs to: a retry continues the writes of its parent, a re-execution makes new ones."""
    run = step.dagster_run
    while run.parent_run_id is not None and _continues(run, step):
        parent = step.instance.get_run_by_id(run.parent_run_id)
        if parent is None:
            return str(run.parent_run_id)
        if parent.status is DagsterRunStatus.SUCCESS:  # nothing is left to retry: the tag was inherited
            break
        run = parent
    return str(run.run_id)


def _continues(run: Any, step: Any) -> bool:
    """Whether the run resumes its failed parent.

    Dagster tags its own retries. A resume from Python has no tag, and runs only steps that did not succeed.
    """
    if _RETRY_TAGS & run.tags.keys():
        return True
    if run.step_keys_to_execute is None or _SELECTION_TAG in run.tags:
        return False
    before = step.instance.get_run_step_stats(run.parent_run_id, [step.step.key])
    return all(stats.status is not StepEventStatus.SUCCESS for stats in before)


def partition_label(keys: Iterable[str]) -> str | None:
    """A short label for the partitions of a write; None if there are none."""
    listed = list(keys)
    if not listed:
        return None
    return listed[0] if len(listed) == 1 else f"{listed[0]}...{listed[-1]} ({len(listed)})"


def labelled(label: str, known: Mapping[str, int]) -> list[str]:
    """The partitions that a label stands for; empty if it is ambiguous. `known` has the position of each."""
    parts = re.fullmatch(r"(.+)\.\.\.(.+) \((\d+)\)", label)
    if parts is None:
        return [label]
    first, last = known.get(parts[1]), known.get(parts[2])
    if first is None or last is None or last - first + 1 != int(parts[3]):
        return []
    return list(known)[first : last + 1]


def trace(context: OutputContext) -> dict[str, str]:
    """Lineage: the properties that link a snapshot to the asset, partitions, run and inputs it was made from."""
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
