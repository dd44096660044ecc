"""Questions to a manager about its tables. They read metadata and manifests, and need no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from floe_core.errors import NamespaceNotFoundError, PermissionDeniedError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.models import SnapshotInfo
from floe_core.notebooks import Listing
from floe_core.observability import operation, warn
from floe_iceberg.arguments import NamespaceName, TableName, check_limit, identifier_of, namespace_of
from floe_iceberg.errors import translated
from floe_iceberg.inspection.comparison import SnapshotDiff, compare
from floe_iceberg.inspection.description import TableDescription, TableSummary, describe, summarize
from floe_iceberg.inspection.files import FileListing, Partition, list_files, list_partitions
from floe_iceberg.inspection.history import Commit, history
from floe_iceberg.inspection.listing import summarize_each
from floe_iceberg.inspection.names import similar
from floe_iceberg.inspection.rollback import RollbackPlan, plan_rollback
from floe_iceberg.snapshots.lake_branches import LakeBranch
from floe_iceberg.snapshots.refs import Revision, find_snapshot
from floe_iceberg.snapshots.run_branches import refuse_unpublished
from floe_iceberg.snapshots.snapshots import snapshot_info

__all__ = ["TableInspection"]


class TableInspection(Protocol):
    """What a manager tells about its tables. A snapshot is given by its id, by a tag or branch, or by a time."""

    at_branch: LakeBranch | None = None

    def find_table(self, identifier: TableName) -> Table | None:
        """Load the current state of a table, or return None if it does not exist."""

    def list_tables(self, namespace: NamespaceName) -> list[TableIdentifier]:
        """List the tables of a namespace."""

    def list_namespaces(self, parent: NamespaceName | None = None, *, recursive: bool = False) -> list[Namespace]:
        """List the namespaces in a namespace."""

    def find_tables(self, namespace: NamespaceName | None = None) -> list[TableIdentifier]:
        """List the tables of a namespace and of those below it, without loading them.

        Args:
            namespace: The namespace. By default all tables of the catalog.

        Example:
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
            >>> [str(table) for table in tables.find_tables()]
            ['bronze.orders']
        """
        within = [] if namespace is None else [namespace_of(namespace)]
        tables = [table for one in within for table in self.list_tables(one)]
        for below in self.list_namespaces(within[0] if within else None, recursive=True):
            tables += self._listed(below)
        return sorted(tables, key=str)

    def _listed(self, namespace: Namespace) -> list[TableIdentifier]:
        try:
            return self.list_tables(namespace)
        except NamespaceNotFoundError:  # dropped since it was listed
            return []
        except PermissionDeniedError as exc:
            warn(f"the tables of namespace '{namespace}' are left out: this user may not list them", reason=str(exc))
            return []

    def similar_tables(self, name: str) -> list[str]:
        """The names of existing tables that a mistyped one may have meant, best first.

        Args:
            name: The name as it was typed, with or without a namespace.

        Example:
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
            >>> tables.similar_tables("bronze.ordres")
            ['bronze.orders']
        """
        return similar(name, [str(table) for table in self.find_tables()])

    def summarize(self, identifier: TableName) -> TableSummary:
        """The rows, files and size of a table by its metadata.

        Args:
            identifier: The table.

        Example:
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
            >>> tables.summarize("bronze.orders").rows
            2
        """
        with self._inspected("summarize", identifier) as (table, name):
            refuse_unpublished(table, name)
            return summarize(table)

    def summarize_tables(self, namespace: NamespaceName | None = None) -> Listing[TableSummary]:
        """The rows, files and size of the tables of a namespace and of those below it.

        A table whose metadata cannot be read is left out, with a warning.

        Args:
            namespace: The namespace. By default all tables of the catalog.

        Example:
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
            >>> [(table.table, table.rows) for table in tables.summarize_tables()]
            [('bronze.orders', 2)]
        """
        summaries, failures = summarize_each(self.summarize, self.find_tables(namespace))
        for name, reason in failures.items():
            warn(f"table '{name}' is left out: its metadata cannot be read", reason=reason)
        return Listing(summaries)

    def describe(self, identifier: TableName) -> TableDescription:
        """The schema, partitioning, sort order, properties, location, refs and size of a table by its metadata.

        Args:
            identifier: The table.

        Example:
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
            >>> [(column.name, column.type) for column in tables.describe("bronze.orders").columns]
            [('id', 'long')]
        """
        with self._inspected("describe", identifier) as (table, _identifier):
            return describe(table)

    def history(self, identifier: TableName) -> Listing[Commit]:
        """The snapshots of a table, newest first: time, operation, counts, and who wrote it.

        Args:
            identifier: The table.

        Example:
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
            >>> [(commit.operation, commit.rows_added) for commit in tables.history("bronze.orders")]
            [('append', 2)]
        """
        with self._inspected("history", identifier) as (table, _identifier):
            return Listing(history(table))

    def list_files(
        self, identifier: TableName, *, snapshot: Revision | None = None, limit: int | None = None
    ) -> FileListing:
        """The data and delete files of a snapshot, and how many there are.

        Args:
            identifier: The table.
            snapshot: The snapshot. By default the head.
            limit: The maximum number of files. By default all.

        Example:
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
            >>> [(file.content, file.rows) for file in tables.list_files("bronze.orders").files]
            [('data', 2)]
        """
        check_limit(limit)
        with self._inspected("list_files", identifier) as (table, name):
            return list_files(table, self._chosen(table, name, snapshot), limit)

    def list_partitions(self, identifier: TableName, *, snapshot: Revision | None = None) -> Listing[Partition]:
        """The partitions of a snapshot: rows, files, size, and when the newest file was added.

        Args:
            identifier: The table.
            snapshot: The snapshot. By default the head.

        Example:
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
            >>> [(partition.partition, partition.rows) for partition in tables.list_partitions("bronze.orders")]
            [({}, 2)]
        """
        with self._inspected("list_partitions", identifier) as (table, name):
            return Listing(list_partitions(table, self._chosen(table, name, snapshot)))

    def compare_snapshots(self, identifier: TableName, start: Revision, end: Revision | None = None) -> SnapshotDiff:
        """How two snapshots differ: columns, and the files that only one of them has, by partition.

        Rows are not compared: those of a rewritten file count as removed and added.

        Args:
            identifier: The table.
            start: The snapshot to compare with.
            end: The snapshot that is compared. By default the head, with the current schema.

        Example:
            >>> first = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [3]}), mode="append")
            >>> diff = tables.compare_snapshots("bronze.orders", first.snapshot_id)
            >>> [(change.rows_added, change.files_removed) for change in diff.partitions]
            [(1, 0)]
        """
        with self._inspected("compare_snapshots", identifier) as (table, name):
            before = self._found(table, name, start)
            after = self._found(table, name, end)
            return compare(table, before, after, end_is_now=end is None)

    def find_snapshot(self, identifier: TableName, revision: Revision | None = None) -> SnapshotInfo:
        """Find a snapshot; an error lists what exists.

        Args:
            identifier: The table.
            revision: The id of the snapshot, a tag or branch, or a time with a time zone; also as text. By default the
                head.

        Example:
            >>> written = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
            >>> tables.find_snapshot("bronze.orders", "main") == written
            True
        """
        with self._inspected("find_snapshot", identifier) as (table, name):
            return snapshot_info(self._found(table, name, revision))

    def plan_rollback(self, identifier: TableName, to: Revision) -> RollbackPlan:
        """What a rollback would take from readers and consumers; nothing is changed.

        Args:
            identifier: The table.
            to: The snapshot that would become the head.

        Example:
            >>> first = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [3]}), mode="append")
            >>> [commit.rows_added for commit in tables.plan_rollback("bronze.orders", first.snapshot_id).commits]
            [1]
        """
        with self._inspected("plan_rollback", identifier) as (table, name):
            return plan_rollback(table, name, to)

    @contextmanager
    def _inspected(self, action: str, identifier: TableName) -> Iterator[tuple[Table, TableIdentifier]]:
        name = identifier_of(identifier)
        with operation(f"iceberg.{action}", table=str(name)), translated(action, name):
            table = self.find_table(name)
            if table is None:
                raise NoSuchTableError(str(name))
            yield table if self.at_branch is None else self.at_branch.view(table, name), name

    def _found(self, table: Table, identifier: TableIdentifier, revision: Revision | None) -> Snapshot:
        """The snapshot that is asked for; `main` is main, also where the lake is open at a branch."""
        known = self.find_table(identifier) if revision == MAIN_BRANCH and self.at_branch is not None else None
        return find_snapshot(table if known is None else known, identifier, revision)

    def _chosen(self, table: Table, identifier: TableIdentifier, snapshot: Revision | None) -> Snapshot | None:
        """The snapshot that is asked for, or the head; None if the table has none yet."""
        return table.current_snapshot() if snapshot is None else self._found(table, identifier, snapshot)
