"""The history of a table while a run is taken back, and what was computed from the rows that are taken back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from floe_core.identifiers import TableIdentifier
from floe_iceberg.snapshots import ASSET, FOLLOWED, INPUTS, PARTITION, UNDOES, ancestors_of, summary_of, undone_in
from floe_iceberg.transactions.file_changes import FileChanges, NetChange, carries_rows, changes_of, is_rewrite

__all__ = ["Dependent", "History", "dependents"]

_SEVERAL = "..."  # in the label of a write to several partitions


@dataclass
class History:
    """The history of main, the oldest snapshot first, and which of its writes are taken back."""

    identifier: TableIdentifier
    table: Table
    reverted: set[int] = field(default_factory=set)
    _changes: dict[int, FileChanges] = field(default_factory=dict)

    @cached_property
    def chain(self) -> list[Snapshot]:
        return list(ancestors_of(self.table.current_snapshot(), self.table.metadata))[::-1]

    @cached_property
    def places(self) -> dict[int, int]:
        return {snapshot.snapshot_id: place for place, snapshot in enumerate(self.chain)}

    @cached_property
    def undone(self) -> set[int]:
        """The writes that an earlier undoing took back."""
        return undone_in(self.chain)

    @property
    def first(self) -> int:
        """The place of the oldest snapshot that is taken back."""
        return min(self.places[snapshot_id] for snapshot_id in self.reverted)

    @property
    def since(self) -> list[Snapshot]:
        """From the oldest snapshot that is taken back on, without writes that were undone since then."""
        later = self.chain[self.first :]
        ids = {one.snapshot_id for one in later}
        pairs = [(one.snapshot_id, undone) for one in later if (undone := undone_in([one])) and undone <= ids]
        neutral = {snapshot_id for snapshot_id, _ in pairs}.union(*(undone for _, undone in pairs))
        return [one for one in later if one.snapshot_id not in neutral]

    @property
    def goes_back(self) -> bool:
        """Is every write since then taken back? Compactions change no rows."""
        return all(one.snapshot_id in self.reverted or is_rewrite(one) for one in self.since)

    def changes(self, snapshot: Snapshot) -> FileChanges:
        if snapshot.snapshot_id not in self._changes:
            self._changes[snapshot.snapshot_id] = changes_of(snapshot, self.table.io)
        return self._changes[snapshot.snapshot_id]

    def net(self) -> NetChange:
        """The net change of the writes that are taken back, and the later writes that are in its way."""
        net = NetChange()
        for snapshot in self.since:
            if snapshot.snapshot_id in self.reverted:
                net.revert(self.changes(snapshot))
            else:
                net.meets(snapshot, self.changes(snapshot))
        return net

    def may_hold(self, snapshot: Snapshot, until: int) -> bool:
        """May the table hold rows of a snapshot at this place of its history? Later writes may have replaced them."""
        alive = set(self.changes(snapshot).added)
        if not alive:
            return True
        for later in self.chain[self.places[snapshot.snapshot_id] + 1 : until + 1]:
            gone = alive & self.changes(later).removed.keys()
            if gone and carries_rows(later) and UNDOES not in summary_of(later):
                return True
            alive -= gone
        return bool(alive)


@dataclass(frozen=True)
class Dependent:
    """A later write whose rows were made from those that are taken back."""

    history: History
    snapshot: Snapshot
    reason: str


def dependents(histories: Mapping[TableIdentifier, History]) -> Iterator[Dependent]:
    """The writes that were computed from what is taken back, directly or by way of other tables, and are still seen."""
    owners = {snapshot_id: one for one in histories.values() for snapshot_id in one.places}
    sources: dict[int, str] = {}  # what the rows are in, and why
    for one in histories.values():
        sources |= dict.fromkeys(one.reverted, "")
    writes = [(one, snapshot) for one in histories.values() for snapshot in one.chain if _inputs(snapshot)]
    writes.sort(key=lambda pair: (pair[1].timestamp_ms, pair[1].sequence_number or 0))
    grown = True
    while grown:  # a table may have been read before the catalog's clock says that it was written
        grown = False
        for history, snapshot in writes:
            if snapshot.snapshot_id in sources or snapshot.snapshot_id in history.undone:
                continue
            reason = _reason(snapshot, owners, sources)
            if reason is not None:
                sources[snapshot.snapshot_id] = reason
                grown = True
    for history, snapshot in writes:
        reason = sources.get(snapshot.snapshot_id, "")
        if reason and history.may_hold(snapshot, len(history.chain) - 1):
            yield Dependent(history, snapshot, reason)
    for one in histories.values():
        yield from _continued(one)


def _reason(snapshot: Snapshot, owners: Mapping[int, History], sources: Mapping[int, str]) -> str | None:
    """Why a write depends on one of the sources; None if it does not."""
    for name, read in _inputs(snapshot):
        owner = owners.get(read)  # by the snapshot, because the table may have been renamed
        if owner is None:
            continue
        if read in sources:
            return f"it was computed from snapshot {read} of {name}"
        for source in owner.chain[: owner.places[read]]:
            if (
                source.snapshot_id in sources
                and not _are_apart(snapshot, source)
                and owner.may_hold(source, owner.places[read])
            ):
                return f"it was computed from {name} at a later snapshot, which has these rows too"
    return None


def _are_apart(one: Snapshot, other: Snapshot) -> bool:
    """Are both writes to one partition, and to different ones?"""
    labels = [summary_of(snapshot).get(PARTITION, "") for snapshot in (one, other)]
    return all(labels) and labels[0] != labels[1] and not any(_SEVERAL in label for label in labels)


def _continued(history: History) -> Iterator[Dependent]:
    """The later writes that continue where a reverted one stopped reading: what it read would never be read again."""
    for place, snapshot in enumerate(history.chain):
        followed = _followed(snapshot)
        if snapshot.snapshot_id not in history.reverted or not followed:
            continue
        asset = summary_of(snapshot).get(ASSET)
        for later in history.chain[place + 1 :]:
            is_kept = later.snapshot_id not in history.reverted and later.snapshot_id not in history.undone
            if is_kept and summary_of(later).get(ASSET) == asset and followed & _followed(later):
                yield Dependent(history, later, "it consumed what came after that, and would not consume it again")


def _followed(snapshot: Snapshot) -> set[str]:
    return set(filter(None, summary_of(snapshot).get(FOLLOWED, "").split(",")))


def _inputs(snapshot: Snapshot) -> Sequence[tuple[str, int]]:
    """All snapshots that a write was made from; a table may have been read more than once."""
    pairs = (entry.rpartition("@") for entry in summary_of(snapshot).get(INPUTS, "").split(",") if entry)
    return [(name, int(found)) for name, _, found in pairs if found.isdecimal()]
