"""Tags, branches and the head of a table: which snapshot each name points to, moved only on a checked condition."""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from difflib import get_close_matches

from pyiceberg.exceptions import CommitFailedException
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
from floe_iceberg.snapshots.timestamps import now_ms

__all__ = [
    "CURSOR_PREFIX",
    "FOREVER_MS",
    "GUARD_MS",
    "LEASE",
    "Revision",
    "check_ancestor",
    "commit_refs",
    "create_ref",
    "discard",
    "fast_forward",
    "find_snapshot",
    "is_branch",
    "known_snapshot",
    "moment_of",
    "move_main",
    "move_main_forward",
    "move_tag",
    "publication",
    "remove_ref",
    "snapshot_at",
    "staged_since",
    "staging_branch",
    "tagged",
    "withdrawal",
]

# The prefix of tags at the snapshot that an asset consumed last; it still needs the snapshots after it.
CURSOR_PREFIX = "floe-cursor-"
# The tag of the lease on a table, and the prefix of the tag that names its holder.
LEASE = "floe-lease"
# The longest age that Iceberg can store; it overrides any table property on the age of refs.
FOREVER_MS = 2**63 - 1
_STAGING = re.compile(r"floe_([0-9a-f]+)_[0-9a-f]{12}")
# How long the tag of a withdrawn publication stays: longer than any request of it may be in flight.
GUARD_MS = 24 * 3600 * 1000
# How long the head of a table is kept by a tag after a run was undone.
_KEPT_MS = 30 * GUARD_MS
# How many snapshots, tags or branches an error lists.
_LISTED = 5
_DATE_DIGITS = 8  # of a date such as 20260131; the ids of snapshots are longer
_SHORTEST_AGE = timedelta(milliseconds=1)  # that Iceberg can store
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# A snapshot by its id, by a tag or branch, or by a time; each of them also as text.
Revision = int | str | datetime


def staging_branch(now: float) -> str:
    """A new name for a staging branch; it contains the start time of the write."""
    return f"floe_{int(now):x}_{uuid.uuid4().hex[:12]}"


def is_branch(table: Table, name: str) -> bool:
    """Does the table have a branch of this name?"""
    ref = table.metadata.refs.get(name)
    return ref is not None and ref.snapshot_ref_type is SnapshotRefType.BRANCH


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
    if name.isdecimal() or _time(name) is not None:
        raise ConfigurationError(
            f"{kind.value} {name!r} reads like the id of a snapshot, or a time: choose a name with a letter, such as "
            f"v{name}"
        )
    if max_age is not None and max_age < _SHORTEST_AGE:
        raise ConfigurationError(f"{kind.value} {name!r}: its age must be at least one millisecond")
    if name in table.metadata.refs:
        raise ConfigurationError(
            f"table '{identifier}' has a {table.metadata.refs[name].snapshot_ref_type.value} {name!r} already"
        )
    snapshot = known_snapshot(table, identifier, snapshot_id)
    age_ms = None if max_age is None else max_age // _SHORTEST_AGE
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


def remove_ref(table: Table, identifier: TableIdentifier, name: str, kind: SnapshotRefType) -> int:
    """Remove a tag or branch, and return the id of its snapshot, which stays until it expires."""
    ref = table.metadata.refs.get(name)
    if ref is not None and ref.snapshot_ref_type is not kind:
        raise ConfigurationError(f"{name!r} is a {ref.snapshot_ref_type.value} of '{identifier}', not a {kind.value}")
    if name == MAIN_BRANCH:
        raise ConfigurationError(f"branch {name!r} of '{identifier}' cannot be removed")
    if ref is None:
        raise ConfigurationError(
            f"table '{identifier}' has no {kind.value} {name!r} to remove (there: {_names(table, kind)})"
            f"{_suggestion(name, _of_kind(table, kind))}"
        )
    commit_refs(table, {name: ref.snapshot_id}, [RemoveSnapshotRefUpdate(ref_name=name)])
    return ref.snapshot_id


def move_main(table: Table, identifier: TableIdentifier, snapshot_id: int, *, expected: int | None = None) -> None:
    """Roll main back to one of its ancestors; a conflict if main moved since the table was loaded.

    Args:
        expected: The head that the caller decided on; another one is a conflict too.
    """
    head = table.current_snapshot()
    if expected is not None and (head is None or head.snapshot_id != expected):
        raise ConcurrencyConflictError(
            f"main of '{identifier}' moved from snapshot {expected} to {head.snapshot_id if head else 'none'} in the "
            f"meantime; nothing was rolled back: check what was written, then decide again"
        )
    known_snapshot(table, identifier, snapshot_id)
    check_ancestor(table, identifier, snapshot_id)
    if head is not None and head.snapshot_id != snapshot_id:
        commit_refs(table, {MAIN_BRANCH: head.snapshot_id}, [_set_branch(table, MAIN_BRANCH, snapshot_id)])


