"""Leases: one maintenance at a time per table, visible to other processes. A lease expires if its holder is gone.

Creating a tag asserts that it does not exist. No other update in Iceberg asserts absence: setting a property does not.
So a lease is two tags. One has a fixed name: the process that creates it holds the lease. The name of the other one
has the holder and the expiry time; it is unique, so that renewing, releasing and taking over an expired lease each
assert that the lease is still the one that was read.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Protocol

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update import (
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from tenacity import Retrying

from floe_core.errors import (
    CatalogConnectionError,
    CommitStateUnknownError,
    ConcurrencyConflictError,
    ConfigurationError,
    FloeStorageError,
    TableNotFoundError,
)
from floe_core.identifiers import TableIdentifier
from floe_core.observability import warn
from floe_iceberg.backoff import ATTEMPTS, retrying
from floe_iceberg.errors import is_full, translated
from floe_iceberg.files.table_age import record_of_beginning
from floe_iceberg.snapshots.refs import FOREVER_MS, LEASE, commit_refs

__all__ = ["LEASE", "LeaseHeldError", "Tables", "holder_of", "is_lease", "leased", "refuse_held", "release"]

_NAMED = re.compile(rf"{LEASE}-(\d+)-(.+)-([0-9a-f]{{12}})")
_SECONDS = 900.0
# A disk that the work filled has space again once the files of the failed step are deleted.
_ATTEMPTS_ON_A_FULL_DISK = 7


class Tables(Protocol):
    """Anything that can load a table in its current state, and refuse one of a lake that was moved or copied."""

    def load_table(self, identifier: TableIdentifier) -> Table: ...

    def refuse_moved(self, table: Table, identifier: TableIdentifier) -> None: ...


class LeaseHeldError(ConcurrencyConflictError):
    """Another process holds the lease of the table."""


@dataclass(frozen=True)
class Holder:
    """The holder of a lease, and when it expires."""

    tag: str
    until_ms: int
    name: str

    @property
    def until(self) -> datetime:
        return datetime.fromtimestamp(self.until_ms / 1000, timezone.utc)


def is_lease(ref: str) -> bool:
    return ref == LEASE or _NAMED.fullmatch(ref) is not None


def holder_of(table: Table) -> Holder | None:
    """The holder of a table's lease, expired or not."""
    for tag in table.metadata.refs:
        match = _NAMED.fullmatch(tag)
        if match:
            return Holder(tag, int(match[1]), match[2])
    return None


def refuse_held(table: Table, identifier: TableIdentifier, now: float) -> None:
    """Raise LeaseHeldError if the lease is held at `now`, in seconds since 1970."""
    holder = holder_of(table)
    if holder is not None and holder.until_ms > now * 1000:
        raise LeaseHeldError(
            f"'{identifier}' is being maintained by {holder.name}, until "
            f"{holder.until.isoformat(timespec='seconds')} at the latest unless it renews its lease; if it failed or "
            f"was killed, run: floe maintain release {identifier}"
        )


def release(manager: Tables, identifier: TableIdentifier, *, force: bool = False) -> str | None:
    """End the lease of a table whose holder failed; returns the holder, or None without a lease.

    A holder that still runs detects that before its next step, and stops.

    Args:
        force: Also if its process runs on this machine, or renews the lease during the call.
    """
    first: list[str] | None = None  # the tags of the lease as they were first read
    name: str | None = None
    for attempt in _retrying():
        with attempt, translated("release_lease", identifier):
            table = manager.load_table(identifier)
            manager.refuse_moved(table, identifier)
            holder = holder_of(table)
            left = sorted(tag for tag, ref in table.metadata.refs.items() if is_lease(tag) and _is_tag(ref))
            if not left:
                return name
            if holder is not None and not force and _runs_here(holder.name):
                raise LeaseHeldError(
                    f"the lease on '{identifier}' was not released: its holder {holder.name} is a process that runs on "
                    f"this machine; stop it. If that process is not a maintenance of Floe (process ids are reused), "
                    f"release the lease with --force (force=True)"
                )
            if first is not None and left != first and not force:
                raise LeaseHeldError(
                    f"the lease on '{identifier}' was not released: it changed during the release, so its holder "
                    f"{name} is running, or another maintenance has begun; stop it, or release the lease with --force "
                    f"(force=True)"
                )
            first, name = left, holder.name if holder is not None else LEASE
            expected: dict[str, int | None] = {tag: table.metadata.refs[tag].snapshot_id for tag in left}
            commit_refs(table, expected, [RemoveSnapshotRefUpdate(ref_name=tag) for tag in left])
    return name


