"""The branches of the lake as the catalog records them: one namespace each, with what it reads and writes.

A namespace is created and dropped by one request each, on every catalog, and has no file that a branch could lose.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError

from floe_core.errors import (
    ConfigurationError,
    NamespaceAlreadyExistsError,
    NamespaceNotFoundError,
    PermissionDeniedError,
)
from floe_core.identifiers import TableIdentifier
from floe_core.observability import warn
from floe_iceberg.errors import translated
from floe_iceberg.snapshots import BranchedTable, LakeBranch, Pin

__all__ = ["BRANCHES", "BranchRecords"]

# The prefix of the namespaces: they have no tables, and are not listed.
BRANCHES = "floe_branch_"

_NAME, _CREATED, _PINNED, _USED = "floe.branch", "floe.created-ms", "floe.pinned-ms", "floe.used-ms"
# In the place of a table that the branch has left: some servers cannot set and remove properties in one request.
_NOTHING = "null"
_PINS, _PIN, _TABLE, _MOVES, _MOVE = "floe.pins", "floe.pin.", "floe.table.", "floe.moves", "floe.move."


class BranchRecords:
    """The records of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def create(self, branch: LakeBranch) -> bool:
        """Record a branch; False if there is one of this name."""
        properties = {_NAME: branch.name, _CREATED: str(branch.created_ms), _USED: str(branch.used_ms)}
        properties |= _pinned(branch.pins, branch.pinned_ms)
        try:
            with translated("create_branch", branch.name, namespace=True):
                self._catalog.create_namespace(_place(branch.name), properties)
        except NamespaceAlreadyExistsError:
            return False
        except PermissionDeniedError as exc:
            raise PermissionDeniedError(
                f"a branch of the lake is recorded in the catalog, as a namespace '{BRANCHES}…', and this principal "
                f"may not create one ({exc}). Nothing was changed: grant it the privilege to create, list and drop "
                f"namespaces, and to set their properties",
                detail=exc.detail,
            ) from exc
        kept = self.find(branch.name)
        if kept is None or kept.pins != branch.pins:
            self.remove(branch.name)
            raise ConfigurationError(
                "the catalog server did not keep the properties of a namespace, in which a branch of the lake is "
                "recorded; nothing was changed. Use another server"
            )
        return True

    def find(self, name: str) -> LakeBranch | None:
        """The branch of this name; None if there is none."""
        stored = self._stored(_place(name))
        return None if stored is None else _read(stored)

    def every(self) -> Iterator[LakeBranch]:
        """The branches that there are, by name."""
        with translated("list_branches", BRANCHES, namespace=True):
            places = [levels for levels in self._catalog.list_namespaces() if len(levels) == 1]
        found = []
        for place in places:
            stored = self._stored(place) if place[0].startswith(BRANCHES) else None
            if stored is None:
                continue
            try:
                found.append(_read(stored))
            except ConfigurationError as exc:
                warn("the record of a branch cannot be read, and is left", namespace=place[0], reason=str(exc))
        yield from sorted(found, key=lambda branch: branch.name)

    def add_table(self, name: str, table: BranchedTable) -> None:
        """Record that the branch writes to a table: before it begins there, and afterwards."""
        table_uuid = None if table.table_uuid is None else str(table.table_uuid)
        entry = json.dumps([str(table.identifier), table_uuid, table.opened])
        self._set(name, {_table_key(table.identifier): entry})

    def remove_tables(self, name: str, identifiers: Sequence[TableIdentifier]) -> None:
        """Record that the branch has no rows of these tables any more."""
        if identifiers:
            self._set(name, {_table_key(identifier): _NOTHING for identifier in identifiers})

    def pin(self, name: str, pins: Mapping[TableIdentifier, Pin], pinned_ms: int) -> None:
        """Replace what the branch reads of main, in one request."""
        self._set(name, _pinned(pins, pinned_ms))

    def touch(self, name: str, used_ms: int) -> None:
        """Record that a run uses the branch."""
        self._set(name, {_USED: str(used_ms)})

    def begin_publication(self, name: str, moves: Sequence[Mapping[str, object]]) -> None:
        """Record what is about to be published, so that another process can finish what follows it.

        The branch is closed by it: a table that it begins in now would not be published.
        """
        texts = {f"{_MOVE}{index}": json.dumps(move) for index, move in enumerate(moves)}
        self._set(name, {**texts, _MOVES: str(len(moves))})

    def publication(self, name: str) -> list[dict[str, Any]]:
        """What was about to be published; empty if nothing was."""
        stored = self._stored(_place(name)) or {}
        return [json.loads(stored[f"{_MOVE}{index}"]) for index in range(int(stored.get(_MOVES, "0")))]

    def end_publication(self, name: str) -> None:
        """Record that nothing was published, so that the branch can be written to again."""
        self._set(name, {_MOVES: "0"})

    def remove(self, name: str) -> None:
        """Remove the record; does nothing if there is none."""
        try:
            with translated("discard_branch", name, namespace=True):
                self._catalog.drop_namespace(_place(name))
        except NamespaceNotFoundError:
            pass  # another process removed it

    def _set(self, name: str, properties: Mapping[str, str]) -> None:
        try:
            with translated("write_branch", name, namespace=True):
                self._catalog.update_namespace_properties(_place(name), updates=dict(properties))
        except NamespaceNotFoundError as exc:
            raise ConfigurationError(
                f"branch {name!r} was discarded or published by another process in the meantime; nothing was written"
            ) from exc

    def _stored(self, place: tuple[str, ...]) -> Mapping[str, str] | None:
        try:
            with translated("load_branch", place[0], namespace=True):
                return self._catalog.load_namespace_properties(place)
        except (NoSuchNamespaceError, NamespaceNotFoundError):
            return None


