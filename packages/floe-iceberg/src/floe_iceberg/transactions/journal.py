"""The journal of publications, in the catalog: what a process that ended in between was about to publish.

An entry is a namespace of its own, created and dropped by one request each: a catalog server applies a change of one
namespace as a whole, and keeps no file for it. A catalog database needs no journal: its transaction is atomic.
"""

from __future__ import annotations

import json
import os
import re
import socket
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError

from floe_core.errors import ConfigurationError, NamespaceNotFoundError, PermissionDeniedError
from floe_core.observability import warn
from floe_iceberg.catalogs import JOURNAL
from floe_iceberg.errors import translated
from floe_iceberg.transactions.moves import HeadMove

__all__ = ["Entry", "Journal"]

_NAMED = re.compile(rf"{JOURNAL}[0-9a-f]{{32}}")
_OWNER, _UNTIL, _MOVE = "floe.owner", "floe.until-ms", "floe.move."


@dataclass(frozen=True)
class Entry:
    """A publication that was begun: its moves, the process that owns it, and until when it may work on it."""

    name: str
    moves: tuple[HeadMove, ...]
    owner: str
    until_ms: int

    @property
    def guard(self) -> str:
        """The tag that keeps late requests of this publication out of tables from which it was taken back."""
        return f"floe-withdrawn-{self.name.removeprefix(JOURNAL)}"

    def has_expired(self, now: float) -> bool:
        """Has its owner exceeded its time? No request of it is in flight any more then."""
        return self.until_ms <= now * 1000

    @property
    def has_lost_its_owner(self) -> bool:
        """Did its owner run on this machine, and has it ended? The catalog may still be answering a request of it."""
        return _ended_here(self.owner)


class Journal:
    """The entries of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def begin(self, moves: Sequence[HeadMove], *, until_ms: int) -> Entry:
        """Record a publication before it is sent."""
        entry = Entry(f"{JOURNAL}{uuid.uuid4().hex}", tuple(moves), _this_process(), until_ms)
        properties = {_OWNER: entry.owner, _UNTIL: str(until_ms)}
        properties |= {f"{_MOVE}{index}": json.dumps(move.to_json()) for index, move in enumerate(moves)}
        try:
            with translated("publish", entry.name, namespace=True):
                self._catalog.create_namespace((entry.name,), properties)
        except PermissionDeniedError as exc:
            raise PermissionDeniedError(
                f"publishing several tables records them in the catalog first, as a namespace '{JOURNAL}…', and this "
                f"principal may not create one ({exc}). Nothing was published: grant it the privilege to create, list "
                f"and drop namespaces",
                detail=exc.detail,
            ) from exc
        kept = self._read(entry.name)
        if kept is None or kept.moves != entry.moves:
            self.end(entry)
            raise ConfigurationError(
                "the catalog server did not keep the properties of a namespace, in which a publication of several "
                "tables is recorded; nothing was published. Publish one table at a time, or use another server"
            )
        return entry

    def renew(self, entry: Entry, *, until_ms: int) -> Entry:
        """Give the owner more time."""
        with translated("publish", entry.name, namespace=True):
            self._catalog.update_namespace_properties((entry.name,), updates={_UNTIL: str(until_ms)})
        return replace(entry, until_ms=until_ms)

    def end(self, entry: Entry) -> None:
        """Remove an entry whose publication is applied as a whole, or not at all."""
        try:
            with translated("publish", entry.name, namespace=True):
                self._catalog.drop_namespace((entry.name,))
        except NamespaceNotFoundError:
            pass  # another process ended it

    def entries(self) -> Iterator[Entry]:
        """The entries that there are."""
        with translated("publish", JOURNAL, namespace=True):
            names = [levels[0] for levels in self._catalog.list_namespaces() if len(levels) == 1]
        for name in names:
            if _NAMED.fullmatch(name):
                entry = self._read(name)
                if entry is not None:
                    yield entry

    def _read(self, name: str) -> Entry | None:
        try:
            stored = self._catalog.load_namespace_properties((name,))
        except NoSuchNamespaceError:
            return None
        try:
            moves = {int(key.removeprefix(_MOVE)): value for key, value in stored.items() if key.startswith(_MOVE)}
            read = tuple(HeadMove.from_json(json.loads(moves[index])) for index in sorted(moves))
            return Entry(name, read, stored[_OWNER], int(stored[_UNTIL]))
        except (ValueError, KeyError, TypeError) as exc:
            warn("a journal entry of a publication cannot be read, and is left", entry=name, reason=repr(exc))
            return None


def _this_process() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


def _ended_here(owner: str) -> bool:
    """Did the owner run on this machine, and has it ended?"""
    host, _, pid = owner.rpartition("/")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # it is another user's process, or no id of one
    return False
