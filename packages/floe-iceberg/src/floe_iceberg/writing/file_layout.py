"""The layout of a table's data files, from its properties and its sort order: sizes, row groups, order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import Transform

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_iceberg._pyiceberg.files import MeasuredWriter

__all__ = ["FileLayout", "RowOrder", "SizedWriter", "check_properties", "portions", "transformed"]

# The maximum number of bytes that are buffered, and sorted at once, before they are written.
LARGEST_PORTION = 128 * 2**20
_NUMBERS = (
    "write.target-file-size-bytes",
    "write.parquet.row-group-size-bytes",
    "write.parquet.row-group-limit",
    "write.parquet.page-size-bytes",
    "write.parquet.page-row-limit",
    "write.parquet.dict-size-bytes",
    "commit.manifest.target-size-bytes",
)
_FROM_ZERO = ("commit.manifest.min-count-to-merge", "write.metadata.previous-versions-max")
_LEVEL = "write.parquet.compression-level"
_CODECS = ("zstd", "gzip", "snappy", "lz4", "lz4_raw", "brotli", "uncompressed", "none")
MERGE_ENABLED = "commit.manifest-merge.enabled"


def check_properties(properties: Mapping[str, str], identifier: TableIdentifier | None = None) -> None:
    """Refuse values that the engines cannot use; they would fail while writing files, without naming the property."""
    for name in (*_NUMBERS, *_FROM_ZERO):
        value, minimum = properties.get(name, "1"), 0 if name in _FROM_ZERO else 1
        if not re.fullmatch("[0-9]{1,18}", value) or int(value) < minimum:
            raise _unusable(name, value, f"a whole number of at least {minimum}", identifier)
    level = properties.get(_LEVEL, "")
    if level and not re.fullmatch("-?[0-9]{1,9}", level):
        raise _unusable(_LEVEL, level, "a whole number", identifier)
    codec = properties.get(TableProperties.PARQUET_COMPRESSION, "zstd")
    if codec.lower() not in _CODECS:
        raise _unusable(TableProperties.PARQUET_COMPRESSION, codec, f"one of {', '.join(_CODECS)}", identifier)
    merges = properties.get(MERGE_ENABLED, "true")
    if merges.lower() not in ("true", "false"):
        raise _unusable(MERGE_ENABLED, merges, "true or false", identifier)


def _unusable(name: str, value: str, needed: str, identifier: TableIdentifier | None) -> ConfigurationError:
    remedy = f"ALTER TABLE {identifier} SET TBLPROPERTIES ('{name}' = '…')" if identifier else "leave it out"
    of = f" of '{identifier}'" if identifier else ""
    return ConfigurationError(
        f"table property {name}{of} is {value[:40]!r}; it must be {needed}. Nothing was written; change it: {remedy}"
    )


@dataclass
class FileLayout:
    """Sizes in bytes: `target` of a file on disk, `group` of a row group in memory."""

    target: int
    group: int
    order: RowOrder | None
    ratio: float = 1.0  # size on disk divided by size in memory, measured on the files so far

    @classmethod
    def of(cls, metadata: TableMetadata) -> FileLayout:
        """The layout that the table's properties and sort order set."""
        check_properties(metadata.properties)
        target = metadata.properties.get(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES)
        group = metadata.properties.get(TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES)
        return cls(
            int(target or TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT),
            min(LARGEST_PORTION, int(group or LARGEST_PORTION)),
            None if metadata.sort_order().is_unsorted else RowOrder.of(metadata),
        )

    @property
    def portion(self) -> int:
        """The number of bytes written at once: a row group, or the whole of a sorted file."""
        file = max(1, int(self.target / self.ratio))
        return min(LARGEST_PORTION, file) if self.order is not None else min(self.group, file)

    def is_full(self, size: int) -> bool:
        """Is a file of this size nearer to the target than it would be with another portion?"""
        return self.order is not None or size + self.portion * self.ratio / 2 >= self.target

    def learn(self, on_disk: int, in_memory: int) -> None:
        self.ratio = min(1.0, max(0.01, on_disk / max(1, in_memory)))


