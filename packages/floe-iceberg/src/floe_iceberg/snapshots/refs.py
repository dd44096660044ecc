"""Tags, branches and the head of a table: which snapshot each name points to, moved only on a checked condition."""

from __future__ import annotations

import re
import uuid
from datetime import datetime, timedelta, timezone

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_core.identifiers import TableIdentifier, check_name
from floe_iceberg.snapshots.snapshots import ancestors_of

__all__ = [
    "CURSOR_PREFIX",
    "FOREVER_MS",
    "LEASE",
    "commit_refs",
    "create_ref",
    "discard",
    "fast_forward",
    "known_snapshot",
    "move_main",
    "move_tag",
    "publication",
    "remove_ref",
    "snapshot_at",
    "staged_since",
    "staging_branch",
]

# The prefix of tags at the snapshot that an asset consumed last; it still needs the snapshots after it.
CURSOR_PREFIX = "floe-cursor-"
# The tag of the lease on a table, and the prefix of the tag that names its holder.
LEASE = "floe-lease"
# The longest age that Iceberg can store; it overrides any table property on the age of refs.
FOREVER_MS = 2**63 - 1
_STAGING = re.compile(r"floe_([0-9a-f]+)_[0-9a-f]{12}")
# How many snapshots an error lists.
_LISTED = 5


def staging_branch(now: float) -> str:
    """A new name for a staging branch; it contains the start time of the write."""
    return f"floe_{int(now):x}_{uuid.uuid4().hex[:12]}"


def staged_since(table: Table) -> list[datetime]:
    """The start times of writes that have a staging branch, running or abandoned."""
    matches = [_STAGING.fullmatch(name) for name in table.metadata.refs]
    return sorted(datetime.fromtimestamp(int(match[1], 16), timezone.utc) for match in matches if match)


