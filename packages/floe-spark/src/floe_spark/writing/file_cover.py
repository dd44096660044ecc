"""The files that a replacement reaches: Iceberg removes whole files, so their other rows are rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    LessThanOrEqual,
    Or,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from floe_iceberg.expressions import is_negative

__all__ = ["reach_of", "specs_in_use"]

# Types whose bounds in file statistics can be compared directly; types with NaN cannot.
_ORDERED = (IntegerType, LongType, DateType, TimestampType, TimestamptzType, StringType)


def specs_in_use(table: Table, head: Snapshot) -> set[int]:
    """The partition specs under which the table's data files were written."""
    return {
        manifest.partition_spec_id
        for manifest in head.manifests(table.io)
        if manifest.content == ManifestContent.DATA and (manifest.has_added_files() or manifest.has_existing_files())
    }


def reach_of(table: Table, head: Snapshot, condition: BooleanExpression) -> BooleanExpression | None:
    """None if the condition covers whole files, otherwise the narrowest wider condition that does.

    That is the condition, extended by ranges of one column that no file crosses; in the worst case, all rows.
    """
    schema = table.schema()
    try:
        bound = bind(schema, condition, case_sensitive=True)
        touched = list(table.scan(row_filter=condition, snapshot_id=head.snapshot_id).plan_files())
        whole = all(isinstance(task.residual, AlwaysTrue) for task in touched) and not is_negative(condition)
        if whole or not touched:
            return None
        files = [task.file for task in table.scan(snapshot_id=head.snapshot_id).plan_files()]
    except (ValueError, TypeError):  # a column that the snapshot does not know, or deletes that PyIceberg does not read
        return AlwaysTrue()
    columns = (schema.find_field(number) for number in sorted(extract_field_ids(bound)))
    reaches = [reach for column in columns if (reach := _along(column, schema, touched, files)) is not None]
    # The condition itself is part of it: another writer's row there is a conflict even where no file was.
    return Or(condition, min(reaches, key=lambda reach: reach.size).condition) if reaches else AlwaysTrue()


@dataclass
class _Range:
    """A range of values of a column that covers whole files."""

    lower: Any
    upper: Any
    files: list[DataFile] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(file.file_size_in_bytes for file in self.files)


@dataclass(frozen=True)
class _Reach:
    condition: BooleanExpression
    size: int


def _along(column: NestedField, schema: Schema, touched: list[FileScanTask], files: list[DataFile]) -> _Reach | None:
    """The ranges of a column that hold all touched files and cut through none; None if statistics are missing."""
    name = schema.find_column_name(column.field_id)
    if name is None or not isinstance(column.field_type, _ORDERED):
        return None
    try:
        ranges = list(_ranges(column, files))
    except (KeyError, ValueError, TypeError):
        return None
    wanted = {task.file.file_path for task in touched}
    # Adjacent ranges are joined: a condition for each of a thousand hours would be too deep for any engine.
    groups = groupby(ranges, key=lambda span: any(file.file_path in wanted for file in span.files))
    chosen = [_joined(list(group)) for is_touched, group in groups if is_touched]
    reached = [file for span in chosen for file in span.files]
    if not wanted <= {file.file_path for file in reached} or any(_nulls(column, file) for file in reached):
        return None  # a file with NULLs lies in no range as a whole
    parts: list[Any] = [_between(name, span) for span in chosen]
    return _Reach(Or(*parts) if len(parts) > 1 else parts[0], sum(span.size for span in chosen))


def _joined(ranges: list[_Range]) -> _Range:
    return _Range(ranges[0].lower, ranges[-1].upper, [file for span in ranges for file in span.files])


def _ranges(column: NestedField, files: list[DataFile]) -> Iterator[_Range]:
    """The files in groups whose ranges do not touch; files without any value are in none."""
    bounded = sorted(
        ((*_bounds(column, file), file) for file in files if _nulls(column, file) < file.record_count),
        key=lambda bounded_file: bounded_file[:2],
    )
    current: _Range | None = None
    for lower, upper, file in bounded:
        if current is None or lower > current.upper:
            if current is not None:
                yield current
            current = _Range(lower, upper)
        current.upper = max(current.upper, upper)
        current.files.append(file)
    if current is not None:
        yield current


def _bounds(column: NestedField, file: DataFile) -> tuple[Any, Any]:
    """Raises KeyError where the file has no statistics of the column."""
    kind = column.field_type
    lower, upper = (file.lower_bounds or {})[column.field_id], (file.upper_bounds or {})[column.field_id]
    return from_bytes(kind, lower), from_bytes(kind, upper)  # type: ignore[arg-type]  # a primitive, as checked above


def _nulls(column: NestedField, file: DataFile) -> int:
    if column.required:
        return 0
    return int((file.null_value_counts or {})[column.field_id])


def _between(name: str, span: _Range) -> BooleanExpression:
    at_least: Any = GreaterThanOrEqual
    at_most: Any = LessThanOrEqual
    return And(at_least(name, literal(span.lower)), at_most(name, literal(span.upper)))