@dataclass(frozen=True)
class RowOrder:
    """The sort order of a table, applied to the rows of one file."""

    order_id: int
    fields: tuple[tuple[str, Transform, SortField, object], ...]  # type: ignore[type-arg]

    @classmethod
    def of(cls, metadata: TableMetadata) -> RowOrder:
        """The table's sort order; refused if Arrow cannot compute one of its transforms."""
        schema, fields = metadata.schema(), []
        for field in metadata.sort_order().fields:
            source = schema.find_field(field.source_id)
            name = schema.find_column_name(field.source_id) or ""
            try:
                field.transform.pyarrow_transform(source.field_type)
            except (ValueError, NotImplementedError) as exc:
                raise ConfigurationError(
                    f"the table is sorted by {field.transform}({name}), which Arrow cannot compute ({exc}); write it "
                    f"with Spark"
                ) from exc
            fields.append((name, field.transform, field, source.field_type))
        return cls(metadata.sort_order().order_id, tuple(fields))

    def sort(self, rows: pa.Table) -> pa.Table:
        """The rows in order; the sort is stable."""
        keys: dict[str, pa.ChunkedArray | pa.Array] = {}
        order: list[tuple[str, str]] = []
        for number, (name, transform, field, kind) in enumerate(self.fields):
            values = transformed(rows, name, transform, kind)
            descending = field.direction is SortDirection.DESC
            # PyArrow puts all NULLs and NaN on one side; Iceberg places NULL per field, and NaN is the largest value.
            nulls_last = field.null_order is NullOrder.NULLS_LAST
            keys[f"null{number}"] = pc.is_null(values)
            order.append((f"null{number}", "ascending" if nulls_last else "descending"))
            direction = "descending" if descending else "ascending"
            if pa.types.is_floating(values.type):
                keys[f"nan{number}"] = pc.fill_null(pc.is_nan(values), False)
                order.append((f"nan{number}", direction))
            keys[f"value{number}"] = values
            order.append((f"value{number}", direction))
        return rows.take(pc.sort_indices(pa.table(keys), sort_keys=order))


def transformed(rows: pa.Table | pa.RecordBatch, name: str, transform: Transform, kind: object) -> pa.Array:  # type: ignore[type-arg]
    """The transformed values of a column or of a struct's field."""
    first, *rest = [name] if name in rows.schema.names else name.split(".")
    values = rows.column(first)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    values = pc.struct_field(values, rest) if rest else values
    if pa.types.is_large_binary(values.type):
        values = values.cast(pa.binary())  # the only binary type that PyIceberg truncates
    values = transform.pyarrow_transform(kind)(values)  # type: ignore[arg-type]
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def portions(rows: pa.RecordBatch | pa.Table, size: int) -> Iterator[pa.RecordBatch | pa.Table]:
    """The rows in slices of about this many bytes."""
    parts = -(-rows.nbytes // max(1, size))
    step = max(1, -(-len(rows) // max(1, parts)))
    for start in range(0, len(rows), step):
        yield rows.slice(start, step)


class SizedWriter(MeasuredWriter):
    """PyIceberg's writer, with row groups of at most `group` bytes."""

    def __init__(self, output: object, schema: Schema, properties: Mapping[str, str], group: int) -> None:
        # PyIceberg warns about this property; it is applied here.
        known = {key: value for key, value in properties.items() if key != TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES}
        if known.get(TableProperties.PARQUET_COMPRESSION, "").lower() == "lz4_raw":
            known[TableProperties.PARQUET_COMPRESSION] = "lz4"  # its name in PyArrow
        super().__init__(output, schema, known)
        self._group = group

    def write(self, table: pa.Table) -> None:
        for part in portions(table, self._group):
            super().write(part)
