"""Why a run materializes an asset and its partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from dagster import AssetKey

from floe_dagster.differences import Difference
from floe_iceberg.snapshots import Loss
from floe_runtime.runs.batches import other_parents, reading_keys, reads_same_key
from floe_runtime.runs.materializations import Materializations

if TYPE_CHECKING:
    from floe_dagster._dagster.names import AssetGraph

__all__ = ["Cause", "Reason", "changed_code", "is_behind", "newer_keys", "reasons_of"]

_WHOLE = ""  # stands for the partition of an asset that has none


class Cause(str, Enum):
    """Why an asset or partition runs; several may apply."""

    REQUESTED = "requested"
    NEVER = "never materialized"
    LOST = "missing in the table"
    CODE = "code changed"
    UPSTREAM = "upstream newer"  # or about to run, for --missing
    TOGETHER = "made together"  # by a function that also makes another asset that runs


@dataclass(frozen=True)
class Reason:
    """One cause and the partitions that it applies to, in their order; none if the asset is not partitioned."""

    cause: Cause
    partitions: tuple[str, ...] = ()
    detail: str = ""


def reasons_of(
    graph: AssetGraph,
    history: Materializations,
    wanted: Mapping[AssetKey, Sequence[str]],
    *,
    differences: Iterable[Difference],
    requested: Collection[AssetKey] | None,
) -> dict[AssetKey, tuple[Reason, ...]]:
    """The reasons for each asset.

    Args:
        wanted: The partitions to run; none for unpartitioned assets.
        differences: What the tables are known to lack.
        requested: The assets that the run was asked for; None if it was asked for what is missing.
    """
    lost: dict[AssetKey, list[Difference]] = {}
    for difference in differences:
        if difference.recompute:
            lost.setdefault(AssetKey.from_user_string(difference.asset), []).append(difference)
    found: dict[AssetKey, tuple[Reason, ...]] = {}
    for key, names in wanted.items():
        reasons: list[Reason] = []
        if requested is not None:
            selected = [Reason(Cause.REQUESTED, tuple(names))] if key in requested else []
            reasons += selected or _together(graph, key, wanted, ())
        reasons += _never(history, key, names)
        reasons += _lost(lost.get(key, ()), names)
        reasons += changed_code(graph, history, key, names)
        reasons += _upstream(graph, history, key, names, wanted if requested is None else {})
        found[key] = tuple(reasons)
    if requested is None:
        found = {key: (*reasons, *_together(graph, key, wanted, reasons)) for key, reasons in found.items()}
    return found


def _never(history: Materializations, key: AssetKey, names: Sequence[str]) -> Iterator[Reason]:
    if not names:
        if history.latest(key) is None:
            yield Reason(Cause.NEVER)
        return
    recorded = history.by_partition(key)
    never = tuple(name for name in names if name not in recorded)
    if never:
        yield Reason(Cause.NEVER, never)


def _lost(differences: Iterable[Difference], names: Sequence[str]) -> Iterator[Reason]:
    for difference in differences:
        gone = set(difference.partitions)
        affected = tuple(name for name in names if name in gone)
        if affected or not (names or gone):
            is_absent = difference.reason == Loss.DROPPED.value  # Dagster's record has the name that the table had
            yield Reason(Cause.LOST, affected, "renamed or dropped" if is_absent else difference.reason)


def changed_code(graph: AssetGraph, history: Materializations, key: AssetKey, names: Sequence[str]) -> Iterator[Reason]:
    """One reason for each recorded code version that is not the one that the asset declares."""
    declared = graph.get(key).code_version
    if not declared:
        return
    versions = history.code_versions(key, names or [_WHOLE])
    for version in dict.fromkeys(versions.values()):
        if version is not None and version != declared:
            affected = tuple(name for name in names if versions.get(name) == version)
            yield Reason(Cause.CODE, affected, f"{version or 'none'} -> {declared}")


def is_behind(graph: AssetGraph, history: Materializations, key: AssetKey) -> list[AssetKey]:
    """The parents of an unpartitioned asset that were materialized after it; all of them if it never was."""
    own = history.latest(key)
    parents = sorted(graph.get(key).parent_keys)
    if own is None:
        return parents
    records = {parent: history.latest(parent) for parent in parents}
    return [parent for parent, record in records.items() if record is not None and record.timestamp > own.timestamp]


def newer_keys(
    graph: AssetGraph, history: Materializations, key: AssetKey, parent: AssetKey, names: Collection[str]
) -> set[str]:
    """The materialized ones of these partitions that read a partition of a parent that was materialized later."""
    recorded, theirs = history.by_partition(key), history.by_partition(parent)
    own = {name: recorded[name] for name in names if name in recorded}
    if reads_same_key(graph, key, parent):
        return {name for name, event in own.items() if theirs.get(name, 0) > event}
    found: set[str] = set()
    # The newest first, until no partition is left that is older: a mapping is slow, and most partitions are up to date.
    oldest = sorted(own, key=lambda name: own[name], reverse=True)
    for name in sorted(theirs, key=lambda name: theirs[name], reverse=True):
        while oldest and oldest[-1] in found:
            oldest.pop()
        if not oldest or own[oldest[-1]] > theirs[name]:
            break
        readers = reading_keys(graph, history, key, parent, [name])
        found.update(reader for reader in readers if reader in own and own[reader] < theirs[name])
    return found


def _upstream(
    graph: AssetGraph,
    history: Materializations,
    key: AssetKey,
    names: Sequence[str],
    running: Mapping[AssetKey, Sequence[str]],
) -> Iterator[Reason]:
    """The parents that are newer, or are about to run; what was never materialized has reason enough."""
    if not names:
        if history.latest(key) is None:
            return
        parents = sorted(graph.get(key).parent_keys)
        newer = is_behind(graph, history, key)
        because = [parent for parent in parents if parent in newer or parent in running]
        if because:
            yield Reason(Cause.UPSTREAM, (), _named(because))
        return
    affected: set[str] = set()
    because = []
    for parent in other_parents(graph, key):
        behind = _behind(graph, history, key, parent, names)
        if graph.get(parent).partitions_def is not None:
            running_there = reading_keys(graph, history, key, parent, running.get(parent, ()))
            behind |= running_there.intersection(names, history.by_partition(key))
        if behind:
            because.append(parent)
            affected |= behind
    if affected:
        yield Reason(Cause.UPSTREAM, tuple(name for name in names if name in affected), _named(because))


def _behind(
    graph: AssetGraph, history: Materializations, key: AssetKey, parent: AssetKey, names: Collection[str]
) -> set[str]:
    """The partitions for which a parent is newer."""
    if graph.get(parent).partitions_def is not None:
        return newer_keys(graph, history, key, parent, names)
    own, latest = history.by_partition(key), history.latest(parent)
    return set() if latest is None else {name for name in names if own.get(name, latest.storage_id) < latest.storage_id}


def _together(
    graph: AssetGraph, key: AssetKey, wanted: Mapping[AssetKey, Sequence[str]], reasons: Sequence[Reason]
) -> Iterator[Reason]:
    """The siblings that an asset runs for, if it has no other reason for a partition."""
    explained = {
        name for reason in reasons if reason.cause is not Cause.CODE for name in reason.partitions or (_WHOLE,)
    }
    rest = tuple(name for name in wanted[key] or (_WHOLE,) if name not in explained)
    if rest:
        siblings = [
            sibling for sibling in sorted(graph.assets_def_for_key(key).keys) if sibling in wanted and sibling != key
        ]
        yield Reason(Cause.TOGETHER, rest if wanted[key] else (), f"with {_named(siblings)}" if siblings else "")


def _named(keys: Iterable[AssetKey]) -> str:
    return ", ".join(key.to_user_string() for key in keys)
