"""One at a time: a lease on a table, which others see and which ends by itself when its holder is gone.

Creating a tag asserts that it does not exist, and nothing else in Iceberg asserts as much: setting a property does not.
So a lease is two tags. One has a fixed name, and whoever creates it has the lease. The other's name says who that is
and until when; it is never the same twice, so that renewing, giving back and taking over from the dead each assert
that the lease is still the one that was looked at.
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
from floe_core.telemetry import warn
from floe_iceberg.errors import is_full, translated
from floe_iceberg.patience import ATTEMPTS, trying
from floe_iceberg.refs import FOREVER_MS, LEASE, commit_refs

__all__ = ["LEASE", "LeaseHeldError", "Tables", "holder_of", "is_lease", "leased", "refuse_held", "release"]

_NAMED = re.compile(rf"{LEASE}-(\d+)-(.+)-([0-9a-f]{{12}})")
_SECONDS = 900.0
# A disk that the work filled has space again once the files of the failed step are deleted.
_ATTEMPTS_ON_A_FULL_DISK = 7


class Tables(Protocol):
    """Whoever can load a table as it is now."""

    def load_table(self, identifier: TableIdentifier) -> Table: ...


class LeaseHeldError(ConcurrencyConflictError):
    """Somebody else maintains the table right now."""


@dataclass(frozen=True)
class Holder:
    """Who has a lease, and until when."""

    tag: str
    until_ms: int
    name: str

    @property
    def until(self) -> datetime:
        return datetime.fromtimestamp(self.until_ms / 1000, timezone.utc)


def is_lease(ref: str) -> bool:
    return ref == LEASE or _NAMED.fullmatch(ref) is not None


def holder_of(table: Table) -> Holder | None:
    """Who has the lease of a table, be it over or not."""
    for tag in table.metadata.refs:
        named = _NAMED.fullmatch(tag)
        if named:
            return Holder(tag, int(named[1]), named[2])
    return None


def refuse_held(table: Table, identifier: TableIdentifier, now: float) -> None:
    """Raise LeaseHeldError if somebody has the lease at this moment, in seconds since 1970."""
    there = holder_of(table)
    if there is not None and there.until_ms > now * 1000:
        raise LeaseHeldError(
            f"'{identifier}' is being maintained by {there.name}, until "
            f"{there.until.isoformat(timespec='seconds')} at the latest unless it renews its lease; if it failed or "
            f"was killed, run: floe maintain release {identifier}"
        )


def release(manager: Tables, identifier: TableIdentifier, *, force: bool = False) -> str | None:
    """End the lease of a table whose holder failed; returns who had it, or None if nobody did.

    A holder that still runs notices it before its next step, and stops.

    Args:
        force: Also if its process is seen to run on this machine, or it renews the lease meanwhile.
    """
    first: list[str] | None = None  # the tags of the lease as it was first looked at
    name: str | None = None
    for attempt in _patiently():
        with attempt, translated("release_lease", identifier):
            table = manager.load_table(identifier)
            there = holder_of(table)
            left = sorted(one for one, ref in table.metadata.refs.items() if is_lease(one) and _is_tag(ref))
            if not left:
                return name
            if there is not None and not force and _runs_here(there.name):
                raise LeaseHeldError(
                    f"the lease on '{identifier}' was not released: its holder {there.name} is a process that runs on "
                    f"this machine; stop it. If that process is no maintenance of Floe (process numbers are used "
                    f"again), release the lease with --force (force=True)"
                )
            if first is not None and left != first and not force:
                raise LeaseHeldError(
                    f"the lease on '{identifier}' was not released: it was changed at this moment, so its holder "
                    f"{name} runs, or another maintenance has begun; stop it, or release the lease with --force "
                    f"(force=True)"
                )
            first, name = left, there.name if there is not None else LEASE
            expected: dict[str, int | None] = {one: table.metadata.refs[one].snapshot_id for one in left}
            commit_refs(table, expected, [RemoveSnapshotRefUpdate(ref_name=one) for one in left])
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
        return True  # it is somebody else's process
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
    """Hold the lease of a table, which has a snapshot; LeaseHeldError if somebody else does.

    It is renewed for as long as the block runs. Yields a check to make before each step: that it was not lost.

    Args:
        leaving: The properties that the table is given together with the lease's end.
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
        self._tried: set[str] = set()  # names that may have come to be: the answer to a commit can be lost
        self._ended = False
        self._lock = threading.Lock()  # its keeper and whoever works both put new names in place

    def take(self) -> None:
        for attempt in _patiently():
            with attempt, translated("take_lease", self._identifier):
                table = self._manager.load_table(self._identifier)
                there = holder_of(table)
                if self._is_ours(there):
                    return  # the answer to taking it was lost
                refuse_held(table, self._identifier, self._clock())
                left = table.metadata.refs.get(LEASE)
                if left is not None and not _is_tag(left):
                    raise ConfigurationError(
                        f"'{self._identifier}' has a branch {LEASE!r}, which is the name of Floe's lease; rename it"
                    )
                if there is None and left is not None:
                    # What is left of a lease of which somebody removed the other half.
                    expected: dict[str, int | None] = {LEASE: left.snapshot_id}
                    commit_refs(table, expected, [RemoveSnapshotRefUpdate(ref_name=LEASE)])
                    table = self._manager.load_table(self._identifier)
                self._replace(table, there.tag if there else None)

    def keep(self, ended: threading.Event) -> None:
        while not ended.wait(self._seconds / 3):
            self._try_to_renew()

    def _try_to_renew(self) -> None:
        try:
            self._renew()
        except Exception as exc:  # noqa: BLE001 - a thread of its own: `check` tells whoever works
            warn("the lease was not renewed", table=str(self._identifier), reason=str(exc))

    def _renew(self) -> None:
        for attempt in _patiently():
            with attempt, translated("renew_lease", self._identifier), self._lock:
                table = self._manager.load_table(self._identifier)
                there = holder_of(table)
                if there is not None and self._is_ours(there) and not self._ended:
                    self._replace(table, there.tag)

    def check(self) -> None:
        """Raise if somebody else took the lease over, because this process stood still for too long.

        Its tags go on to the head: they must not keep a snapshot that expires.
        """
        for attempt in _patiently():
            with attempt, translated("renew_lease", self._identifier), self._lock:
                table = self._manager.load_table(self._identifier)
                there = holder_of(table)
                if there is None or not self._is_ours(there):
                    raise self._lost()
                head = table.current_snapshot()
                moved = head is not None and head.snapshot_id != table.metadata.refs[there.tag].snapshot_id
                if moved or there.until_ms - self._now() < self._seconds * 1000 / 2:
                    self._replace(table, there.tag)

    def _is_ours(self, there: Holder | None) -> bool:
        return there is not None and there.tag in self._tried

    def _lost(self) -> LeaseHeldError:
        return LeaseHeldError(
            f"the lease on '{self._identifier}' was lost: this process stood still for longer than "
            f"{self._seconds:g} s, another's clock is as much ahead, or somebody removed the tag. What was done is "
            f"complete; run it again"
        )

    def give_back(self, properties: Mapping[str, str]) -> None:
        """End the lease; if that fails it ends by itself, and what was done stays done."""
        try:
            with self._lock:
                self._ended = True
                self._give_back(properties)
        except TableNotFoundError:
            pass  # nobody will ask for it again
        except Exception as exc:  # noqa: BLE001 - what was done, or why it failed, is what the caller must see
            warn(
                f"the lease was not given back; it ends by itself, or with: floe maintain release {self._identifier}",
                table=str(self._identifier),
                reason=str(exc),
            )

    def _give_back(self, properties: Mapping[str, str]) -> None:
        for attempt in trying(ATTEMPTS, _patience_with_full_disk()):
            with attempt, translated("end_lease", self._identifier):
                table = self._manager.load_table(self._identifier) if self._tried else None
                there = holder_of(table) if table is not None else None
                if table is None or there is None or not self._is_ours(there):
                    return
                updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=there.tag)]
                expected: dict[str, int | None] = {there.tag: table.metadata.refs[there.tag].snapshot_id}
                if LEASE in table.metadata.refs:
                    updates.append(RemoveSnapshotRefUpdate(ref_name=LEASE))
                if properties:
                    updates.append(SetPropertiesUpdate(updates=dict(properties)))
                commit_refs(table, expected, updates)

    def _replace(self, table: Table, before: str | None) -> None:
        """Put a new name in the place of the one that was looked at, or of none, in one commit."""
        head = table.current_snapshot()
        if head is None:
            raise ConcurrencyConflictError(f"'{self._identifier}' has no snapshot yet, and so nothing to maintain")
        tag = f"{LEASE}-{int(self._now() + self._seconds * 1000)}-{self._name}-{uuid.uuid4().hex[:12]}"
        expected: dict[str, int | None] = {tag: None, before or LEASE: None}
        updates: list[TableUpdate] = [_tag(LEASE, head.snapshot_id), _tag(tag, head.snapshot_id)]
        if before is not None:
            expected[before] = table.metadata.refs[before].snapshot_id
            updates.insert(0, RemoveSnapshotRefUpdate(ref_name=before))
        self._tried.add(tag)
        try:
            commit_refs(table, expected, updates)
        except NotImplementedError as exc:
            raise FloeStorageError(
                f"'{self._identifier}' cannot be maintained here: PyIceberg does not write tables of its format "
                f"version to this catalog yet ({exc}); a catalog server takes them"
            ) from exc

    def _now(self) -> float:
        return self._clock() * 1000


def _tag(name: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    # Never too old: Iceberg counts a tag's age from the snapshot's time, and would take it away under us.
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.TAG,
        snapshot_id=snapshot_id,
        max_ref_age_ms=FOREVER_MS,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def _patiently() -> Retrying:
    return trying(ATTEMPTS, _may_pass)


def _patience_with_full_disk() -> Callable[[BaseException], bool]:
    full = itertools.count(1)

    def may_pass(exc: BaseException) -> bool:
        return next(full) < _ATTEMPTS_ON_A_FULL_DISK if is_full(exc) else _may_pass(exc)

    return may_pass


def _may_pass(exc: BaseException) -> bool:
    passing = ConcurrencyConflictError | CommitStateUnknownError | CatalogConnectionError
    return isinstance(exc, passing) and not isinstance(exc, LeaseHeldError)
