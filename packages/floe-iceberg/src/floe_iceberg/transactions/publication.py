"""Publish the branches of several tables in one commit: all of them or none, whatever the catalog answers.

A publication is sent, and then every table is inspected: what the tables show decides, not the response. Each move
asserts the snapshots of main and of the branch, and removes the branch, so that a request that arrives twice or late
changes nothing. A catalog server may apply only a part of the commit: the rest is completed one table at a time, or
the part is taken back (`repair`). The journal in the catalog lets another process do that if this one ends.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TooManyRequestsError
from pyiceberg.table import Table

from floe_core.errors import (
    CatalogConnectionError,
    CommitStateUnknownError,
    ConcurrencyConflictError,
    ConfigurationError,
    FloeStorageError,
)
from floe_core.identifiers import TableIdentifier
from floe_core.observability import Operation, operation, warn
from floe_iceberg.backoff import ATTEMPTS, DOUBTFUL_ATTEMPTS, delay
from floe_iceberg.catalogs import MultiTableCatalog
from floe_iceberg.transactions.journal import Entry, Journal
from floe_iceberg.transactions.moves import HeadAssertion, HeadMove, State
from floe_iceberg.transactions.repair import DOUBTFUL, PublicationTables, repair

__all__ = ["Isolation", "publish", "recover", "refusal"]

Isolation = Literal["serializable", "snapshot"]

# How long the owner of a journal entry may work before another process finishes it; renewed before each attempt.
_SECONDS = 180
# How many tables an error names.
_NAMED = 20


def publish(
    catalog: Catalog,
    moves: Sequence[HeadMove],
    reads: Sequence[HeadAssertion] = (),
    *,
    isolation: Isolation = "serializable",
    one_by_one: bool = False,
    known: Mapping[TableIdentifier, Table] | None = None,
    clock: Callable[[], float] = time.time,
) -> dict[TableIdentifier, Table]:
    """Publish the branches of all tables in one commit; returns the tables as it left them.

    A publication that another process left incomplete is finished first.

    Args:
        catalog: The catalog of all tables.
        moves: The branches, at most one of each table.
        reads: The tables that the published rows were computed from. One that moved since it was read is refused.
        isolation: `snapshot` only reports the tables of `reads` that moved.
        one_by_one: On a catalog that cannot commit several tables at once, commit them one after the other: readers
            may see some of them before the others.
        known: The tables of `moves` as the caller has just loaded them.
        clock: Seconds since 1970.
    """
    if isolation not in ("serializable", "snapshot"):
        raise ConfigurationError(f"isolation is {isolation!r}; it must be serializable or snapshot")
    moved = [move.identifier for move in moves]
    twice = sorted({str(name) for name in moved if moved.count(name) > 1})
    if twice:
        raise ConfigurationError(f"a publication moves each table once; {', '.join(twice)} is given twice")
    others = tuple(dict.fromkeys(read for read in reads if read.identifier not in moved))
    skewed = _moved_since_read(moves, reads)
    with operation("iceberg.publish", tables=len(moves), reads=len(others)) as op:
        if not moves:
            return {}
        together = len(moves) + (len(others) if isolation == "serializable" else 0)
        problem = refusal(catalog) if together > 1 else None
        if problem is not None and not one_by_one:
            raise ConfigurationError(
                f"{problem}, so nothing was published. Use a catalog that does (type: sql, or a server such as Apache "
                f"Polaris); or publish one by one, so that readers may see some of the tables before the others"
            )
        if skewed:
            _refuse_or_warn(skewed, isolation)
        changed = recover(catalog, clock=clock)
        made = _Publication(catalog, PublicationTables(catalog, tuple(moves)), others, isolation, clock, op)
        return made.run(together=problem is None, known=None if changed or others else known)


def recover(catalog: Catalog, *, clock: Callable[[], float] = time.time) -> list[Entry]:
    """Finish the publications that other processes began and left: complete them, or take them back.

    Returns the entries that were ended. An entry whose owner may still be working, or whose request may still arrive,
    is left.
    """
    if isinstance(catalog, MultiTableCatalog) and catalog.is_atomic:
        return []
    journal, ended = Journal(catalog), []
    for entry in journal.entries():
        if not (entry.has_expired(clock()) or entry.has_lost_its_owner):
            continue
        with operation("iceberg.recover_publication", entry=entry.name, tables=len(entry.moves)):
            tables = PublicationTables(catalog, entry.moves, entry.guard)
            seen = tables.load()
            applied, pending = tables.those(seen, State.APPLIED), tables.those(seen, State.PENDING)
            if pending and not applied and not entry.has_expired(clock()):
                continue  # the request may still arrive
            if applied and len(applied) < len(entry.moves):
                try:
                    repair(tables, seen, reason="the process that published them ended")
                except CommitStateUnknownError:
                    continue  # the catalog does not answer: another process finishes it
                except FloeStorageError as exc:
                    warn("an incomplete publication was not completed", entry=entry.name, reason=str(exc))
            journal.end(entry)
            ended.append(entry)
    return ended


@dataclass
class _Publication:
    catalog: Catalog
    tables: PublicationTables
    reads: tuple[HeadAssertion, ...]
    isolation: Isolation
    clock: Callable[[], float]
    op: Operation
    journal: Journal | None = None
    entry: Entry | None = None

    def run(self, *, together: bool, known: Mapping[TableIdentifier, Table] | None) -> dict[TableIdentifier, Table]:
        seen = self._load() if known is None else dict[TableIdentifier, Table | None](known)
        if self.tables.is_published(seen):  # by an earlier attempt
            return self.tables.present(seen)
        self._refuse_changed(seen)
        if len(self.tables.moves) > 1 and not self._is_atomic:
            self.journal = Journal(self.catalog)
            self.entry = self.journal.begin(self.tables.moves, until_ms=self._until())
            self.tables = PublicationTables(self.catalog, self.tables.moves, self.entry.guard)
        try:
            done = self._commit(seen, together=together)
        except CommitStateUnknownError:
            raise  # the entry stays for another process
        except BaseException:
            self._end_entry()
            raise
        self._end_entry()
        self.op.event("committed")
        return done

    def _commit(self, seen: dict[TableIdentifier, Table | None], *, together: bool) -> dict[TableIdentifier, Table]:
        doubtful = 0
        for number in itertools.count(1):
            failure: Exception | None = None
            if together:
                failure = self._send(seen)
                if failure is None and self._is_atomic:
                    return self.tables.present(self.tables.load())
                seen = self.tables.inspected(failure, self.reads)
            if self.tables.is_published(seen):
                return self.tables.present(seen)
            if not together:
                return repair(self.tables, seen, reason="this catalog cannot commit them together")
            if self.tables.those(seen, State.APPLIED):
                return repair(self.tables, seen, reason="the catalog server did not commit them together")
            if failure is not None and not _may_pass(failure):
                raise failure
            self._refuse_changed(seen)
            doubtful += not isinstance(failure, CommitFailedException)
            if number >= ATTEMPTS or doubtful >= DOUBTFUL_ATTEMPTS:
                raise self._exhausted(failure) from failure
            self.op.event("retrying")
            time.sleep(delay(number))
            if self.journal is not None and self.entry is not None:
                self.entry = self.journal.renew(self.entry, until_ms=self._until())
            seen = self._load()
            self._refuse_changed(seen)
        raise AssertionError("the loop returns or raises")

    def _send(self, seen: dict[TableIdentifier, Table | None]) -> Exception | None:
        """Send the commit of all tables once; None if the catalog acknowledged it."""
        present = {name: table for name, table in seen.items() if table is not None}
        try:
            changes = [move.change(present[move.identifier], self.tables.guard) for move in self.tables.moves]
            if self.isolation == "serializable":
                changes += [read.change(present[read.identifier]) for read in self.reads]
            if isinstance(self.catalog, MultiTableCatalog) and len(changes) > 1:
                self.catalog.commit_tables(changes)
            else:
                only = changes[0]
                self.catalog.commit_table(only.table, only.requirements, only.updates)
        except Exception as exc:  # noqa: BLE001 - what the tables show decides
            return exc
        return None

    @property
    def _is_atomic(self) -> bool:
        return isinstance(self.catalog, MultiTableCatalog) and self.catalog.is_atomic

    def _load(self) -> dict[TableIdentifier, Table | None]:
        return self.tables.load(self.reads)

    def _refuse_changed(self, seen: dict[TableIdentifier, Table | None]) -> None:
        """Refuse to publish if a table is not as it was when its branch was written; all of them are named."""
        problems = self.tables.problems(seen)
        if problems:
            raise ConcurrencyConflictError(f"nothing was published: {problems}. Run it again")
        read = [(read.identifier, read.problem(seen[read.identifier])) for read in self.reads]
        changed = [f"'{name}': {problem}" for name, problem in read if problem is not None]
        if changed:
            _refuse_or_warn(changed, self.isolation)

    def _exhausted(self, failure: Exception | None) -> FloeStorageError:
        names = self.tables.names()
        if isinstance(failure, CommitFailedException):
            return ConcurrencyConflictError(
                f"other writers changed {names} faster than this publication could commit; nothing was published: run "
                f"it again"
            )
        if failure is None:
            return FloeStorageError(
                f"the catalog server acknowledged the publication of {names} {DOUBTFUL_ATTEMPTS} times and applied "
                f"none of it; nothing is published. Check the server"
            )
        return CommitStateUnknownError(
            f"the catalog did not answer; {names} are not published now, and may still be. Nothing was deleted. Wait a "
            f"few minutes, then run it again: what was begun is finished first"
        )

    def _until(self) -> int:
        return int((self.clock() + _SECONDS) * 1000)

    def _end_entry(self) -> None:
        """Remove the entry. If that fails, another process finds that there is nothing left to do."""
        if self.journal is None or self.entry is None:
            return
        try:
            self.journal.end(self.entry)
        except Exception as exc:  # noqa: BLE001 - the caller must see the result of the publication, or its error
            warn(
                "the journal entry of a publication was not removed; it expires", entry=self.entry.name, reason=str(exc)
            )


def refusal(catalog: Catalog) -> str | None:
    """Why the catalog cannot commit several tables at once; None if it can."""
    if isinstance(catalog, MultiTableCatalog):
        return catalog.refuses_many_tables
    return f"{type(catalog).__name__} cannot commit several tables at once"


def _moved_since_read(moves: Sequence[HeadMove], reads: Sequence[HeadAssertion]) -> list[str]:
    """The published tables that were read at another snapshot than the one at which their branch began."""
    starts = {move.identifier: move.start for move in moves}
    return [
        f"'{read.identifier}': it was read at snapshot {read.snapshot_id}, and its branch began at snapshot "
        f"{starts[read.identifier]}"
        for read in dict.fromkeys(reads)
        if read.identifier in starts and starts[read.identifier] != read.snapshot_id
    ]


def _refuse_or_warn(changed: Sequence[str], isolation: Isolation) -> None:
    """Refuse rows that were computed from tables that have changed; with `snapshot` isolation, report them."""
    listed = "; ".join(changed[:_NAMED])
    if isolation == "serializable":
        raise ConcurrencyConflictError(
            f"nothing was published, because the rows were computed from tables that have changed: {listed}. Run it "
            f"again; or set isolation to snapshot to publish what was computed from the earlier state"
        )
    warn("published from tables that have changed since they were read", tables=listed)


def _may_pass(failure: Exception) -> bool:
    return isinstance(failure, (CommitFailedException, TooManyRequestsError, CatalogConnectionError, *DOUBTFUL))
