"""A branch of the lake as data: the tables that it has, and the snapshots of main that it reads of all others."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from floe_core.errors import ConfigurationError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.snapshots.refs import is_branch
from floe_iceberg.snapshots.run_branches import UNPUBLISHED, lake_branch_of, unpublished_by

__all__ = ["PIN_PREFIX", "BranchedTable", "LakeBranch", "Pin", "refuse_on_branch"]

# The prefix of tags by which maintenance keeps snapshots of main that a branch reads.
PIN_PREFIX = "floe-pin-"


@dataclass(frozen=True)
class Pin:
    """The snapshot of main that a branch reads of a table; None for a table that had none."""

    table_uuid: uuid.UUID
    snapshot_id: int | None


@dataclass(frozen=True)
class BranchedTable:
    """A table that a branch writes to.

    Attributes:
        identifier: Its name when the branch began in it.
        table_uuid: Its identity; None until a table that the branch creates is there.
        opened: Whether the branch has begun in it. False while it does, and if the process ended then.
    """

    identifier: TableIdentifier
    table_uuid: uuid.UUID | None
    opened: bool


@dataclass(frozen=True)
class LakeBranch:
    """A branch of the lake.

    Attributes:
        name: Its name, which is that of the Iceberg branch in each of its tables.
        created_ms: When it was created.
        pinned_ms: When what it reads of main was pinned.
        used_ms: When a run last used it.
        pins: What it reads of tables that it has not written to.
        tables: The tables that it has written to.
        closed: Whether it is being published, or its publication did not end: nothing is written to it.
    """

    name: str
    created_ms: int
    pinned_ms: int
    used_ms: int
    pins: Mapping[TableIdentifier, Pin] = field(default_factory=dict)
    tables: Mapping[TableIdentifier, BranchedTable] = field(default_factory=dict)
    closed: bool = False

    @property
    def pinned_at(self) -> datetime:
        return datetime.fromtimestamp(self.pinned_ms / 1000, timezone.utc)

    def has(self, table: Table) -> bool:
        """Has the branch written to this table, or begun to?"""
        return is_branch(table, self.name)

    def start_of(self, table: Table, identifier: TableIdentifier) -> int | None:
        """The snapshot at which the branch begins in a table: the one that it reads of main."""
        return self._pin(table, identifier).snapshot_id

    def view(self, table: Table, identifier: TableIdentifier) -> Table:
        """The table as the branch shows it: its own rows, or those of main when the branch was pinned.

        The result is for reading: a commit to it is refused by the catalog.
        """
        if self.has(table):
            return _with_head(table, table.snapshot_by_name(self.name))
        pin = self._pin(table, identifier)
        if pin.snapshot_id is None:
            return _with_head(table, None)
        snapshot = table.snapshot_by_id(pin.snapshot_id)
        if snapshot is None:
            raise TableNotFoundError(
                f"branch {self.name!r} reads '{identifier}' as it was on {self.pinned_at:%Y-%m-%d %H:%M:%S} UTC "
                f"(snapshot {pin.snapshot_id}), which has expired. To read main as it is now: "
                f"floe branches update {self.name}"
            )
        return _with_head(table, snapshot)

    def pin_of(self, table: Table, identifier: TableIdentifier) -> Pin | None:
        """What the branch reads of main, or None; a table that was renamed since is found by its identity."""
        found, pin = table.metadata.table_uuid, self.pins.get(identifier)
        if pin is None or pin.table_uuid != found:
            pin = next((one for one in self.pins.values() if one.table_uuid == found), None)
        return pin

    def _pin(self, table: Table, identifier: TableIdentifier) -> Pin:
        pin = self.pin_of(table, identifier)
        if pin is not None:
            return pin
        mark = unpublished_by(table.properties)
        if mark is not None and lake_branch_of(mark) != self.name:
            raise TableNotFoundError(
                f"'{identifier}' is not published yet, and branch {self.name!r} has no rows of it: publish or discard "
                f"what created it ({lake_branch_of(mark) or mark}) first"
            )
        raise TableNotFoundError(
            f"'{identifier}' was created on main after branch {self.name!r} was pinned "
            f"({self.pinned_at:%Y-%m-%d %H:%M:%S} UTC). To read main as it is now: floe branches update {self.name}"
        )


def refuse_on_branch(branch: LakeBranch | None, action: str) -> None:
    """Refuse what would change main for all readers, or the table as a whole, if the lake is open at a branch."""
    if branch is not None:
        raise ConfigurationError(
            f"this lake is open at branch {branch.name!r}, and to {action} would change main; do it without a branch. "
            f"Nothing was changed"
        )


def _with_head(table: Table, head: Snapshot | None) -> Table:
    """The table with another head of main and the columns that it was written with, for reading."""
    refs = {name: ref for name, ref in table.metadata.refs.items() if name != MAIN_BRANCH}
    if head is not None:
        refs[MAIN_BRANCH] = SnapshotRef(
            snapshot_id=head.snapshot_id,
            snapshot_ref_type=SnapshotRefType.BRANCH,
            min_snapshots_to_keep=None,
            max_snapshot_age_ms=None,
            max_ref_age_ms=None,
        )
    changed: dict[str, object] = {"current_snapshot_id": None if head is None else head.snapshot_id, "refs": refs}
    changed["properties"] = {key: value for key, value in table.properties.items() if key != UNPUBLISHED}
    if head is not None and head.schema_id is not None:
        changed["current_schema_id"] = head.schema_id
    metadata = table.metadata.model_copy(update=changed)
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
