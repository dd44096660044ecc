"""Staging branches of tables: opened at a snapshot of main, and abandoned with the tables that only they know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from pyiceberg.schema import Schema
from pyiceberg.table import CreateTableTransaction, Table
from pyiceberg.table.refs import MAIN_BRANCH

from floe_core.errors import CommitStateUnknownError, ConcurrencyConflictError, TableAlreadyExistsError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform
from floe_core.observability import operation
from floe_iceberg import backoff
from floe_iceberg._pyiceberg.tables import SingleAttemptTransaction
from floe_iceberg.errors import translated
from floe_iceberg.snapshots import PIN_PREFIX, UNPUBLISHED, StagingBranch, now_ms, refs, summary_of, unpublished_by

__all__ = ["CREATED_FOR", "NewTable", "abandon", "is_only_of", "open_branch"]

# In the summary of the empty snapshot of a table: the mark of the run or the branch that created it.
CREATED_FOR = "floe.created-for-run"
# The longest age that Iceberg can store.
_LONGEST = timedelta(milliseconds=refs.FOREVER_MS // 10**6)


@dataclass(frozen=True)
class NewTable:
    """What a table is created with, if it does not exist.

    Args:
        schema: The columns.
        partition_by: The partitioning.
        properties: The properties.
    """

    schema: Schema
    partition_by: Sequence[PartitionTransform] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


class Tables(Protocol):
    """The part of an IcebergTableManager that opens and abandons branches."""

    def find_table(self, identifier: TableIdentifier) -> Table | None: ...

    def begin_table(
        self,
        identifier: TableIdentifier,
        schema: Schema,
        *,
        partition_by: Sequence[PartitionTransform],
        properties: Mapping[str, str],
    ) -> CreateTableTransaction: ...

    def create_branch(
        self, identifier: TableIdentifier, branch: str, *, snapshot_id: int | None, max_ref_age: timedelta | None
    ) -> None: ...

    def remove_branch(self, identifier: TableIdentifier, branch: str) -> int: ...

    def drop_table(self, identifier: TableIdentifier, *, purge: bool, expected_metadata: str) -> object: ...


def open_branch(
    tables: Tables, identifier: TableIdentifier, staging: StagingBranch, new: NewTable, *, max_age: timedelta | None
) -> Table:
    """The table with a staging branch; a table that does not exist is created.

    A new table has one empty snapshot and is marked as unpublished: Floe treats it as absent.
    """

    def attempt() -> Table:
        table = tables.find_table(identifier)
        if table is None:
            table = _create(tables, identifier, staging, new)
        if table.current_snapshot() is None:
            table = _begin_history(table, identifier)
        if staging.name not in table.metadata.refs:
            age = _age_from_now(table, staging.start, max_age)
            tables.create_branch(identifier, staging.name, snapshot_id=staging.start, max_ref_age=age)
            table = tables.find_table(identifier) or table
        return table

    with operation("iceberg.open_branch", table=str(identifier), branch=staging.name):
        # Two steps of a run, or two runs, may create a table or a branch at the same time: look again.
        retried = (ConcurrencyConflictError, TableAlreadyExistsError, CommitStateUnknownError)
        return backoff.retrying(backoff.DOUBTFUL_ATTEMPTS, lambda exc: isinstance(exc, retried))(attempt)


def _age_from_now(table: Table, start: int | None, age: timedelta | None) -> timedelta | None:
    """The age that Iceberg is told: it counts from the time of the snapshot at which the branch begins."""
    head = table.current_snapshot() if start is None else table.snapshot_by_id(start)
    if age is None or head is None:
        return age
    return min(age + timedelta(milliseconds=max(0, now_ms() - head.timestamp_ms)), _LONGEST)


def _create(tables: Tables, identifier: TableIdentifier, staging: StagingBranch, new: NewTable) -> Table:
    properties = {**new.properties, UNPUBLISHED: staging.mark}
    with translated("create_table", identifier):
        transaction = tables.begin_table(identifier, new.schema, partition_by=new.partition_by, properties=properties)
        with transaction.update_snapshot(snapshot_properties={CREATED_FOR: staging.mark}).fast_append():
            pass
        return transaction.commit_transaction()


def _begin_history(table: Table, identifier: TableIdentifier) -> Table:
    """Give a table without a snapshot an empty one: a branch begins at a snapshot."""
    with translated("create_branch", identifier):
        transaction = SingleAttemptTransaction(table)
        with transaction.update_snapshot().fast_append():
            pass
        return transaction.commit_transaction()


def abandon(tables: Tables, identifier: TableIdentifier, staging: StagingBranch, *, at: int | None = None) -> bool:
    """Remove a staging branch; drop the table if it was created for it and nobody else has touched it.

    Returns whether there was anything to remove.

    Args:
        tables: The manager of the table.
        identifier: The table.
        staging: The branch.
        at: The snapshot that the branch must be at; a conflict if another process has written to it. By default any.
    """
    table = tables.find_table(identifier)
    if table is None:
        return False
    ref = table.metadata.refs.get(staging.name)
    if at is not None and ref is not None and ref.snapshot_id != at:
        raise ConcurrencyConflictError(
            f"another process has written to branch {staging.name!r} of '{identifier}' in the meantime; the branch "
            f"stays as it is"
        )
    created = is_only_of(table, staging)
    with operation("iceberg.abandon_branch", table=str(identifier), branch=staging.name, dropped=created):
        if created:
            tables.drop_table(identifier, purge=True, expected_metadata=table.metadata_location)
        elif refs.is_branch(table, staging.name):
            if at is None:
                tables.remove_branch(identifier, staging.name)
            else:
                with translated("remove_branch", identifier):
                    refs.discard(table, staging.name, since=at)
        else:
            return False
    return True


def is_only_of(table: Table, staging: StagingBranch) -> bool:
    """Was the table created for the branch, and has nobody else written to it or pinned anything in it?"""
    head = table.current_snapshot()
    is_new = head is not None and head.parent_snapshot_id is None and summary_of(head).get(CREATED_FOR) == staging.mark
    return (
        is_new
        and unpublished_by(table.properties) == staging.mark
        and table.metadata.refs.keys() <= {MAIN_BRANCH, staging.name, f"{PIN_PREFIX}{staging.name}"}
    )
