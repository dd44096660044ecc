"""The columns of a comparison: those of the second snapshot, matched by field id, in the wider of both types."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.schema.columns import no_column, with_optional_columns

__all__ = ["ComparedColumns", "all_names", "compared_columns", "key_columns", "schema_after", "schema_before"]


@dataclass(frozen=True)
class ComparedColumns:
    """The compared columns under names that every engine can tell apart, `c` and the field id.

    Attributes:
        schema: The compared columns.
        table: The table, in which both snapshots have the compared columns: any file of them can be read with these.
        shown: The name of each column that is shown, by its name here.
        hidden: The name of each column that is not shown, by its name here.
    """

    schema: Schema
    table: Table
    shown: dict[str, str]
    hidden: dict[str, str]

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.schema.fields]

    def internal(self, names: Collection[str]) -> list[str]:
        """The names here of columns by their own names."""
        by_name = {name: internal for internal, name in (self.shown | self.hidden).items()}
        return [by_name[name] for name in names]


def schema_before(table: Table, snapshot: Snapshot | None) -> Schema:
    """The columns of the first snapshot: those that it was written with."""
    if snapshot is None:
        return Schema()
    return table.schema() if snapshot.schema_id is None else table.schemas().get(snapshot.schema_id, table.schema())


def schema_after(table: Table, snapshot: Snapshot) -> Schema:
    """The columns of the second snapshot; the current ones at the head of a branch, as its readers see them."""
    heads = {ref.snapshot_id for ref in table.metadata.refs.values() if ref.snapshot_ref_type is SnapshotRefType.BRANCH}
    return table.schema() if snapshot.snapshot_id in heads else schema_before(table, snapshot)


def key_columns(keys: Sequence[str] | None, schema: Schema, identifier: TableIdentifier) -> tuple[str, ...]:
    """The columns of the key: those given, or the identifier fields of the schema; empty if there are none."""
    own = {field.name: field.field_id for field in schema.fields}
    if keys is None:
        declared = [name for name, field_id in own.items() if field_id in schema.identifier_field_ids]
        return tuple(declared) if len(declared) == len(schema.identifier_field_ids) else ()
    names = tuple(dict.fromkeys(keys))
    unknown = no_column(names, schema)
    if unknown:
        raise ConfigurationError(f"keys: table '{identifier}' has {unknown}")
    inside = [name for name in names if name not in own]
    if inside:
        raise ConfigurationError(f"keys: {inside[0]!r} is inside of a column; name whole columns: {', '.join(own)}")
    return names


def all_names(table: Table, names: Collection[str]) -> set[str]:
    """The names, in lower case, that columns of these names have or had in any schema of the table."""
    fields = [field for schema in (*table.schemas().values(), table.schema()) for field in schema.fields]
    ids = {field.field_id for field in fields if field.name.lower() in names}
    return {*names, *(field.name.lower() for field in fields if field.field_id in ids)}


def compared_columns(
    table: Table, before: Schema, after: Schema, snapshots: Collection[int], hidden: Collection[str]
) -> ComparedColumns:
    """The columns of the second snapshot, in the wider type where the first one has another.

    Args:
        snapshots: The ids of both snapshots.
        hidden: The columns that are not shown, in lower case.
    """
    earlier = {field.field_id: field for field in before.fields}
    compared = [
        _named(field, _wider(earlier[field.field_id].field_type, field.field_type))
        if field.field_id in earlier
        else _named(field, field.field_type)
        for field in after.fields
    ]
    # Partitions may need the types of columns that are not compared.
    known = {field.field_id: field for schema in (*table.schemas().values(), table.schema()) for field in schema.fields}
    others = [_named(field, field.field_type) for id_, field in known.items() if id_ not in after.field_ids]
    schema_id = max(table.schemas()) + 1
    everything = Schema(*with_optional_columns(Schema(*compared, *others)).fields, schema_id=schema_id)
    changed = [
        one.model_copy(update={"schema_id": schema_id}) if one.snapshot_id in snapshots else one
        for one in table.metadata.snapshots
    ]
    metadata = table.metadata.model_copy(
        update={
            "schemas": [*table.metadata.schemas, everything],
            "current_schema_id": schema_id,
            "snapshots": changed,
        }
    )
    names = {f"c{field.field_id}": field.name for field in after.fields}
    return ComparedColumns(
        schema=Schema(*everything.fields[: len(compared)]),
        table=Table(table.name(), metadata, table.metadata_location, table.io, table.catalog),
        shown={internal: name for internal, name in names.items() if name.lower() not in hidden},
        hidden={internal: name for internal, name in names.items() if name.lower() in hidden},
    )


def _named(field: NestedField, kind: IcebergType) -> NestedField:
    return field.model_copy(update={"name": f"c{field.field_id}", "field_type": kind})


def _wider(before: IcebergType, after: IcebergType) -> IcebergType:
    """The type that holds the values of both; that of the second snapshot where both are the same."""
    if isinstance(before, StructType) and isinstance(after, StructType):
        earlier = {field.field_id: field.field_type for field in before.fields}
        fields = (
            field.model_copy(
                update={"field_type": _wider(earlier.get(field.field_id, field.field_type), field.field_type)}
            )
            for field in after.fields
        )
        return StructType(*fields)
    if isinstance(before, ListType) and isinstance(after, ListType):
        return after.model_copy(update={"element_type": _wider(before.element_type, after.element_type)})
    if isinstance(before, MapType) and isinstance(after, MapType):
        key, value = _wider(before.key_type, after.key_type), _wider(before.value_type, after.value_type)
        return after.model_copy(update={"key_type": key, "value_type": value})
    if isinstance(before, PrimitiveType) and isinstance(after, PrimitiveType) and before != after:
        try:
            return promote(after, before)  # the columns were widened after the second snapshot
        except ResolveError:
            return after
    return after