def move_main_forward(table: Table, identifier: TableIdentifier, snapshot_id: int) -> None:
    """Undo a rollback: move main to a snapshot that descends from its head, so that no commit is lost."""
    head, target = table.current_snapshot(), known_snapshot(table, identifier, snapshot_id)
    if head is not None and head.snapshot_id not in _ancestors(table, target):
        is_before = snapshot_id in _ancestors(table, head)
        hint = (
            f"to go back to it: floe snapshots rollback {identifier} --to {snapshot_id}"
            if is_before
            else f"main has other commits since then, which would be lost. {_way_to(table, identifier, target)}"
        )
        raise ConfigurationError(f"snapshot {snapshot_id} of '{identifier}' is not ahead of main: {hint}")
    if head is None or head.snapshot_id != snapshot_id:
        expected = {MAIN_BRANCH: None if head is None else head.snapshot_id}
        commit_refs(table, expected, [_set_branch(table, MAIN_BRANCH, snapshot_id)])


def check_ancestor(table: Table, identifier: TableIdentifier, snapshot_id: int) -> None:
    """Refuse to roll back to a snapshot that main was never at, or was rolled back from."""
    head = table.current_snapshot()
    if snapshot_id not in (ancestors := _ancestors(table, head)):
        ids = [str(snapshot.snapshot_id) for snapshot in table.snapshots() if snapshot.snapshot_id in ancestors]
        target = known_snapshot(table, identifier, snapshot_id)
        is_ahead = head is not None and head.snapshot_id in _ancestors(table, target)
        ahead = f"; it is ahead of main: floe snapshots restore {identifier} {snapshot_id}"
        hint = ahead if is_ahead else f". {_way_to(table, identifier, target)}"
        raise ConfigurationError(
            f"snapshot {snapshot_id} is not in the history of '{identifier}', so the table cannot be rolled back to it "
            f"(in its history: {_listed(ids)}){hint}"
        )


def _way_to(table: Table, identifier: TableIdentifier, target: Snapshot) -> str:
    """How to reach the rows of a snapshot beside main: by reading them, or by giving up what main has since."""
    names = sorted(name for name, ref in table.metadata.refs.items() if ref.snapshot_id == target.snapshot_id)
    revision = f"--ref {shlex.quote(names[0])}" if names else f"--snapshot {target.snapshot_id}"
    read = f"Its rows can be read, and written again: floe read {identifier} {revision}"
    main = _ancestors(table, table.current_snapshot())
    fork = next((one for one in ancestors_of(target, table.metadata) if one.snapshot_id in main), None)
    if fork is None:
        return read
    lost = len(main) - len(_ancestors(table, fork))
    commits = "the commit" if lost == 1 else f"the {lost:,} commits"
    return (
        f"{read}. To make it current without {commits} that main has instead: "
        f"floe snapshots rollback {identifier} --to {fork.snapshot_id}, then "
        f"floe snapshots restore {identifier} {target.snapshot_id}"
    )


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
            f"{_suggestion(branch, _of_kind(table, SnapshotRefType.BRANCH))}"
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
    table: Table, branch: str, *, to: str, expected: int | None
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Move `to` from the `expected` snapshot to the head of a branch, and remove the branch."""
    ref = table.metadata.refs.get(branch)
    if ref is None:
        raise CommitFailedException(f"branch {branch} does not exist")
    staged = ref.snapshot_id
    updates = (_set_branch(table, to, staged), RemoveSnapshotRefUpdate(ref_name=branch))
    return updates, (
        AssertRefSnapshotId(ref=to, snapshot_id=expected),
        AssertRefSnapshotId(ref=branch, snapshot_id=staged),
    )


def withdrawal(
    table: Table, branch: str, *, head: int, start: int | None, guard: str
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Take a publication back: main moves from `head` to the snapshot where it was, and the branch is there again.

    Args:
        guard: A tag that is created: a late request of the publication asserts that it does not exist.
    """
    back: TableUpdate = (
        RemoveSnapshotRefUpdate(ref_name=MAIN_BRANCH) if start is None else _set_branch(table, MAIN_BRANCH, start)
    )
    marked = head if start is None else start
    tag = tagged(table, guard, marked, age_ms=GUARD_MS)
    return (_set_branch(table, branch, head), back, tag), (
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=head),
        AssertRefSnapshotId(ref=branch, snapshot_id=None),
    )


