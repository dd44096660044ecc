"""Schema evolution by writes: columns are added, widened or made optional, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import Schema, index_by_id, index_by_name
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StructType,
)

from floe_core.errors import SchemaEvolutionError
from floe_iceberg._pyiceberg.tables import metadata_of
from floe_iceberg.schema.types import column_problems, places_of

__all__ = [
    "SchemaChange",
    "apply_change",
    "apply_to",
    "fits",
    "fits_schema",
    "name_problems",
    "plan_change",
    "to_iceberg_schema",
]

Path = tuple[str, ...]

_IDENTIFIER = (
    "identifies the table's rows and is never NULL, but the data has NULL there, or its schema allows it; drop such "
    "rows, and declare it nullable=False"
)


@dataclass(frozen=True)
class SchemaChange:
    """The changes that a table's schema needs so that the data fits; empty if it fits already."""

    added: dict[Path, IcebergType] = field(default_factory=dict)
    widened: dict[Path, IcebergType] = field(default_factory=dict)
    relaxed: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.widened or self.relaxed)

    def __str__(self) -> str:
        return ", ".join(self.texts())

    def texts(self) -> list[str]:
        """Each change as text, such as `+discount double`."""
        return [
            *(f"+{'.'.join(path)} {kind}" for path, kind in self.added.items()),
            *(f"{'.'.join(path)} -> {kind}" for path, kind in self.widened.items()),
            *(f"{'.'.join(path)} may be null" for path in self.relaxed),
        ]


def to_iceberg_schema(schema: pa.Schema) -> Schema:
    """The Iceberg schema of Arrow data, with field ids in the order of its fields."""
    problems = column_problems(schema)
    if problems:
        raise SchemaEvolutionError(f"{'; '.join(problems)}. Nothing was written")
    ids = iter(range(1, 1_000_000))
    columns = [_with_ids(column, ids) for column in schema]
    unknown = [column for column in columns if not _has_iceberg_type(column)]
    if unknown:
        named = ", ".join(f"{column.name} ({column.type})" for column in unknown)
        raise SchemaEvolutionError(f"Iceberg has no type for {named}. Cast or drop it; nothing was written")
    try:
        converted = pyarrow_to_schema(pa.schema(columns), downcast_ns_timestamp_to_us=True)
        index_by_name(converted)  # otherwise names are first indexed, and refused, when a column is looked up
    except ValueError as exc:  # a column `a.b` beside the field b of a
        raise SchemaEvolutionError(f"{exc}; rename one of them. Nothing was written") from exc
    return converted


def name_problems(schema: Schema, whose: str) -> list[str]:
    """The problems with a schema's names: Spark cannot read a table that has one of them."""
    return column_problems(schema_to_pyarrow(schema), whose)


def _has_iceberg_type(column: pa.Field) -> bool:
    try:
        pyarrow_to_schema(pa.schema([column]), downcast_ns_timestamp_to_us=True)
    except (UnsupportedPyArrowTypeException, ValueError):
        return False
    # `unknown` is a type of table format 3; tables of format 2 cannot hold it.
    return not pa.types.is_null(column.type)


def _with_ids(arrow_field: pa.Field, ids: Iterator[int]) -> pa.Field:
    metadata = {**(arrow_field.metadata or {}), b"PARQUET:field_id": str(next(ids)).encode()}
    kind = arrow_field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_with_ids(kind.field(index), ids) for index in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        kind = pa.map_(_with_ids(kind.key_field, ids), _with_ids(kind.item_field, ids))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_with_ids(kind.value_field, ids))
    return pa.field(arrow_field.name, kind, arrow_field.nullable, metadata)


def plan_change(table: Schema, data: Schema, *, name: object, evolve: bool) -> SchemaChange:
    """The change that makes the data fit, or a SchemaEvolutionError that names every incompatible field."""
    change = SchemaChange()
    relaxed: list[Path] = []
    problems: dict[Path, str] = {}
    _compare_structs((), table.as_struct(), data.as_struct(), change, relaxed, problems)
    taken = set(table.column_names)
    problems |= {path: "is the name of another field already" for path in change.added if ".".join(path) in taken}
    problems |= {path: _IDENTIFIER for path in relaxed if ".".join(path) in table.identifier_field_names()}
    if problems:
        raise _mismatch(name, problems)
    change = SchemaChange(change.added, change.widened, tuple(relaxed))
    if change and not evolve:
        raise SchemaEvolutionError(
            f"the data does not fit table '{name}' and schema evolution is off: {change}; nothing was written. "
            f"Change the data, or allow evolution for this write"
        )
    return change