def _is_tag(ref: SnapshotRef) -> bool:
    return ref.snapshot_ref_type is SnapshotRefType.TAG


def _holder_name(pid: int) -> str:
    host = re.sub(r"[^A-Za-z0-9]+", "_", socket.gethostname())[:40] or "somewhere"
    return f"{host}_{pid}"


def _runs_here(name: str) -> bool:
    pid = name.rpartition("_")[2]
    if not pid.isdecimal() or name != _holder_name(int(pid)) or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is another user's process
    return True


@contextmanager
def leased(
    manager: Tables,
    identifier: TableIdentifier,
    *,
    seconds: float = _SECONDS,
    clock: Callable[[], float] = time.time,
    leaving: Callable[[], Mapping[str, str]] = dict,
) -> Iterator[Callable[[], None]]:
    """Hold the lease of a table, which must have a snapshot; LeaseHeldError if another process holds it.

    It is renewed while the block runs. Yields a check to call before each step, which raises if the lease was lost.

    Args:
        leaving: The table properties that are set in the commit that ends the lease.
    """
    lease = _Lease(manager, identifier, seconds, clock)
    ended = threading.Event()
    keeper = threading.Thread(target=lease.keep, args=(ended,), name="floe-lease", daemon=True)
    properties: Mapping[str, str] = {}
    try:
        lease.take()
        keeper.start()
        yield lease.check
        properties = leaving()
    finally:
        ended.set()
        lease.give_back(properties)


