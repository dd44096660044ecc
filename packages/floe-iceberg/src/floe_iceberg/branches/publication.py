"""Publish a branch of the lake: main of all its tables moves in one commit, on top of what others have committed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.observability import operation
from floe_iceberg.backoff import ATTEMPTS, delay
from floe_iceberg.branches.removal import leave_unchanged
from floe_iceberg.branches.status import BranchStatus, TableState, status_of, tables_of
from floe_iceberg.catalogs import BranchRecords
from floe_iceberg.snapshots import (
    ASSET,
    MOVED_FROM,
    PARTITION,
    RUN_ID,
    WRITE_ID,
    LakeBranch,
    StagingBranch,
    ancestors_of,
    summary_of,
)
from floe_iceberg.transactions import REPLAYED, HeadMove, MoveState, load_each, publish

__all__ = ["BranchPublication", "PublishedTable", "PublishedWrite", "publish_branch", "unfinished"]

_NAMED = 20


@dataclass(frozen=True)
class PublishedWrite:
    """A commit of the branch that is in main now.

    Attributes:
        asset: The asset that wrote it; empty for a write of another program, and for rows moved to a quarantine table.
        partitions: Its partitions; empty if it has none.
        run_id: The run that wrote it on the branch.
        write_id: Its identity.
        snapshot_id: Its snapshot in main.
        code_version: The version of the code that computed it.
    """

    asset: str
    partitions: str
    run_id: str
    write_id: str
    snapshot_id: int
    code_version: str = ""


@dataclass(frozen=True)
class PublishedTable:
    """A table that was published.

    Attributes:
        table: Its name.
        snapshot_id: The head of main.
        created: Whether the branch created it.
        replayed: Whether main had moved in other rows, so that the commits were put on top of that.
        writes: The commits, oldest first.
    """

    table: str
    snapshot_id: int
    created: bool
    replayed: bool
    writes: tuple[PublishedWrite, ...]


@dataclass(frozen=True)
class BranchPublication:
    """What a publication did.

    Attributes:
        branch: The branch.
        tables: The tables, by name.
    """

    branch: str
    tables: tuple[PublishedTable, ...]


class Tables(Protocol):
    """The part of a manager that publishes."""

    def replay_branch(self, identifier: TableIdentifier, branch: str) -> Table: ...

    def remove_branch(self, identifier: TableIdentifier, branch: str) -> int: ...

    def abandon_branch(self, identifier: TableIdentifier, staging: StagingBranch, *, at: int | None = None) -> bool: ...

    def moves_of(self, tables: Mapping[TableIdentifier, Table], branch: str) -> list[HeadMove]: ...


def publish_branch(
    tables: Tables, catalog: Catalog, records: BranchRecords, branch: LakeBranch, *, one_by_one: bool
) -> BranchPublication:
    """Move main of all tables of the branch in one commit; the record of the branch stays.

    Args:
        tables: The manager of the tables.
        catalog: Its catalog.
        records: The branches.
        branch: The branch.
        one_by_one: On a catalog server that cannot commit several tables at once, commit them one after the other.
    """
    with operation("iceberg.publish_branch", branch=branch.name) as op:
        for number in itertools.count(1):
            branch = records.find(branch.name) or branch
            status = _checked(branch, tables_of(catalog, branch))
            written = [one for one in status.tables if one.state is not TableState.UNCHANGED]
            for one in written:
                if one.state is TableState.BEHIND:
                    tables.replay_branch(TableIdentifier.from_string(one.table), branch.name)
            names = [TableIdentifier.from_string(one.table) for one in written]
            present = {name: table for name, table in load_each(catalog, names).items() if table is not None}
            try:
                moves = tables.moves_of(present, branch.name)
                records.begin_publication(branch.name, [move.to_json() for move in moves])
                now = records.find(branch.name)
                if now is not None and now.tables != branch.tables:
                    continue  # a run has begun in another table before the branch was closed
                leave_unchanged(tables, records, branch, status)
                published = publish(catalog, moves, one_by_one=one_by_one, known=present)
                break
            except ConcurrencyConflictError:
                if number >= ATTEMPTS:
                    raise
                time.sleep(delay(number))  # main has moved again: in other rows, or the next attempt names the table
        op.set(tables=len(moves))
        return BranchPublication(branch.name, tuple(_published(move, published[move.identifier]) for move in moves))


def unfinished(catalog: Catalog, records: BranchRecords, name: str) -> BranchPublication | None:
    """What a process that ended has published of the branch without removing it; None if nothing."""
    moves = [HeadMove.from_json(move) for move in records.publication(name)]
    found = load_each(catalog, [move.identifier for move in moves])
    states = {move.identifier: move.state(found[move.identifier]) for move in moves}
    if not moves or any(state is not MoveState.APPLIED for state in states.values()):
        return None
    present = {identifier: table for identifier, table in found.items() if table is not None}
    return BranchPublication(name, tuple(_published(move, present[move.identifier]) for move in moves))


def _checked(branch: LakeBranch, loaded: Mapping[TableIdentifier, Table | None]) -> BranchStatus:
    """The state of the branch; refused if anything stands against its publication."""
    status = status_of(branch, loaded, timedelta())
    if status.problems:
        more = f" and {len(status.problems) - _NAMED} more" if len(status.problems) > _NAMED else ""
        raise ConcurrencyConflictError(
            f"branch {branch.name!r} cannot be published: {'; '.join(status.problems[:_NAMED])}{more}. Nothing was "
            f"published: take in what main has now with floe branches update {branch.name} --restart, which begins "
            f"these tables again, and run their assets on the branch once more"
        )
    if not any(one.state is not TableState.UNCHANGED for one in status.tables):
        raise ConfigurationError(
            f"branch {branch.name!r} has no commit to publish; write to it with floe run --branch {branch.name}, or "
            f"remove it with floe branches discard {branch.name}"
        )
    return status


def _published(move: HeadMove, table: Table) -> PublishedTable:
    own = list(_between(table, move.start, move.head))[::-1]
    return PublishedTable(
        table=str(move.identifier),
        snapshot_id=move.head,
        created=move.unpublished is not None,
        replayed=any(REPLAYED in summary_of(snapshot) for snapshot in own),
        writes=tuple(_write(snapshot) for snapshot in own),
    )


def _between(table: Table, start: int | None, head: int) -> Iterator[Snapshot]:
    """The snapshots after `start` up to `head`, newest first."""
    for snapshot in ancestors_of(table.snapshot_by_id(head), table.metadata):
        if snapshot.snapshot_id == start:
            return
        yield snapshot


def _write(snapshot: Snapshot) -> PublishedWrite:
    summary = summary_of(snapshot)
    return PublishedWrite(
        asset="" if MOVED_FROM in summary else summary.get(ASSET, ""),
        partitions=summary.get(PARTITION, ""),
        run_id=summary.get(RUN_ID, ""),
        write_id=summary.get(WRITE_ID, ""),
        snapshot_id=snapshot.snapshot_id,
        code_version=summary.get("floe.code-version", ""),
    )
