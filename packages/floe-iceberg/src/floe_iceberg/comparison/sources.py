"""The rows of planned files for DuckDB: each with the number of its partition, and with comparable values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyiceberg.table import FileScanTask
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from floe_core.identifiers import TableIdentifier
from floe_iceberg.comparison.columns import ComparedColumns
from floe_iceberg.query.dataset import TableDataset
from floe_iceberg.query.parquet_files import FileGroup, local_path, readable, split
from floe_iceberg.query.session import Session, quoted, quoted_text
from floe_iceberg.reading import scan

__all__ = ["PARTITION", "FileRows", "comparable"]

PARTITION = "floe_partition"

_PATH = "floe_path"
# Partitions are folders such as day=2026-01-31, which DuckDB would take for a column.
_OPTIONS = (
    f"hive_partitioning = false, union_by_name = false, filename = {quoted_text(_PATH)}, binary_as_string = false"
)


class _PartitionedDataset(TableDataset):
    """Files of a scan, with the number of the partition as the last column."""

    def __init__(
        self, planned: object, tasks: Sequence[FileScanTask], partition_of: Callable[[FileScanTask], int]
    ) -> None:
        super().__init__(planned, tasks)
        self._columns = self._schema.names
        self._schema = self._schema.append(pa.field(PARTITION, pa.int32()))
        self._partition_of = partition_of

    def _open(self, columns: tuple[str, ...]) -> pa.RecordBatchReader:
        schema = pa.schema([self._schema.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema))

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        read = tuple(name for name in schema.names if name != PARTITION) or (self._columns[0],)
        groups: dict[int, list[FileScanTask]] = {}
        for task in self.tasks:
            groups.setdefault(self._partition_of(task), []).append(task)
        rows = self._scan.update(selected_fields=read)
        for number, tasks in groups.items():
            for batch in rows.to_arrow_batch_reader(tasks=tasks):
                of_partition = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
                arrays = [of_partition if name == PARTITION else batch.column(name) for name in schema.names]
                yield pa.record_batch(arrays, schema=schema)


class FileRows:
    """The rows of the files of one snapshot, which DuckDB reads itself where it can.

    Args:
        name: The name of the view.
        tasks: The files.
        partition_of: The number of the partition of a file.
    """

    def __init__(
        self,
        session: Session,
        columns: ComparedColumns,
        identifier: TableIdentifier,
        snapshot_id: int,
        *,
        name: str,
        tasks: Sequence[FileScanTask],
        partition_of: Callable[[FileScanTask], int],
    ) -> None:
        self.name = name
        self._session = session
        self._columns = columns
        self._partition_of = partition_of
        self._scan = scan(columns.table, identifier, columns=columns.names, snapshot_id=snapshot_id, traced=False)
        self.dataset = _PartitionedDataset(self._scan, tasks, partition_of)
        self._register()
        described = session.connection.execute(f"DESCRIBE {quoted(self._dataset_name)}").fetchall()
        types = {str(column[0]): str(column[1]) for column in described}
        table = columns.table
        try:
            own = readable(tasks, table.io)
            self.groups, rest = split(session, tasks, own, table.metadata, columns.schema, types)
        except Exception as exc:
            if not type(exc).__module__.startswith(("duckdb", "_duckdb")):
                raise
            self.groups, rest = [], list(tasks)  # a file that DuckDB cannot open; reading it says what is wrong
        self.dataset.tasks = tuple(rest)

    @property
    def _dataset_name(self) -> str:
        return f"{self.name}_arrow"

    def _register(self) -> None:
        self._session.connection.register(self._dataset_name, self.dataset)

    @property
    def paths(self) -> list[str]:
        """The files that DuckDB reads itself."""
        return [path for group in self.groups for path in group.paths]

    def create_view(self) -> None:
        """Create the view: the compared columns, and the number of the partition."""
        names = [quoted(name) for name in self._columns.names]
        parts = [self._of_group(group, number) for number, group in enumerate(self.groups)]
        if self.dataset.tasks or not parts:
            parts.append(f"SELECT {', '.join([*names, PARTITION])} FROM {quoted(self._dataset_name)}")  # noqa: S608
        self._session.connection.execute(f"CREATE VIEW {quoted(self.name)} AS {' UNION ALL '.join(parts)}")

    def _of_group(self, group: FileGroup, place: int) -> str:
        """Files with the same columns, joined with the numbers of their partitions by their paths."""
        table = f"{self.name}_paths_{place}"
        pairs = [(local_path(task), self._partition_of(task)) for task in group.tasks]
        paths = pa.table(
            {"path": [path for path, _ in pairs], "number": pa.array([one for _, one in pairs], pa.int32())}
        )
        self._session.connection.register(table, paths)
        files = ", ".join(map(quoted_text, group.paths))
        return (
            f"SELECT r.* EXCLUDE ({_PATH}), p.number AS {PARTITION} "  # noqa: S608 - names are quoted
            f"FROM (FROM read_parquet([{files}], {_OPTIONS}) SELECT {', '.join(group.expressions)}, {_PATH}) r "
            f"LEFT JOIN {quoted(table)} p ON p.path = r.{_PATH}"
        )

    def damage(self, message: str) -> Exception | None:
        """What Floe's own reader says about the file that a message of DuckDB names; about all, if it names none."""
        tasks = [task for group in self.groups for task in group.tasks]
        named = [task for task in tasks if (local_path(task) or message) in message]
        return next((error for error in map(self._read_error, named or tasks) if error is not None), None)

    def _read_error(self, task: FileScanTask) -> Exception | None:
        try:
            for _batch in self._scan.update(selected_fields=("*",)).to_arrow_batch_reader(tasks=[task]):  # type: ignore[call-arg]
                pass
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with the file is what to report
            return exc
        return None


def comparable(name: str, kind: IcebergType, *, depth: int = 0) -> str:
    """A column whose values are equal if and only if they are the same: the entries of maps have no order."""
    if not _has_map(kind):
        return name
    inner = f"v{depth}"
    if isinstance(kind, MapType):
        key = comparable(f"{inner}.key", kind.key_type, depth=depth + 1)
        value = comparable(f"{inner}.value", kind.value_type, depth=depth + 1)
        entry = f'struct_pack("key" := {key}, "value" := {value})'
        made = f"list_sort(list_transform(map_entries({name}), lambda {inner}: {entry}))"
    elif isinstance(kind, ListType):
        made = f"list_transform({name}, lambda {inner}: {comparable(inner, kind.element_type, depth=depth + 1)})"
    elif isinstance(kind, StructType):
        fields = (
            f"{quoted(field.name)} := {comparable(f'{name}.{quoted(field.name)}', field.field_type, depth=depth)}"
            for field in kind.fields
        )
        made = f"struct_pack({', '.join(fields)})"
    else:
        return name
    return f"CASE WHEN {name} IS NULL THEN NULL ELSE {made} END"


def _has_map(kind: IcebergType) -> bool:
    if isinstance(kind, MapType):
        return True
    if isinstance(kind, StructType):
        return any(_has_map(field.field_type) for field in kind.fields)
    return isinstance(kind, ListType) and _has_map(kind.element_type)
