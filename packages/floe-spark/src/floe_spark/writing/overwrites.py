"""Replace rows: those of a slice or a filter, the partitions of the data, or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, DataFrameWriterV2
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_iceberg import IcebergTableManager
from floe_iceberg.snapshots import snapshot_info
from floe_iceberg.writing import Committed, Finder, WriteRequest, files_of_partitions, files_under
from floe_spark.reading.filters import filter_condition
from floe_spark.reading.lineage import Base
from floe_spark.writing.commits import Commit
from floe_spark.writing.file_cover import reach_of, specs_in_use
from floe_spark.writing.partitioning import is_aligned, is_one_partition, partition_values

__all__ = ["refuse_unpartitioned", "replace_partitions", "replace_rows", "replace_table"]


def replace_table(commit: Commit, frame: DataFrame, table: Table, base: Base) -> Committed:
    """Replace all rows; an empty frame is refused, by a count on the staging branch before it is published.

    Counting the frame first would compute it twice, and a source that changes in between would give two results.
    """
    request, head = commit.request, table.snapshot_by_name(commit.request.branch)

    had_rows = head is not None and snapshot_info(head).summary.get("total-records") != "0"
    protected = had_rows and not request.allow_empty

    def act(branch: str | None) -> None:
        _overwriter(commit, frame, base, branch).overwrite(F.lit(True))
        if protected and not any(snapshot.count("added-records") for snapshot in commit.found(branch)):
            raise FloeStorageError(
                f"refused to replace all rows of '{request.identifier}' by nothing; to allow it, set allow_empty"
            )

    return commit.run(act)


def replace_rows(commit: Commit, frame: DataFrame, table: Table, base: Base, condition: BooleanExpression) -> Committed:
    """Replace exactly the rows that match.

    Where they do not fill whole files, the rest of those files is rewritten with the new rows: still one snapshot, and
    a conflict if another writer changes any of it during the write.
    """
    head = table.snapshot_by_name(commit.request.branch)
    exact = filter_condition(condition, table.schema())
    reach = None if head is None or _fills_partitions(commit, table, head) else reach_of(table, head, condition)

    def act(branch: str | None) -> None:
        if reach is None:
            writer = _overwriter(commit, frame, base, branch)
            if commit.request.slice is not None and is_one_partition(table, commit.request.slice):
                writer = writer.option("fanout-enabled", "true")  # one file at a time either way, and no sort
            writer.overwrite(exact)
        else:
            around = filter_condition(reach, table.schema())
            stored = frame.sparkSession.table(commit.table_name(branch))
            kept = stored.where(around & ~F.coalesce(exact, F.lit(False)))
            _overwriter(commit, frame.unionByName(kept), base, branch).overwrite(around)

    def finder(_: Sequence[DataFile]) -> Finder:
        return files_under(condition if reach is None else reach, commit.request.branch)

    try:
        return commit.run(act, finder=finder)
    except FloeStorageError as exc:
        if not _cuts_through_files(exc):
            raise
        reach = AlwaysTrue()  # file statistics were wrong, and nothing was written: rewrite all files
    return commit.run(act, finder=finder)


def replace_partitions(commit: Commit, frame: DataFrame, table: Table, base: Base) -> Committed:
    """Replace the partitions that the data has rows for; rows of these partitions in files of older specs go too."""
    head = table.snapshot_by_name(commit.request.branch)
    refuse_unpartitioned(commit.tables, commit.request, table)
    if head is not None and not specs_in_use(table, head) <= {table.spec().spec_id}:
        return _replace_across_specs(commit, frame, table, base)

    def act(branch: str | None) -> None:
        _overwriter(commit, frame, base, branch).overwritePartitions()
        if not commit.found(branch):  # Spark skips a write without rows
            commit.writer(frame.limit(0), branch).append()

    def finder(added: Sequence[DataFile]) -> Finder:
        return files_of_partitions([file.partition for file in added], table.spec().spec_id, commit.request.branch)

    return commit.run(act, finder=finder)


def refuse_unpartitioned(tables: IcebergTableManager, request: WriteRequest, table: Table) -> None:
    """Refuse to replace the partitions of a table that has none."""
    if not partition_values(tables.catalog_name, table):
        raise ConfigurationError(
            f"table '{request.identifier}' is not partitioned, so there are no partitions to replace; leave "
            f"dynamic_partitions out to replace the table. Nothing was written"
        )


def _replace_across_specs(commit: Commit, frame: DataFrame, table: Table, base: Base) -> Committed:
    """Rewrite all rows of other partitions: afterwards the table has one spec, and is replaced by partition again."""
    rows = frame.localCheckpoint()  # evaluated twice, for its partitions and for its rows
    if rows.isEmpty():
        return commit.append(rows)
    values = partition_values(commit.tables.catalog_name, table)
    names = list(values)
    partitions = rows.select([value.alias(name) for name, value in values.items()]).distinct()

    def act(branch: str | None) -> None:
        stored = frame.sparkSession.table(commit.table_name(branch))
        placed = stored.select("*", *(value.alias(name) for name, value in values.items()))
        same = reduce(and_, (placed[name].eqNullSafe(partitions[name]) for name in names))
        kept = placed.join(F.broadcast(partitions), same, "left_anti").drop(*names)
        _overwriter(commit, rows.unionByName(kept), base, branch).overwrite(F.lit(True))

    return commit.run(act)


def _overwriter(commit: Commit, frame: DataFrame, base: Base, branch: str | None) -> DataFrameWriterV2:
    """A writer that raises if another writer added or removed some of the rows since the base."""
    writer = commit.writer(frame, branch).option("isolation-level", "serializable")
    if base.snapshot_id is None:
        return writer
    return writer.option("validate-from-snapshot-id", str(base.snapshot_id))


def _fills_partitions(commit: Commit, table: Table, head: Snapshot) -> bool:
    table_slice = commit.request.slice
    if table_slice is None or not is_aligned(table, table_slice):
        return False
    return specs_in_use(table, head) <= {table.spec().spec_id}


def _cuts_through_files(exc: FloeStorageError) -> bool:
    # Not a conflict; the only other cause here is a condition that does not cover whole files.
    return type(exc) is FloeStorageError and exc.detail is not None and exc.detail.error_type == "ValidationException"