def apply_change(table: Table, change: SchemaChange) -> None:
    """Apply the change in one metadata commit."""
    with table.update_schema() as update:
        apply_to(update, change)


def apply_to(update: UpdateSchema, change: SchemaChange) -> None:
    """Add the change to an update that the caller commits."""
    _refuse_names_of_partitions(metadata_of(update), change)
    for path, kind in change.added.items():
        update.add_column(path, kind)
    for path, kind in change.widened.items():
        update.update_column(path, field_type=kind)
    for path in change.relaxed:
        update.update_column(path, required=False)


def _refuse_names_of_partitions(metadata: TableMetadata, change: SchemaChange) -> None:
    """Readers put partition fields beside columns, so a new column cannot be named like one."""
    schema = metadata.schema()
    fields = {field.name: field for spec in metadata.partition_specs for field in spec.fields}
    for path in change.added:
        field = fields.get(".".join(path))
        if field is not None:
            raise SchemaEvolutionError(
                f"the data has a column {field.name!r}, which is the name of a partition field of the table "
                f"({field.transform} of {schema.find_column_name(field.source_id)!r}); rename it. Nothing was written"
            )


def _compare_structs(
    at: Path,
    table: StructType,
    data: StructType,
    change: SchemaChange,
    relaxed: list[Path],
    problems: dict[Path, str],
) -> None:
    # Spark takes `Amount` and `amount` for one column, so a table must never hold both.
    places = places_of([column.name for column in data.fields], [column.name for column in table.fields])
    for place, existing in zip(places, table.fields, strict=True):
        path = (*at, existing.name)
        incoming = None if place is None else data.fields[place]
        if incoming is None:
            if existing.required:
                problems[path] = "is required and missing from the data"
            continue
        if existing.required and not incoming.required:
            relaxed.append(path)
        _compare_types(path, existing.field_type, incoming.field_type, change, relaxed, problems)
    added = (column for place, column in enumerate(data.fields) if place not in places)
    change.added.update({(*at, column.name): column.field_type for column in added})


def _compare_types(
    path: Path,
    table: IcebergType,
    data: IcebergType,
    change: SchemaChange,
    relaxed: list[Path],
    problems: dict[Path, str],
) -> None:
    if isinstance(table, StructType) and isinstance(data, StructType):
        _compare_structs(path, table, data, change, relaxed, problems)
    elif isinstance(table, ListType) and isinstance(data, ListType):
        _compare_types((*path, "element"), table.element_type, data.element_type, change, relaxed, problems)
    elif isinstance(table, MapType) and isinstance(data, MapType):
        if str(table.key_type) != str(data.key_type):
            problems[path] = f"the table has {table}, the data has {data}"
        _compare_types((*path, "value"), table.value_type, data.value_type, change, relaxed, problems)
    elif table == data or fits(data, table):
        return
    elif fits(table, data):
        change.widened[path] = data
    else:
        problems[path] = f"the table has {table}, the data has {data}"


def fits(narrow: IcebergType, wide: IcebergType) -> bool:
    """Can `narrow` be promoted to `wide` by Iceberg's rules of type promotion?"""
    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        return narrow.scale == wide.scale and narrow.precision <= wide.precision
    return (isinstance(narrow, IntegerType) and isinstance(wide, LongType)) or (
        isinstance(narrow, FloatType) and isinstance(wide, DoubleType)
    )


def fits_schema(staged: Schema, now: Schema) -> bool:
    """Do files written for `staged` fit `now`: the same field ids, and no field that became required?"""
    ids, before = index_by_name(now), index_by_id(staged)
    return all(ids.get(name) == field_id for name, field_id in index_by_name(staged).items()) and not any(
        field.required and (field_id not in before or not before[field_id].required)
        for field_id, field in index_by_id(now).items()
    )


def _mismatch(name: object, problems: dict[Path, str]) -> SchemaEvolutionError:
    columns = [".".join(path) for path in problems]
    first = (
        f"column '{columns[0]}' has incompatible type"
        if len(columns) == 1
        else f"columns {', '.join(repr(column) for column in columns)} have incompatible types"
    )
    reasons = "; ".join(f"{'.'.join(path)}: {reason}" for path, reason in problems.items())
    return SchemaEvolutionError(
        f"Schema mismatch: {first}. {reasons}. Nothing was written to '{name}': cast the data, or write to a new table"
    )
