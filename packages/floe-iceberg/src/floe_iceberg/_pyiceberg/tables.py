"""The table of a transaction, and the schema that an update would leave."""

from __future__ import annotations

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.schema import UpdateSchema

from floe_core.engines import require_members
from floe_iceberg.snapshots.timestamps import stamped

__all__ = ["SingleAttemptTransaction", "metadata_of", "resulting_schema", "stage_updates", "table_of"]

_RETENTION = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")
_COMMITS = "a commit is sent once, and Floe resolves its outcome"
_CHANGES = "schema changes that Spark could not read are refused before they are committed"
require_members("pyiceberg", Transaction, "_stage", "_table", "_updates", "_requirements", promise=_COMMITS)
require_members("pyiceberg", Table, "_do_commit", promise=_COMMITS)
require_members("pyiceberg", UpdateSchema, "_apply", "_transaction", promise=_CHANGES)


def table_of(transaction: Transaction) -> Table:
    """The table that a transaction changes; after the commit, the committed table."""
    return transaction._table


def stage_updates(
    transaction: Transaction, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]
) -> None:
    """Add updates and requirements to a transaction. PyIceberg ignores a type of requirement that was added before."""
    transaction._stage(updates, requirements)


def metadata_of(update: UpdateSchema) -> TableMetadata:
    """The table metadata with the staged changes of the update's transaction."""
    return update._transaction.table_metadata


def resulting_schema(update: UpdateSchema) -> Schema:
    """The schema that committing the update would set."""
    return update._apply()


def _with_retention(update: TableUpdate, base: TableMetadata) -> TableUpdate:
    """Moving a branch keeps its retention, which PyIceberg's snapshot producers reset."""
    ref = base.refs.get(update.ref_name) if isinstance(update, SetSnapshotRefUpdate) else None
    if ref is None:
        return update
    return update.model_copy(update={name: getattr(update, name) or getattr(ref, name) for name in _RETENTION})


class SingleAttemptTransaction(Transaction):
    """A transaction that is sent once: the caller decides about retries and clean-up."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._computed: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The resulting metadata, cached: PyIceberg reads it a dozen times per commit, copying every snapshot."""
        if (
            self._computed is None
            or self._computed[0] is not self._table.metadata
            or self._computed[1] is not self._updates
        ):
            self._computed = (self._table.metadata, self._updates, super().table_metadata)
        return self._computed[2]

    def commit_transaction(self) -> Table:
        base = self._table.metadata
        # Files are staged for the schema and the partition spec of the base: another writer may change both without a
        # snapshot, so that the asserted head is unchanged.
        own: tuple[TableRequirement, ...] = (
            AssertTableUUID(uuid=base.table_uuid),
            AssertCurrentSchemaId(current_schema_id=base.current_schema_id),
            AssertDefaultSpecId(default_spec_id=base.default_spec_id),
        )
        staged = {type(requirement) for requirement in self._requirements}
        requirements = (*self._requirements, *(requirement for requirement in own if type(requirement) not in staged))
        try:
            # The timestamp is set here, independent of the catalog.
            updates = tuple(_with_retention(update, base) for update in stamped(self._updates, base))
            self._table._do_commit(updates=updates, requirements=requirements)
        except ValueError as exc:
            # A concurrent commit to another branch: the asserted head is unchanged, but the sequence number is taken.
            if "sequence number" in str(exc):
                raise CommitFailedException(str(exc)) from exc
            raise
        return self._table
