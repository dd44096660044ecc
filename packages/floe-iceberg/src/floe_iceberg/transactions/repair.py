"""Complete a publication of which the tables show a part, one table at a time, or take the part back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
)
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId
from sqlalchemy.exc import DBAPIError

from floe_core.errors import CommitStateUnknownError, ConcurrencyConflictError, FloeStorageError
from floe_core.formatting import counted
from floe_core.identifiers import TableIdentifier
from floe_core.observability import warn
from floe_iceberg.backoff import DOUBTFUL_ATTEMPTS, retrying
from floe_iceberg.catalogs import TableChange
from floe_iceberg.snapshots import refs
from floe_iceberg.transactions.loading import load_each
from floe_iceberg.transactions.moves import HeadAssertion, HeadMove, State, head_of

__all__ = ["DOUBTFUL", "PublicationTables", "repair"]

# After these, the outcome of a commit is unknown.
DOUBTFUL = (CommitStateUnknownException, ServerError, ServiceUnavailableError, DBAPIError, OSError)
# How many tables an error names.
_NAMED = 20

Seen = Mapping[TableIdentifier, Table | None]


@dataclass(frozen=True)
class PublicationTables:
    """The tables that a publication moves, and what they show of it when loaded."""

    catalog: Catalog
    moves: tuple[HeadMove, ...]
    guard: str | None = None  # the tag that keeps late requests out of a publication that was taken back

    def load(self, reads: Sequence[HeadAssertion] = ()) -> dict[TableIdentifier, Table | None]:
        """The tables as they are now, and those that were read."""
        moved = [move.identifier for move in self.moves]
        return load_each(self.catalog, [*moved, *(read.identifier for read in reads)])

    def inspected(
        self, failure: Exception | None, reads: Sequence[HeadAssertion] = ()
    ) -> dict[TableIdentifier, Table | None]:
        """The tables after a commit was sent; if they cannot be loaded, the outcome is unknown."""
        try:
            return retrying(DOUBTFUL_ATTEMPTS, lambda exc: isinstance(exc, Exception))(self.load, reads)
        except Exception as exc:  # noqa: BLE001 - on any error the outcome is unknown
            raise CommitStateUnknownError(
                f"whether {self.names()} were published is unknown: the catalog does not answer now. Nothing was "
                f"deleted. When it answers again, run it again: what was begun is finished first"
            ) from (failure or exc)

    def those(self, seen: Seen, state: State) -> list[HeadMove]:
        """The moves in this state."""
        return [move for move in self.moves if move.state(seen[move.identifier]) is state]

    def is_published(self, seen: Seen) -> bool:
        """Are all moves applied?"""
        return len(self.those(seen, State.APPLIED)) == len(self.moves)

    def present(self, seen: Seen) -> dict[TableIdentifier, Table]:
        """The tables of a publication that is complete."""
        return {move.identifier: table for move in self.moves if (table := seen[move.identifier]) is not None}

    def problems(self, seen: Seen) -> str:
        """Why each table that cannot be published is refused; empty if there is none."""
        refused = self.those(seen, State.REFUSED)
        listed = [f"'{move.identifier}': {move.problem(seen[move.identifier])}" for move in refused]
        return _limited(listed, "; ")

    def names(self, moves: Sequence[HeadMove] | None = None) -> str:
        """The tables by name."""
        return _limited([f"'{move.identifier}'" for move in (self.moves if moves is None else moves)], ", ")


def repair(tables: PublicationTables, seen: Seen, *, reason: str) -> dict[TableIdentifier, Table]:
    """Commit the moves that are missing; if that is not possible, take back those that are applied.

    Args:
        seen: The tables as loaded.
        reason: Why a part of the publication is, or will be, visible before the rest.
    """
    applied = tables.those(seen, State.APPLIED)
    missing = [move for move in tables.moves if move not in applied]
    if applied:
        warn(
            f"{counted(len(applied), 'table')} of {len(tables.moves)} were published before the others: {reason}",
            published=tables.names(applied),
            missing=tables.names(missing),
        )
    failure: Exception | None = None
    if not tables.those(seen, State.REFUSED):
        for move in missing:
            failure = _commit(tables, move, partial(move.change, guard=tables.guard), State.APPLIED)
            if failure is not None:
                break
    seen = tables.inspected(failure)
    if tables.is_published(seen):
        return tables.present(seen)
    problems = tables.problems(seen) or f"{failure or 'the catalog did not answer'}"
    applied = tables.those(seen, State.APPLIED)
    if not _guarded(tables, [move for move in tables.moves if move not in applied], seen):
        raise _doubt(tables, applied, failure)  # a late request could still publish one of them alone
    for move in applied:
        _take_back(tables, move)
    seen = tables.inspected(failure)
    still = tables.those(seen, State.APPLIED)
    if any(_is_at(seen, move) for move in still):
        raise _doubt(tables, still, failure)
    if still:
        left = [move for move in tables.moves if move not in still]
        raise FloeStorageError(
            f"the publication is incomplete: {tables.names(still)} are published, and {tables.names(left)} are not, "
            f"because {problems}; the published ones have newer commits, which taking them back would lose. Compare "
            f"the tables, and undo what does not fit"
        ) from failure
    visible = f" {tables.names(applied)} were visible for a moment and were taken back: {reason}." if applied else ""
    raise ConcurrencyConflictError(f"nothing is published: {problems}.{visible} Run it again") from failure


def _is_at(seen: Seen, move: HeadMove) -> bool:
    """Is main where the move left it, without newer commits?"""
    table = seen[move.identifier]
    return table is not None and head_of(table.metadata) == move.head


def _doubt(
    tables: PublicationTables, applied: Sequence[HeadMove], failure: Exception | None
) -> CommitStateUnknownError:
    """The error for a part that can be neither completed nor taken back now; its journal entry stays."""
    error = CommitStateUnknownError(
        f"the publication of {tables.names()} is incomplete: {tables.names(applied) or 'none of them'} are published, "
        f"and the catalog does not let the rest be committed, or these be taken back, now ({failure}). The next "
        f"publication finishes it, from any process: run it again when the catalog answers"
    )
    error.__cause__ = failure
    return error


def _guarded(tables: PublicationTables, moves: Sequence[HeadMove], seen: Seen) -> bool:
    """Tag the tables in which nothing was published, so that late requests of the publication are refused there too."""
    guard = tables.guard
    if guard is None:
        return True

    def change(table: Table) -> TableChange:
        marked = head_of(table.metadata) or next(iter(table.metadata.refs.values())).snapshot_id
        absent = AssertRefSnapshotId(ref=guard, snapshot_id=None)
        return TableChange(table, (absent,), (refs.tagged(table, guard, marked, age_ms=refs.GUARD_MS),))

    for move in moves:
        table = seen[move.identifier]
        if table is None or table.metadata.table_uuid != move.table_uuid or not table.metadata.refs:
            continue

        def attempt(move: HeadMove = move) -> None:
            now = load_each(tables.catalog, [move.identifier])[move.identifier]
            if now is None or now.metadata.table_uuid != move.table_uuid or guard in now.metadata.refs:
                return
            made = change(now)
            tables.catalog.commit_table(now, made.requirements, made.updates)

        try:
            retrying(DOUBTFUL_ATTEMPTS, lambda exc: isinstance(exc, (CommitFailedException, *DOUBTFUL)))(attempt)
        except Exception:  # noqa: BLE001 - whatever it is, the table has no guard
            return False
    return True


def _take_back(tables: PublicationTables, move: HeadMove) -> None:
    if tables.guard is not None:
        _commit(tables, move, partial(move.reversal, guard=tables.guard), State.PENDING)


def _commit(
    tables: PublicationTables, move: HeadMove, change: Callable[[Table], TableChange], until: State
) -> Exception | None:
    """Commit the change of one table, until the table shows it or shows that it cannot be applied."""

    def attempt() -> None:
        table = load_each(tables.catalog, [move.identifier])[move.identifier]
        if table is None or move.state(table) in (until, State.REFUSED):
            return
        if until is State.PENDING and head_of(table.metadata) != move.head:
            return  # other commits are on top of it
        made = change(table)
        tables.catalog.commit_table(table, made.requirements, made.updates)

    try:
        retrying(DOUBTFUL_ATTEMPTS, lambda exc: isinstance(exc, (CommitFailedException, *DOUBTFUL)))(attempt)
    except Exception as exc:  # noqa: BLE001 - what the tables show decides
        return exc
    return None


def _limited(items: Sequence[str], separator: str) -> str:
    more = f"{separator}and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return separator.join(items[:_NAMED]) + more