def _place(name: str) -> tuple[str]:
    """The namespace of a branch. Names that differ in case only share it: Spark may take them for one."""
    return (f"{BRANCHES}{hashlib.sha256(name.lower().encode()).hexdigest()[:32]}",)


def _table_key(identifier: TableIdentifier) -> str:
    return f"{_TABLE}{hashlib.sha256(str(identifier).encode()).hexdigest()[:16]}"


def _pinned(pins: Mapping[TableIdentifier, Pin], pinned_ms: int) -> dict[str, str]:
    entries = [_entry(name, pin.table_uuid, pin.snapshot_id) for name, pin in pins.items()]
    texts = {f"{_PIN}{index}": entry for index, entry in enumerate(entries)}
    return {**texts, _PINS: str(len(entries)), _PINNED: str(pinned_ms)}


def _entry(identifier: TableIdentifier, table_uuid: uuid.UUID, snapshot_id: int | None) -> str:
    return json.dumps([str(identifier), str(table_uuid), snapshot_id])


def _pin(entry: str) -> tuple[TableIdentifier, Pin]:
    name, table_uuid, snapshot_id = json.loads(entry)
    return TableIdentifier.from_string(name), Pin(
        uuid.UUID(table_uuid), None if snapshot_id is None else int(snapshot_id)
    )


def _table(entry: list[Any]) -> BranchedTable:
    name, table_uuid, opened = entry
    return BranchedTable(
        TableIdentifier.from_string(name), None if table_uuid is None else uuid.UUID(table_uuid), bool(opened)
    )


def _read(stored: Mapping[str, str]) -> LakeBranch:
    try:
        entries = [json.loads(value) for key, value in stored.items() if key.startswith(_TABLE)]
        tables = sorted((_table(entry) for entry in entries if entry is not None), key=lambda one: str(one.identifier))
        return LakeBranch(
            name=stored[_NAME],
            created_ms=int(stored[_CREATED]),
            pinned_ms=int(stored[_PINNED]),
            used_ms=int(stored[_USED]),
            pins=dict(_pin(stored[f"{_PIN}{index}"]) for index in range(int(stored[_PINS]))),
            tables={table.identifier: table for table in tables},
            closed=stored.get(_MOVES, "0") != "0",
        )
    except (KeyError, ValueError, TypeError) as exc:
        raise ConfigurationError(
            f"the record of branch {stored.get(_NAME, '')!r} in the catalog is damaged ({exc!r})"
        ) from exc
