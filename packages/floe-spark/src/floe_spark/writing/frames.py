"""Fit a DataFrame to a table: its schema, its columns in their order, its rows inside the slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, FixedType, NestedField, StringType, UUIDType
from pyiceberg.types import StructType as IcebergStruct
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType
from pyspark.sql.types import StringType as Text

from floe_core.errors import PartitionMismatchError, SchemaEvolutionError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.schema import column_problems, to_iceberg_schema
from floe_spark.names import quoted
from floe_spark.reading.filters import column_path, filter_condition

__all__ = ["OUTSIDE", "Guard", "as_in", "data_schema", "fitted", "spelt_alike"]

# The message that a guarded frame fails with; searched for in the text of Spark's error.
OUTSIDE = "floe: a row lies outside the slice being written"


def data_schema(frame: DataFrame) -> Schema:
    """The Iceberg schema of a frame; raises an error that names the columns Iceberg cannot store."""
    if not frame.columns:
        raise SchemaEvolutionError("the data has no columns. Nothing was written")
    unknown = [field for field in frame.schema.fields if not _is_known_to_arrow(field)]
    if unknown:
        named = ", ".join(f"{field.name} ({field.dataType.simpleString()})" for field in unknown)
        raise SchemaEvolutionError(f"Iceberg has no type for {named}. Cast or drop it; nothing was written")
    schema = to_arrow_schema(frame.schema)
    problems = column_problems(schema)
    if problems:
        raise SchemaEvolutionError(f"{'; '.join(problems)}. Nothing was written")
    return to_iceberg_schema(schema)


def as_in(table: Schema, data: Schema) -> Schema:
    """The schema of the data, its strings and bytes typed as in the table: Spark has no type for UUIDs and fixed."""
    return Schema(*(_as_in(table.as_struct(), field) for field in data.fields))


def spelt_alike(frame: DataFrame, table: Schema) -> DataFrame:
    """The frame with its UUIDs in Iceberg's spelling: as strings, two spellings of one UUID would differ."""
    uuids = {field.name.lower() for field in table.fields if isinstance(field.field_type, UUIDType)}
    texts = [
        field.name for field in frame.schema.fields if field.name.lower() in uuids and isinstance(field.dataType, Text)
    ]
    return frame.withColumns({name: F.lower(F.col(quoted(name))) for name in texts}) if texts else frame


def _as_in(table: IcebergStruct, field: NestedField) -> NestedField:
    kind = next((column.field_type for column in table.fields if column.name.lower() == field.name.lower()), None)
    same = (isinstance(kind, UUIDType) and isinstance(field.field_type, StringType)) or (
        isinstance(kind, FixedType) and isinstance(field.field_type, BinaryType)
    )
    if same:
        return field.model_copy(update={"field_type": kind})
    if isinstance(kind, IcebergStruct) and isinstance(field.field_type, IcebergStruct):
        below = IcebergStruct(*(_as_in(kind, child) for child in field.field_type.fields))
        return field.model_copy(update={"field_type": below})
    return field


def _is_known_to_arrow(field: StructField) -> bool:
    if "variant" in field.dataType.simpleString():  # Arrow's representation is not Iceberg's
        return False
    try:
        to_arrow_schema(StructType([field]))
    except (PySparkTypeError, pa.ArrowException, ValueError):
        return False
    return True


def fitted(frame: DataFrame, name: str, columns: Sequence[str]) -> DataFrame:
    """The frame with the table's columns in their order, nested fields included; NULL where the data has none."""
    nested = any(isinstance(field.dataType, StructType | ArrayType | MapType) for field in frame.schema.fields)
    if frame.columns == list(columns) and not nested:
        return frame
    target = frame.sparkSession.table(name).schema
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
            _is_nested(child) for child in have.fields
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


def _is_nested(item: StructField | DataType) -> bool:
    return isinstance(item.dataType if isinstance(item, StructField) else item, StructType | ArrayType | MapType)


@dataclass(frozen=True)
class Guard:
    """The condition that all rows of a frame must match, and the error for rows that do not."""

    frame: DataFrame
    condition: BooleanExpression
    schema: Schema
    identifier: TableIdentifier
    shown: str  # the slice or filter, for messages

    def guarded(self) -> DataFrame:
        """The frame, with a check in its plan that fails at the first row outside: no second pass over the data."""
        inside = filter_condition(self.condition, self.schema)
        # In a projection, not in a filter: Spark would push that below joins, to rows that are not in the result.
        field = self.frame.schema.fields[0]
        column = F.col(quoted(field.name))
        checked = F.when(inside, column).otherwise(F.raise_error(F.lit(OUTSIDE)).cast(field.dataType))
        # The second argument is never evaluated; it keeps a required column from appearing nullable.
        return self.frame.withColumn(field.name, F.coalesce(checked, column))

    def refusal(self) -> PartitionMismatchError | None:
        """The error with the number of rows outside and three examples, or None; only this reads the data again."""
        inside = filter_condition(self.condition, self.schema)
        outside = self.frame.where(~F.coalesce(inside, F.lit(False)))
        ids = sorted(extract_field_ids(bind(self.schema, self.condition, case_sensitive=True)))
        columns = {str(self.schema.find_column_name(number)): column_path(self.schema, number) for number in ids}
        values = outside.select([F.col(path).cast("string").alias(name) for name, path in columns.items()])
        examples = [
            ", ".join(
                f"{name} = {'NULL' if value is None else value}" for name, value in zip(columns, row, strict=True)
            )
            for row in values.distinct().limit(3).collect()
        ]
        count = outside.count()
        if not count:
            return None
        return PartitionMismatchError(
            f"{count} {'row lies' if count == 1 else 'rows lie'} outside the slice being written to "
            f"'{self.identifier}' ({self.shown}), with {'; '.join(examples)}; filter the data to its partition. "
            f"Nothing was written"
        )
