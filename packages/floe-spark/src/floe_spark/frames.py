"""Fit a DataFrame to a table: its schema, its columns in their order, its rows inside the slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from floe_core.errors import PartitionMismatchError, SchemaEvolutionError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_iceberg.schema import to_iceberg_schema
from floe_spark.names import quoted, table_name
from floe_spark.slices import slice_column, slice_condition

__all__ = ["OUTSIDE", "data_schema", "fitted", "guarded", "strays"]

# What a guarded frame fails with; found again in the text of Spark's error.
OUTSIDE = "floe: a row lies outside the slice being written"


def data_schema(frame: DataFrame) -> Schema:
    """The Iceberg schema of a frame, or a refusal that names what Iceberg cannot hold."""
    twice = [name for name, count in Counter(name.lower() for name in frame.columns).items() if count > 1]
    if twice:
        raise SchemaEvolutionError(
            f"the data has more than one column {', '.join(map(repr, twice))} (upper and lower case are the same "
            f"to Spark); rename or drop one. Nothing was written"
        )
    unknown = [field for field in frame.schema.fields if not _is_known_to_arrow(field)]
    if unknown:
        named = ", ".join(f"{field.name} ({field.dataType.simpleString()})" for field in unknown)
        raise SchemaEvolutionError(f"Iceberg has no type for {named}. Cast or drop it; nothing was written")
    return to_iceberg_schema(to_arrow_schema(frame.schema))


def _is_known_to_arrow(field: StructField) -> bool:
    try:
        to_arrow_schema(StructType([field]))
    except (PySparkTypeError, pa.ArrowException, ValueError):
        return False
    return True


def fitted(frame: DataFrame, identifier: TableIdentifier, columns: Sequence[str]) -> DataFrame:
    """The frame with the table's columns in their order, nested fields included; NULL where the data has none."""
    nested = any(isinstance(field.dataType, StructType | ArrayType | MapType) for field in frame.schema.fields)
    if frame.columns == list(columns) and not nested:
        return frame
    target = frame.sparkSession.table(table_name(identifier)).schema
    have = {field.name.lower(): field for field in frame.schema.fields}
    return frame.select([_fitted_column(have.get(field.name.lower()), field) for field in target.fields])


def _fitted_column(have: StructField | None, want: StructField) -> Column:
    if have is None:
        return F.lit(None).cast(want.dataType).alias(want.name)
    return _fitted_value(F.col(quoted(have.name)), have.dataType, want.dataType).alias(want.name)


def _fitted_value(value: Column, have: DataType, want: DataType) -> Column:
    if isinstance(have, StructType) and isinstance(want, StructType):
        present = {field.name.lower(): field for field in have.fields}
        if [field.name for field in want.fields] == have.fieldNames() and not any(
            _is_nested(one) for one in have.fields
        ):
            return value
        fields = [
            _fitted_value(value.getField(found.name), found.dataType, field.dataType).alias(field.name)
            if (found := present.get(field.name.lower())) is not None
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in want.fields
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(have, ArrayType) and isinstance(want, ArrayType) and _is_nested(have.elementType):
        return F.transform(value, lambda item: _fitted_value(item, have.elementType, want.elementType))
    if isinstance(have, MapType) and isinstance(want, MapType) and _is_nested(have.valueType):
        return F.transform_values(value, lambda _, item: _fitted_value(item, have.valueType, want.valueType))
    return value


def _is_nested(one: StructField | DataType) -> bool:
    return isinstance(one.dataType if isinstance(one, StructField) else one, StructType | ArrayType | MapType)


def guarded(frame: DataFrame, one: TableSlice | None) -> DataFrame:
    """The frame, failing inside the plan at the first row outside the slice: no second pass over the data."""
    if one is None:
        return frame
    column = slice_column(one, frame.schema)
    refusal = F.raise_error(F.lit(OUTSIDE)).cast(column.dataType)
    inside = slice_condition(one, frame.schema)
    return frame.withColumn(column.name, F.when(inside, F.col(quoted(column.name))).otherwise(refusal))


def strays(frame: DataFrame, one: TableSlice, identifier: TableIdentifier) -> PartitionMismatchError:
    """How many rows lie outside the slice, and three of them: only a refusal looks at the data again."""
    column = slice_column(one, frame.schema).name
    outside = frame.where(~F.coalesce(slice_condition(one, frame.schema), F.lit(False)))
    values = outside.select(F.col(quoted(column)).cast("string")).distinct().limit(3).collect()
    count = outside.count()
    return PartitionMismatchError(
        f"{count} {'row lies' if count == 1 else 'rows lie'} outside the slice being written to '{identifier}' "
        f"({one}), with {column} = {', '.join(str(row[0] or 'NULL') for row in values)}; filter the data to its "
        f"partition. Nothing was written"
    )
