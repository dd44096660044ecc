"""A table described from its metadata alone: no manifest and no data file is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from floe_core.notebooks import Listing, facts_html
from floe_core.security import masked
from floe_iceberg.arguments import identifier_of
from floe_iceberg.inspection.facts import facts_of
from floe_iceberg.inspection.history import Commit, commit_of, refs_by_snapshot
from floe_iceberg.snapshots.refs import FOREVER_MS

__all__ = [
    "Column",
    "PartitionField",
    "Ref",
    "SortedColumn",
    "TableDescription",
    "TableSummary",
    "columns_of",
    "describe",
    "summarize",
]


@dataclass(frozen=True)
class Column:
    """A column; fields of structs, elements of lists and values of maps are columns with dotted names."""

    id: int
    name: str
    type: str
    required: bool
    comment: str | None


@dataclass(frozen=True)
class PartitionField:
    """A field of the partitioning; `column` is None if it was dropped."""

    name: str
    column: str | None
    transform: str


@dataclass(frozen=True)
class SortedColumn:
    """A column of the sort order; `column` is None if it was dropped."""

    column: str | None
    transform: str
    direction: str
    nulls: str


@dataclass(frozen=True)
class Ref:
    """A branch or tag; expiry removes it after `max_age_days`, if that is set."""

    name: str
    type: str
    snapshot_id: int
    max_age_days: float | None


@dataclass(frozen=True)
class TableSummary:
    """The size of a table by the summary of its head. Counts are None where the writer did not record them.

    Attributes:
        table: The name of the table.
        rows: The rows in its data files. If `row_deletes` is not 0, fewer are read.
        row_deletes: The deletes in its delete files, which `rows` does not subtract.
        files: The number of data files.
        delete_files: The number of delete files.
        bytes: The size of all its files.
        last_change: The time of main's head, which changes of properties, tags and other branches leave as it is; of a
            table without one, that of its metadata.
        snapshot_id: The head of main; None before the first write.
    """

    table: str
    rows: int | None
    row_deletes: int
    files: int | None
    delete_files: int
    bytes: int | None
    last_change: datetime
    snapshot_id: int | None


@dataclass(frozen=True)
class TableDescription:
    """Everything that the metadata of a table says about its present state.

    Attributes:
        summary: Rows, files and size.
        columns: The columns of the current schema.
        partitioned_by: The partitioning of new rows.
        earlier_partitionings: How many other partitionings files may still have.
        sorted_by: The sort order of new files.
        properties: All properties of the table.
        location: The address below which its files are.
        metadata_location: The address of its newest metadata file.
        uuid: The identity of the table.
        format_version: The version of Iceberg's table format.
        current: The head of main; None before the first write.
        refs: Its branches and tags.
        snapshots: How many snapshots it has.
    """

    summary: TableSummary
    columns: Listing[Column]
    partitioned_by: tuple[PartitionField, ...]
    earlier_partitionings: int
    sorted_by: tuple[SortedColumn, ...]
    properties: dict[str, str]
    location: str
    metadata_location: str
    uuid: str
    format_version: int
    current: Commit | None
    refs: Listing[Ref]
    snapshots: int

    def _repr_html_(self) -> str:
        properties = facts_html("", ((key, masked(key, value)) for key, value in self.properties.items()))
        folded = f"<details><summary>properties</summary>{properties}</details>" if self.properties else ""
        return f"{facts_html(self.summary.table, facts_of(self))}{self.columns._repr_html_()}{folded}"


def summarize(table: Table) -> TableSummary:
    """The size of a table."""
    head = table.current_snapshot()
    changed_ms = table.metadata.last_updated_ms if head is None else head.timestamp_ms
    return TableSummary(
        table=str(identifier_of(table)),
        rows=_total(head, "total-records"),
        row_deletes=(_total(head, "total-position-deletes") or 0) + (_total(head, "total-equality-deletes") or 0),
        files=_total(head, "total-data-files"),
        delete_files=_total(head, "total-delete-files") or 0,
        bytes=_total(head, "total-files-size"),
        last_change=datetime.fromtimestamp(changed_ms / 1000, timezone.utc),
        snapshot_id=head.snapshot_id if head else None,
    )


def _total(head: Snapshot | None, key: str) -> int | None:
    if head is None:
        return 0
    text = head.summary.additional_properties.get(key, "") if head.summary else ""
    return int(text) if text.isdecimal() else None


def describe(table: Table) -> TableDescription:
    """The present state of a table."""
    schema, head = table.schema(), table.current_snapshot()
    return TableDescription(
        summary=summarize(table),
        columns=Listing(columns_of(schema)),
        partitioned_by=tuple(
            PartitionField(field.name, schema.find_column_name(field.source_id), str(field.transform))
            for field in table.spec().fields
        ),
        earlier_partitionings=len(table.specs()) - 1,
        sorted_by=tuple(
            SortedColumn(
                schema.find_column_name(field.source_id),
                str(field.transform),
                field.direction.value,
                field.null_order.value,
            )
            for field in table.sort_order().fields
        ),
        properties=dict(sorted(table.properties.items())),
        location=table.location(),
        metadata_location=table.metadata_location,
        uuid=str(table.metadata.table_uuid),
        format_version=table.format_version,
        current=commit_of(head, refs=refs_by_snapshot(table).get(head.snapshot_id, ())) if head else None,
        refs=Listing(
            Ref(name, ref.snapshot_ref_type.value, ref.snapshot_id, _days(ref.max_ref_age_ms))
            for name, ref in sorted(table.metadata.refs.items())
        ),
        snapshots=len(table.metadata.snapshots),
    )


def _days(milliseconds: int | None) -> float | None:
    return None if milliseconds in (None, FOREVER_MS) else round(milliseconds / 86_400_000, 3)


def columns_of(schema: Schema) -> Iterator[Column]:
    """The columns of a schema, each followed by the fields inside of it."""
    for field in schema.fields:
        yield from _with_nested(field, "")


def _with_nested(field: NestedField, prefix: str) -> Iterator[Column]:
    name = f"{prefix}{field.name}"
    yield Column(field.field_id, name, _type_text(field.field_type), field.required, field.doc)
    for nested in _nested(field.field_type):
        if nested.name not in ("element", "key", "value") or isinstance(field.field_type, StructType):
            yield from _with_nested(nested, f"{name}.")
        else:  # the element itself is in the type of its list; only what is inside of it has names and comments
            for inner in _nested(nested.field_type):
                yield from _with_nested(inner, f"{name}.{nested.name}.")


def _nested(kind: IcebergType) -> tuple[NestedField, ...]:
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    if isinstance(kind, MapType):
        return kind.key_field, kind.value_field
    return ()


def _type_text(kind: IcebergType) -> str:
    """A type without the field ids and comments of what is inside of it."""
    if isinstance(kind, StructType):
        return "struct<" + ", ".join(f"{field.name}: {_type_text(field.field_type)}" for field in kind.fields) + ">"
    if isinstance(kind, ListType):
        return f"list<{_type_text(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{_type_text(kind.key_type)}, {_type_text(kind.value_type)}>"
    return str(kind)
