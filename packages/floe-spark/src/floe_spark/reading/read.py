"""Read a table as a lazy DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import DataScan, Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession

from floe_core.errors import ConcurrencyConflictError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.observability import operation
from floe_iceberg import IcebergTableManager
from floe_iceberg.arguments import names_of
from floe_iceberg.catalogs import refuse_for_spark
from floe_iceberg.errors import translated
from floe_iceberg.expressions import slice_filter
from floe_iceberg.lake import Reading
from floe_iceberg.reading import check_listed, refuse_past
from floe_iceberg.snapshots import refuse_disorder
from floe_spark.errors import translate
from floe_spark.names import table_name
from floe_spark.reading.filters import column_path, filter_condition
from floe_spark.reading.lineage import appended_since, table_at, table_on, table_since

__all__ = ["Reading", "read", "reading"]


def read(spark: SparkSession, manager: IcebergTableManager, identifier: TableIdentifier, **options: Any) -> DataFrame:
    """Read a table as a lazy DataFrame, which shows the table as it is at this call, whenever it is computed.

    Args:
        spark: The session of the project.
        manager: The manager of the tables.
        identifier: The table.
        options: `slice`, `columns` and `row_filter` select columns and rows. `snapshot_id`, `as_of` and `ref` read an
            earlier state of the table; at most one of them may be given. `since` reads only the rows that were appended
            after that snapshot.

    Example:
        >>> from floe_core import TableIdentifier
        >>> from floe_spark import read, write
        >>> orders = TableIdentifier.from_string("bronze.orders")
        >>> frame = lake.spark.createDataFrame([(1, "Oslo"), (2, "Rome")], "id bigint, city string")
        >>> _ = write(frame, lake.tables, orders, mode="append")
        >>> read(lake.spark, lake.tables, orders, columns=["id"], row_filter="city = 'Oslo'").collect()
        [Row(id=1)]
    """
    return reading(spark, manager, identifier, **options).frame


def reading(
    spark: SparkSession,
    manager: IcebergTableManager,
    identifier: TableIdentifier,
    *,
    slice: TableSlice | None = None,  # noqa: A002 - Iceberg's noun; the builtin is not needed here
    columns: Sequence[str] | None = None,
    row_filter: str | BooleanExpression | None = None,
    snapshot_id: int | None = None,
    as_of: datetime | None = None,
    ref: str | None = None,
    since: int | None = None,
    until: int | None = None,
    table: Table | None = None,
) -> Reading:
    """The rows of a table, of a slice of it, or those that match a filter; nothing is computed yet.

    The frame shows the table as it is at this call, however often it is computed later. If it is written back to the
    same table, the write knows the snapshot that it was made from, and refuses to lose what was committed after it.

    Args:
        columns: Only these, fields of structs as `place.city`.
        row_filter: PyIceberg's grammar or expressions, pushed down: `n > 10 AND note = 'x'`.
        snapshot_id: The table as it was at this snapshot; at most one of this, `as_of` and `ref`.
        as_of: The table as it was at this moment.
        ref: The table as a tag or a branch shows it.
        since: Only the rows appended after this snapshot; not together with a moment of the past.
        until: With `since`: the last snapshot to read. By default the head.
        table: The table as the caller has loaded it, with others at the same moment: the rows are those of its head.
    """
    moment = {"snapshot_id": snapshot_id, "as_of": as_of, "ref": ref}
    with operation("iceberg.scan", table=str(identifier), engine="spark", slice=slice, since=since, **moment):
        # PyIceberg validates all arguments and opens no data file.
        checked = manager.scan(
            identifier,
            columns=columns,
            row_filter=row_filter,
            snapshot_id=snapshot_id,
            as_of=as_of,
            ref=ref,
            check=refuse_for_spark,
            table=table,
        )
        refuse_disorder(checked.table_metadata, identifier)
        head, name = checked.snapshot(), table_name(manager.catalog_name, identifier)
        if until is not None:
            head = checked.table_metadata.snapshot_by_id(until)
        with translated("scan", identifier):
            check_listed(head, checked.io)
        try:
            if since is not None:
                refuse_past(moment)
                manager.scan_changes(identifier, since=since, until=head.snapshot_id if head is not None else None)
                frame = appended_since(spark, name, since, head)
            else:
                on_branch = None if manager.at_branch is None else manager.at_branch.name
                if table is not None and on_branch is None:
                    _refuse_later_columns(manager, identifier, checked)
                pinned = table is not None or on_branch is not None
                frame = _table(spark, identifier, name, checked, ref, pinned=pinned, on_branch=on_branch)
        except Exception as exc:
            error = translate(exc, "spark.read", identifier)
            if error is None:
                raise
            raise error from exc
        schema = checked.update(selected_fields=("*",)).projection()
        if slice is not None:
            frame = frame.where(filter_condition(slice_filter(slice, schema), schema))
        if checked.row_filter != AlwaysTrue():
            frame = frame.where(filter_condition(checked.row_filter, schema))
        if columns is not None:
            frame = frame.select(
                [column_path(schema, schema.find_field(name).field_id) for name in names_of(columns, "columns")]
            )
        return Reading(frame, head.snapshot_id if head is not None else None)


def _refuse_later_columns(manager: IcebergTableManager, identifier: TableIdentifier, checked: DataScan) -> None:
    """Refuse a head whose columns changed after it was written and that has moved on: Spark would read the new head."""
    head = checked.snapshot()
    if head is None or _has_columns_of_table(checked, head):
        return
    now = manager.current_snapshot(identifier)
    if now is None or now.snapshot_id != head.snapshot_id:
        raise ConcurrencyConflictError(
            f"the columns of '{identifier}' were changed after snapshot {head.snapshot_id} was written, and another "
            f"writer moved the table since it was read: read it again"
        )


def _has_columns_of_table(checked: DataScan, head: Snapshot) -> bool:
    return checked.snapshot_id is not None or head.schema_id == checked.table_metadata.current_schema_id


def _table(
    spark: SparkSession,
    identifier: TableIdentifier,
    name: str,
    checked: DataScan,
    ref: str | None,
    *,
    pinned: bool,
    on_branch: str | None,
) -> DataFrame:
    if checked.snapshot_id is not None and _is_branch(checked, ref):
        return table_at(spark, identifier, name, checked.snapshot_id)  # a branch is not a past version
    if checked.snapshot_id is not None:
        return spark.sql(f"SELECT * FROM {name} VERSION AS OF {int(checked.snapshot_id)}")  # noqa: S608 - quoted name, integer
    head = checked.snapshot()
    if head is None:
        return spark.table(name).limit(0) if pinned else spark.table(name)
    if on_branch is not None:  # Spark knows nothing of branches of the lake: its own head is that of main
        if not _has_columns_of_table(checked, head):  # written before the table gained columns
            return table_on(spark, identifier, name, on_branch, head.snapshot_id)
        return table_at(spark, identifier, name, head.snapshot_id)
    # A snapshot is read with the schema it was written with, which is outdated after a schema change without a write.
    if not _has_columns_of_table(checked, head):
        return table_since(spark, identifier, name, head.snapshot_id)
    return table_at(spark, identifier, name, head.snapshot_id)


def _is_branch(checked: DataScan, ref: str | None) -> bool:
    named = checked.table_metadata.refs.get(ref) if ref is not None else None
    return named is not None and named.snapshot_ref_type is SnapshotRefType.BRANCH
