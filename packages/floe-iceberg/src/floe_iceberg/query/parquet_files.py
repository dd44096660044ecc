"""Which files of a table DuckDB may read itself: those whose columns map to the table's by their field ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType, IcebergType, ListType, MapType, NestedField, StructType

from floe_iceberg.query.session import Session, quoted

__all__ = ["FileGroup", "local_path", "readable", "split"]

# DuckDB takes each of them as a pattern.
_PATTERN = set("*?[]{}")
# Widening that Iceberg allows, as a cast that DuckDB makes exactly.
_WIDER = {("INTEGER", "BIGINT"), ("FLOAT", "DOUBLE")}
_FLOATS = ("FLOAT", "DOUBLE")

_COLUMNS = """
SELECT columns, list(file_name)
FROM (
    SELECT file_name, list([name, field_id::VARCHAR, num_children::VARCHAR, duckdb_type] ORDER BY column_id) AS columns
    FROM parquet_schema($files) GROUP BY file_name
) GROUP BY columns
"""


@dataclass(frozen=True)
class FileGroup:
    """Files with the same columns, and how each column of the table is made from them, in the order of the table."""

    expressions: tuple[str, ...]
    tasks: tuple[FileScanTask, ...]

    @property
    def paths(self) -> list[str]:
        return [path for task in self.tasks if (path := local_path(task)) is not None]


def readable(tasks: Sequence[FileScanTask], io: object) -> dict[str, FileScanTask]:
    """The files that DuckDB may be able to read itself, by their paths.

    Args:
        io: The FileIO of the table; another one than PyIceberg's may store files elsewhere than their address says.
    """
    by_path = {local_path(task): task for task in tasks if isinstance(io, PyArrowFileIO)}
    return {path: task for path, task in by_path.items() if path is not None and _is_plain(task)}


def split(
    session: Session,
    tasks: Sequence[FileScanTask],
    own: Mapping[str, FileScanTask],
    metadata: TableMetadata,
    schema: Schema,
    types: Mapping[str, str],
) -> tuple[list[FileGroup], list[FileScanTask]]:
    """The files that DuckDB reads itself, by their columns, and the others.

    Args:
        own: Those of them that are `readable`.
        schema: The columns of the table.
        types: DuckDB's type of each of them.
    """
    if not own:
        return [], list(tasks)
    partitioned = {
        field.source_id
        for spec in metadata.partition_specs
        for field in spec.fields
        if isinstance(field.transform, IdentityTransform)
    }
    groups = []
    paths_read = tuple(own)
    if paths_read not in session.columns:
        session.columns[paths_read] = session.connection.execute(_COLUMNS, {"files": list(own)}).fetchall()
    for nodes, paths in session.columns[paths_read]:
        expressions = _expressions([_Node.of(node) for node in nodes], schema, types, partitioned)
        if expressions is not None:
            groups.append(FileGroup(expressions, tuple(own[path] for path in paths)))
    read = {id(task) for group in groups for task in group.tasks}
    return groups, [task for task in tasks if id(task) not in read]


def local_path(task: FileScanTask) -> str | None:
    """The path of a file on this machine; None if it is elsewhere, or DuckDB would take the path for a pattern."""
    scheme, _, path = PyArrowFileIO.parse_location(task.file.file_path)
    return path if scheme == "file" and path.startswith("/") and not _PATTERN & set(path) else None


def _is_plain(task: FileScanTask) -> bool:
    return task.file.file_format == FileFormat.PARQUET and not task.delete_files


@dataclass(frozen=True)
class _Node:
    """A column in a file, or a part of one, in the order of the file's schema."""

    name: str
    field_id: int | None
    children: int
    kind: str | None

    @classmethod
    def of(cls, values: Sequence[Any]) -> _Node:
        name, field_id, children, kind = values
        return cls(str(name), None if field_id is None else int(field_id), int(children or 0), kind)


def _expressions(
    nodes: Sequence[_Node], schema: Schema, types: Mapping[str, str], partitioned: set[int]
) -> tuple[str, ...] | None:
    """How each column of the table is made from the columns of a file; None if that is not certain."""
    top = list(_top_level(nodes))
    names = [node.name.casefold() for node, _ in top]
    ids = [node.field_id for node, _ in top]
    if None in ids or len(set(ids)) < len(ids) or len(set(names)) < len(names):
        return None
    by_id = {node.field_id: (node, below) for node, below in top}
    made = [_expression(field, by_id.get(field.field_id), types[field.name], partitioned) for field in schema.fields]
    return None if any(one is None for one in made) else tuple(one for one in made if one is not None)


def _expression(
    field: NestedField, found: tuple[_Node, list[int]] | None, kind: str, partitioned: set[int]
) -> str | None:
    if found is None:
        # The value of an identity partition is in the metadata then, and a default in the schema.
        absent = not field.required and field.initial_default is None and field.field_id not in partitioned
        return f"CAST(NULL AS {kind}) AS {quoted(field.name)}" if absent else None
    node, below = found
    column = quoted(node.name)
    if node.kind == kind and below == list(_ids(field.field_type)):
        # A part that is a float cannot be shielded like a column.
        return None if below and _has_float(field.field_type) else f"{_shielded(column, kind)} AS {quoted(field.name)}"
    if node.kind is not None and _widens(node.kind, kind):
        return f"CAST({_shielded(column, node.kind)} AS {kind}) AS {quoted(field.name)}"
    return None


def _shielded(column: str, kind: str) -> str:
    """The column without the minimum and maximum of the file: these leave NaN out, and DuckDB relies on them."""
    return f"CASE WHEN isnan({column}) THEN 'NaN'::{kind} ELSE {column} END" if kind in _FLOATS else column


def _has_float(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_float(field.field_type) for field in kind.fields)
    if isinstance(kind, ListType):
        return _has_float(kind.element_type)
    if isinstance(kind, MapType):
        return _has_float(kind.key_type) or _has_float(kind.value_type)
    return isinstance(kind, FloatType | DoubleType)


def _widens(stored: str, kind: str) -> bool:
    if (stored, kind) in _WIDER:
        return True
    if not (stored.startswith("DECIMAL(") and kind.startswith("DECIMAL(")):
        return False
    (precision, scale), (wider, same) = (one[8:-1].split(",") for one in (stored, kind))
    return scale == same and int(precision) <= int(wider)


def _top_level(nodes: Sequence[_Node]) -> Iterator[tuple[_Node, list[int]]]:
    """The columns of a file, each with the field ids of its parts; the first node is the root."""
    position = 1
    while position < len(nodes):
        end = _end(nodes, position)
        below = [node.field_id for node in nodes[position + 1 : end] if node.field_id is not None]
        yield nodes[position], below
        position = end


def _end(nodes: Sequence[_Node], position: int) -> int:
    """The place after a node and everything in it."""
    end = position + 1
    for _ in range(nodes[position].children):
        end = _end(nodes, end)
    return end


def _ids(kind: IcebergType) -> Iterator[int]:
    """The field ids of the parts of a type, in the order of a file."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield field.field_id
            yield from _ids(field.field_type)
    elif isinstance(kind, ListType):
        yield kind.element_id
        yield from _ids(kind.element_type)
    elif isinstance(kind, MapType):
        yield kind.key_id
        yield from _ids(kind.key_type)
        yield kind.value_id
        yield from _ids(kind.value_type)