class _Lease:
    def __init__(
        self, manager: Tables, identifier: TableIdentifier, seconds: float, clock: Callable[[], float]
    ) -> None:
        self._manager = manager
        self._identifier = identifier
        self._seconds = seconds
        self._clock = clock
        self._name = _holder_name(os.getpid())
        self._tried: set[str] = set()  # names that may have been committed: a response can be lost
        self._ended = False
        self._lock = threading.Lock()  # the renewing thread and the worker both replace the tag

    def take(self) -> None:
        for attempt in _retrying():
            with attempt, translated("take_lease", self._identifier):
                table = self._manager.load_table(self._identifier)
                self._manager.refuse_moved(table, self._identifier)
                holder = holder_of(table)
                if self._is_ours(holder):
                    return  # the response to an earlier attempt was lost
                refuse_held(table, self._identifier, self._clock())
                left = table.metadata.refs.get(LEASE)
                if left is not None and not _is_tag(left):
                    raise ConfigurationError(
                        f"'{self._identifier}' has a branch {LEASE!r}, which is the name of Floe's lease; rename it"
                    )
                if holder is None and left is not None:
                    # The remaining tag of a lease whose other tag was removed.
                    expected: dict[str, int | None] = {LEASE: left.snapshot_id}
                    commit_refs(table, expected, [RemoveSnapshotRefUpdate(ref_name=LEASE)])
                    table = self._manager.load_table(self._identifier)
                record = record_of_beginning(table, self._identifier)
                self._replace(table, holder.tag if holder else None, record)

    def keep(self, ended: threading.Event) -> None:
        while not ended.wait(self._seconds / 3):
            self._try_to_renew()

    def _try_to_renew(self) -> None:
        try:
            self._renew()
        except Exception as exc:  # noqa: BLE001 - a thread of its own: `check` raises in the worker
            warn("the lease was not renewed", table=str(self._identifier), reason=str(exc))

    def _renew(self) -> None:
        for attempt in _retrying():
            with attempt, translated("renew_lease", self._identifier), self._lock:
                table = self._manager.load_table(self._identifier)
                holder = holder_of(table)
                if holder is not None and self._is_ours(holder) and not self._ended:
                    self._replace(table, holder.tag)

    def check(self) -> None:
        """Raise if another process took the lease over, because this one stalled for too long.

        Its tags are moved to the head: they must not keep a snapshot that expires.
        """
        for attempt in _retrying():
            with attempt, translated("renew_lease", self._identifier), self._lock:
                table = self._manager.load_table(self._identifier)
                holder = holder_of(table)
                if holder is None or not self._is_ours(holder):
                    raise self._lost()
                head = table.current_snapshot()
                moved = head is not None and head.snapshot_id != table.metadata.refs[holder.tag].snapshot_id
                if moved or holder.until_ms - self._now() < self._seconds * 1000 / 2:
                    self._replace(table, holder.tag)

    def _is_ours(self, holder: Holder | None) -> bool:
        return holder is not None and holder.tag in self._tried

    def _lost(self) -> LeaseHeldError:
        return LeaseHeldError(
            f"the lease on '{self._identifier}' was lost: this process stalled for longer than "
            f"{self._seconds:g} s, the clock of another one is ahead by as much, or the tag was removed. Finished "
            f"steps are complete; run it again"
        )

    def give_back(self, properties: Mapping[str, str]) -> None:
        """End the lease; if that fails, it expires by itself, and finished steps are not affected."""
        try:
            with self._lock:
                self._ended = True
                self._give_back(properties)
        except TableNotFoundError:
            pass  # the lease is gone with the table
        except Exception as exc:  # noqa: BLE001 - the caller must see the result of the work, or its error
            warn(
                f"the lease was not released; it expires by itself, or run: floe maintain release {self._identifier}",
                table=str(self._identifier),
                reason=str(exc),
            )

    def _give_back(self, properties: Mapping[str, str]) -> None:
        for attempt in retrying(ATTEMPTS, _transient_or_full_disk()):
            with attempt, translated("end_lease", self._identifier):
                table = self._manager.load_table(self._identifier) if self._tried else None
                holder = holder_of(table) if table is not None else None
                if table is None or holder is None or not self._is_ours(holder):
                    return
                updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=holder.tag)]
                expected: dict[str, int | None] = {holder.tag: table.metadata.refs[holder.tag].snapshot_id}
                if LEASE in table.metadata.refs:
                    updates.append(RemoveSnapshotRefUpdate(ref_name=LEASE))
                if properties:
                    updates.append(SetPropertiesUpdate(updates=dict(properties)))
                commit_refs(table, expected, updates)

    def _replace(self, table: Table, before: str | None, properties: Mapping[str, str] = MappingProxyType({})) -> None:
        """Replace the tag that was read, or create the first one, in one commit."""
        head = table.current_snapshot()
        if head is None:
            raise ConcurrencyConflictError(f"'{self._identifier}' has no snapshot yet, so there is nothing to maintain")
        tag = f"{LEASE}-{int(self._now() + self._seconds * 1000)}-{self._name}-{uuid.uuid4().hex[:12]}"
        expected: dict[str, int | None] = {tag: None, before or LEASE: None}
        updates: list[TableUpdate] = [_tag(LEASE, head.snapshot_id), _tag(tag, head.snapshot_id)]
        if before is not None:
            expected[before] = table.metadata.refs[before].snapshot_id
            updates.insert(0, RemoveSnapshotRefUpdate(ref_name=before))
        if properties:
            updates.append(SetPropertiesUpdate(updates=dict(properties)))
        self._tried.add(tag)
        try:
            commit_refs(table, expected, updates)
        except NotImplementedError as exc:
            raise FloeStorageError(
                f"'{self._identifier}' cannot be maintained here: PyIceberg does not write tables of its format "
                f"version to this catalog yet ({exc}); a catalog server accepts them"
            ) from exc

    def _now(self) -> float:
        return self._clock() * 1000


def _tag(name: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    # No maximum age: Iceberg counts it from the snapshot's timestamp, and would remove a lease that is held.
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.TAG,
        snapshot_id=snapshot_id,
        max_ref_age_ms=FOREVER_MS,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def _retrying() -> Retrying:
    return retrying(ATTEMPTS, _is_transient)


def _transient_or_full_disk() -> Callable[[BaseException], bool]:
    failures = itertools.count(1)

    def is_transient(exc: BaseException) -> bool:
        return next(failures) < _ATTEMPTS_ON_A_FULL_DISK if is_full(exc) else _is_transient(exc)

    return is_transient


def _is_transient(exc: BaseException) -> bool:
    transient = ConcurrencyConflictError | CommitStateUnknownError | CatalogConnectionError
    return isinstance(exc, transient) and not isinstance(exc, LeaseHeldError)
