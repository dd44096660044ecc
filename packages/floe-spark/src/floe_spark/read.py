"""Read a table as a lazy DataFrame."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.telemetry import operation
from floe_iceberg import IcebergTableManager
from floe_spark.names import quoted, table_name
from floe_spark.slices import slice_condition

__all__ = ["read"]


def read(
    spark: SparkSession,
    manager: IcebergTableManager,
    identifier: TableIdentifier,
    *,
    slice: TableSlice | None = None,  # noqa: A002 - Iceberg's noun; the builtin is not needed here
    columns: Sequence[str] | None = None,
    snapshot_id: int | None = None,
) -> DataFrame:
    """The rows of a table, of a slice of it, or of the table as it was at a snapshot; nothing is computed yet."""
    with operation("iceberg.scan", table=str(identifier), columns=columns, row_filter=slice, snapshot_id=snapshot_id):
        table = manager.load_table(identifier)
        name = table_name(identifier)
        if snapshot_id is None:
            frame = spark.table(name)
        elif table.snapshot_by_id(snapshot_id) is None:
            raise ConfigurationError(f"table '{identifier}' has no snapshot {snapshot_id}; it may have expired")
        else:
            frame = spark.sql(f"SELECT * FROM {name} VERSION AS OF {int(snapshot_id)}")  # noqa: S608 - quoted name, integer
        if slice is not None:
            frame = frame.where(slice_condition(slice, frame.schema))
        if columns is not None:
            frame = frame.select([quoted(column) for column in columns])
        return frame
