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
from floe_dagster.runs.transaction import current_run
from floe_iceberg.snapshots import ASSET, FOLLOWED, INPUTS, PARTITION, RUN_ID

__all__ = [
    "attempt_of",
    "followed",
    "follows",
    "has_read",
    "has_read_head",
    "heads_of",
    "labelled",
    "partition_label",
    "runs_of_write",
    "step_of",
    "tags_of",
    "trace",
    "write_id",
]

# The heads of main that an atomic run has read: they must not move before its publication.
_HEADS = "floe.input-heads"
_NO_SNAPSHOT = "none"
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
    heads: dict[str, None] = field(default_factory=dict)
    followed: dict[TableIdentifier, int | None] = field(default_factory=dict)
    written: dict[tuple[str, ...], itertools.count[int]] = field(default_factory=dict)


_NOTES: OrderedDict[tuple[str, str, int, int], _Notes] = OrderedDict()
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


def attempt_of(step: Any) -> tuple[str, str, int, int]:
    """The identity of one attempt of a step; that of an atomic group counts too, which runs the step in a job."""
    run = current_run()
    return step.run_id, step.step.key, step.previous_attempt_count, run.attempt if run is not None else 0


def _notes(step: Any) -> _Notes:
    with _LOCK:
        key = attempt_of(step)
        notes = _NOTES.setdefault(key, _Notes())
        _NOTES.move_to_end(key)
        while len(_NOTES) > _KEPT:
            _NOTES.popitem(last=False)
    return notes


def has_read(step: Any, table: TableIdentifier, snapshot_id: int | None) -> None:
    """Record which snapshot of a table the step has read."""
    if step is not None and snapshot_id is not None:
        _notes(step).read[f"{table}@{snapshot_id}"] = None


def has_read_head(step: Any, table: TableIdentifier, snapshot_id: int | None) -> None:
    """Record the head of main that a step of an atomic run has read; None for a table without a snapshot."""
    if step is not None:
        _notes(step).heads[f"{table}@{_NO_SNAPSHOT if snapshot_id is None else snapshot_id}"] = None


def heads_of(summary: Mapping[str, str]) -> list[tuple[str, int | None]]:
    """The heads of main that a write of an atomic run was made from."""
    pairs = (entry.rpartition("@") for entry in summary.get(_HEADS, "").split(",") if entry)
    return [(table, None if found == _NO_SNAPSHOT else int(found)) for table, _, found in pairs]


def follows(step: Any, table: TableIdentifier, since: int | None) -> None:
    """Record that the step reads a table incrementally, since a snapshot or (None) from the beginning."""
    _notes(step).followed[table] = since


def followed(step: Any) -> dict[TableIdentifier, int | None]:
    """The tables that the step reads incrementally, and since which snapshot."""
    return dict(_notes(step).followed) if step is not None else {}


def _consumed(step: Any) -> str:
    """The snapshots that the step has read, in the format of the snapshot summary."""
    return ",".join(_notes(step).read) if step is not None else ""


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
    atomic = current_run()
    run_id = atomic.run_id if atomic is not None else runs_of_write(step)[-1]
    parts = [run_id, step.step.key, str(number), *target]
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def runs_of_write(step: Any) -> list[str]:
    """This run and those that it retries; the last is the run that its writes belong to.

    A retry continues the writes of its parent, a re-execution makes new ones.
    """
    run = step.dagster_run
    found = [str(run.run_id)]
    while run.parent_run_id is not None and _continues(run, step):
        parent = step.instance.get_run_by_id(run.parent_run_id)
        if parent is not None and parent.status is DagsterRunStatus.SUCCESS:
            break  # nothing is left to retry: the tag was inherited
        found.append(str(run.parent_run_id))
        if parent is None:
            break
        run = parent
    return found


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
        RUN_ID: step.run_id if step is not None else "",
        "floe.code-version": step.job_def.asset_layer.get(context.asset_key).code_version or "" if step else "",
        INPUTS: _consumed(step),
    }
    if step is not None:
        notes = _notes(step)
        facts |= {FOLLOWED: ",".join(map(str, notes.followed))}
        if current_run() is not None:
            facts |= {_HEADS: ",".join(notes.heads)}
    return {key: value for key, value in facts.items() if value}