def tagged(table: Table, name: str, snapshot_id: int, *, age_ms: int = _KEPT_MS) -> SetSnapshotRefUpdate:
    """A tag that expiry removes when it is so old; Iceberg counts from the time of the snapshot."""
    snapshot = table.snapshot_by_id(snapshot_id)
    before = 0 if snapshot is None else max(0, now_ms() - snapshot.timestamp_ms)
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.TAG,
        snapshot_id=snapshot_id,
        max_ref_age_ms=before + age_ms,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
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
    found = table.snapshot_as_of_timestamp((moment - _EPOCH) // timedelta(milliseconds=1))
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


def find_snapshot(table: Table, identifier: TableIdentifier, revision: Revision | None) -> Snapshot:
    """The snapshot with this id, at this tag or branch, or current at this time; the head if None."""
    if revision is None or isinstance(revision, int):
        return known_snapshot(table, identifier, revision)
    if isinstance(revision, datetime):
        return snapshot_at(table, identifier, revision)
    if revision in table.metadata.refs:
        _refuse_ambiguous(table, identifier, revision)
        return known_snapshot(table, identifier, table.metadata.refs[revision].snapshot_id)
    if table.current_snapshot() is None:
        raise ConfigurationError(f"table '{identifier}' has no snapshot yet; write to it first")
    if revision.isdecimal() and (len(revision) > _DATE_DIGITS or table.snapshot_by_id(int(revision)) is not None):
        return known_snapshot(table, identifier, int(revision))
    moment = _time(revision)
    if moment is None:
        raise _unknown(table, identifier, revision)
    return snapshot_at(table, identifier, moment_of(revision))


def _refuse_ambiguous(table: Table, identifier: TableIdentifier, name: str) -> None:
    """Refuse a ref, made by another tool, that has the id of another snapshot as its name."""
    ref = table.metadata.refs[name]
    is_id = name.isdecimal() and table.snapshot_by_id(int(name)) is not None
    if is_id and int(name) != ref.snapshot_id:
        kind = ref.snapshot_ref_type
        way = f": floe snapshots untag {identifier} {name}" if kind is SnapshotRefType.TAG else ""
        raise ConfigurationError(
            f"{name} is the id of a snapshot of '{identifier}', and the name of a {kind.value} at snapshot "
            f"{ref.snapshot_id}. Remove the {kind.value} first{way}"
        )


def moment_of(text: str) -> datetime:
    """A time as text, with its time zone; ConfigurationError if it is none, or has no zone."""
    moment = _time(text)
    if moment is None:
        raise ConfigurationError(f"{text!r} is not a time; write it like 2026-01-31T12:00:00+00:00")
    if moment.tzinfo is None:
        raise ConfigurationError(
            f"the time {text!r} has no time zone; write it with one, for example {moment.isoformat()}+00:00"
        )
    return moment


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text.strip()))
    except ValueError:
        return None


def _unknown(table: Table, identifier: TableIdentifier, revision: str) -> ConfigurationError:
    return ConfigurationError(
        f"table '{identifier}' has no tag, branch or snapshot {revision!r} (tags: "
        f"{_names(table, SnapshotRefType.TAG)}; branches: {_names(table, SnapshotRefType.BRANCH)}; snapshots: "
        f"{_latest_ids(table)}); a time is written "
        f"2026-01-31T12:00:00+00:00{_suggestion(revision, table.metadata.refs)}"
    )


def _latest_ids(table: Table) -> str:
    """The ids of the latest snapshots, and the number of older ones."""
    return _listed([str(snapshot.snapshot_id) for snapshot in table.snapshots()])


def _listed(ids: list[str]) -> str:
    latest = ", ".join(ids[-_LISTED:]) or "none"
    return latest if len(ids) <= _LISTED else f"{latest} and {len(ids) - _LISTED} older ones"


def _of_kind(table: Table, kind: SnapshotRefType) -> list[str]:
    return sorted(name for name, ref in table.metadata.refs.items() if ref.snapshot_ref_type is kind)


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=3)
    return f". Did you mean {' or '.join(near)}?" if near else ""


def _names(table: Table, kind: SnapshotRefType) -> str:
    names = _of_kind(table, kind)
    shown = ", ".join(names[:_LISTED]) or "none"
    return shown if len(names) <= _LISTED else f"{shown} and {len(names) - _LISTED} more"


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