def create_ref(
    table: Table,
    identifier: TableIdentifier,
    name: str,
    kind: SnapshotRefType,
    *,
    snapshot_id: int | None,
    max_age: timedelta | None,
) -> None:
    """Create a tag or branch at a snapshot, or at the head; refuses a name that is taken."""
    try:
        check_name(name)
    except ValueError as exc:
        raise ConfigurationError(str(exc)) from None
    if name.startswith(LEASE):
        raise ConfigurationError(f"{kind.value} {name!r}: names that begin with {LEASE} are reserved; choose another")
    if max_age is not None and max_age <= timedelta(0):
        raise ConfigurationError(f"{kind.value} {name!r}: max_ref_age must be greater than zero")
    if name in table.metadata.refs:
        raise ConfigurationError(
            f"table '{identifier}' has a {table.metadata.refs[name].snapshot_ref_type.value} {name!r} already"
        )
    snapshot = known_snapshot(table, identifier, snapshot_id)
    age_ms = None if max_age is None else int(max_age.total_seconds() * 1000)
    update = SetSnapshotRefUpdate(
        ref_name=name,
        type=kind,
        snapshot_id=snapshot.snapshot_id,
        max_ref_age_ms=age_ms,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    commit_refs(table, {name: None}, [update])


def move_tag(table: Table, identifier: TableIdentifier, name: str, snapshot_id: int) -> None:
    """Create a tag at this snapshot, exempt from table properties on the age of refs; or move it in one commit."""
    ref = table.metadata.refs.get(name)
    if ref is not None and ref.snapshot_ref_type is not SnapshotRefType.TAG:
        raise ConfigurationError(f"{name!r} is a branch of '{identifier}', not a tag")
    known_snapshot(table, identifier, snapshot_id)
    update = SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.TAG,
        snapshot_id=snapshot_id,
        max_ref_age_ms=FOREVER_MS if ref is None else ref.max_ref_age_ms,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    commit_refs(table, {name: None if ref is None else ref.snapshot_id}, [update])


def remove_ref(table: Table, identifier: TableIdentifier, name: str, kind: SnapshotRefType) -> None:
    """Remove a tag or branch; its snapshot stays until it expires."""
    ref = table.metadata.refs.get(name)
    if ref is None or ref.snapshot_ref_type is not kind or name == MAIN_BRANCH:
        raise ConfigurationError(
            f"table '{identifier}' has no {kind.value} {name!r} to remove (there: {_names(table, kind)})"
        )
    commit_refs(table, {name: ref.snapshot_id}, [RemoveSnapshotRefUpdate(ref_name=name)])


def move_main(table: Table, identifier: TableIdentifier, snapshot_id: int) -> None:
    """Roll main back to one of its ancestors; a conflict if main moved since the table was loaded."""
    head = table.current_snapshot()
    known_snapshot(table, identifier, snapshot_id)
    if snapshot_id not in _ancestors(table, head):
        raise ConfigurationError(
            f"snapshot {snapshot_id} is not in the history of '{identifier}', so the table cannot be rolled back to it"
        )
    if head is not None and head.snapshot_id != snapshot_id:
        commit_refs(table, {MAIN_BRANCH: head.snapshot_id}, [_set_branch(table, MAIN_BRANCH, snapshot_id)])


def fast_forward(table: Table, identifier: TableIdentifier, branch: str, *, remove: bool = False) -> None:
    """Move main to the head of a branch that began at main's head; refused if main moved since then.

    `remove` removes the branch in the same commit.
    """
    ref = table.metadata.refs.get(branch)
    if branch == MAIN_BRANCH:
        raise ConfigurationError(f"main of '{identifier}' is what other branches are published to; name one of them")
    if ref is None or ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        raise ConfigurationError(
            f"table '{identifier}' has no branch {branch!r} (there: {_names(table, SnapshotRefType.BRANCH)})"
        )
    head = table.current_snapshot()
    if head is not None and head.snapshot_id not in _ancestors(table, table.snapshot_by_id(ref.snapshot_id)):
        raise ConcurrencyConflictError(
            f"main of '{identifier}' moved after branch {branch!r} began: publishing it would lose what main gained; "
            f"write the branch again from main's head"
        )
    updates: list[TableUpdate] = [_set_branch(table, MAIN_BRANCH, ref.snapshot_id)]
    if remove:
        updates.append(RemoveSnapshotRefUpdate(ref_name=branch))
    commit_refs(table, {MAIN_BRANCH: head.snapshot_id if head else None, branch: ref.snapshot_id}, updates)


def publication(
    table: Table, branch: str, *, to: str, expected: int
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Move `to` from the `expected` snapshot to the head of a branch, and remove the branch."""
    staged = table.metadata.refs[branch].snapshot_id
    updates = (_set_branch(table, to, staged), RemoveSnapshotRefUpdate(ref_name=branch))
    return updates, (
        AssertRefSnapshotId(ref=to, snapshot_id=expected),
        AssertRefSnapshotId(ref=branch, snapshot_id=staged),
    )


def discard(table: Table, branch: str, *, since: int) -> None:
    """Remove a branch with the snapshots that only it reaches; does nothing if it does not exist.

    Args:
        since: The snapshot at which the branch began. It and its ancestors stay: main may have been rolled back.
    """
    ref = table.metadata.refs.get(branch)
    if ref is None:
        return
    heads = [other.snapshot_id for name, other in table.metadata.refs.items() if name != branch]
    kept = {ancestor for head in heads for ancestor in _ancestors(table, table.snapshot_by_id(head))}
    kept |= _ancestors(table, table.snapshot_by_id(since))
    own = sorted(_ancestors(table, table.snapshot_by_id(ref.snapshot_id)) - kept)
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=branch)]
    if own:
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=own))
    commit_refs(table, {branch: ref.snapshot_id}, updates)


def snapshot_at(table: Table, identifier: TableIdentifier, moment: datetime) -> Snapshot:
    """The snapshot that was current at a moment, by the clock of its writer."""
    if moment.tzinfo is None:
        raise ConfigurationError(f"as_of {moment} has no time zone; set it, for example {moment.isoformat()}+00:00")
    found = table.snapshot_as_of_timestamp(int(moment.timestamp() * 1000))
    if found is None:
        first = min((snapshot.timestamp_ms for snapshot in table.snapshots()), default=None)
        oldest = "none yet" if first is None else datetime.fromtimestamp(first / 1000, timezone.utc).isoformat()
        raise ConfigurationError(
            f"table '{identifier}' had no snapshot at {moment.isoformat()}; it was created later, or that snapshot "
            f"expired (oldest remaining: {oldest})"
        )
    return found


def known_snapshot(table: Table, identifier: TableIdentifier, snapshot_id: int | None) -> Snapshot:
    """The snapshot of that id, or the head; if the table does not have it, an error that lists what it has."""
    found = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if found is None and snapshot_id is None:
        raise ConfigurationError(f"table '{identifier}' has no snapshot yet; write to it first")
    if found is None:
        raise ConfigurationError(
            f"table '{identifier}' has no snapshot {snapshot_id}; it may have expired (there: {_latest_ids(table)})"
        )
    return found


def _latest_ids(table: Table) -> str:
    """The ids of the latest snapshots, and the number of older ones."""
    ids = [str(snapshot.snapshot_id) for snapshot in table.snapshots()]
    latest = ", ".join(ids[-_LISTED:]) or "none"
    return latest if len(ids) <= _LISTED else f"{latest} and {len(ids) - _LISTED} older ones"


def _names(table: Table, kind: SnapshotRefType) -> str:
    return ", ".join(name for name, ref in table.metadata.refs.items() if ref.snapshot_ref_type is kind) or "none"


def _ancestors(table: Table, head: Snapshot | None) -> set[int]:
    return {snapshot.snapshot_id for snapshot in ancestors_of(head, table.metadata)}


def _set_branch(table: Table, name: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """Point a branch to a snapshot and keep its retention."""
    kept = table.metadata.refs.get(name)
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=kept.max_ref_age_ms if kept else None,
        max_snapshot_age_ms=kept.max_snapshot_age_ms if kept else None,
        min_snapshots_to_keep=kept.min_snapshots_to_keep if kept else None,
    )


def commit_refs(table: Table, expected: dict[str, int | None], updates: list[TableUpdate]) -> Table:
    """One metadata commit that fails unless each ref is at its `expected` snapshot; None: the ref must not exist.

    Returns the table as the commit left it.
    """
    asserted = tuple(AssertRefSnapshotId(ref=name, snapshot_id=snapshot) for name, snapshot in expected.items())
    same = AssertTableUUID(uuid=table.metadata.table_uuid)
    response = table.catalog.commit_table(table, (same, *asserted), tuple(updates))
    return Table(table.name(), response.metadata, response.metadata_location, table.io, table.catalog)
