"""Both engines behind one set of verbs, in Arrow: what a behaviour test says once is run for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyspark.sql.pandas.types import from_arrow_schema

from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform, PartitionTransformType, SnapshotInfo
from floe_iceberg import Lake
from tests.catalogs import SideLake

__all__ = [
    "BY_DAY",
    "FIRST",
    "ArrowEngine",
    "Engine",
    "SparkEngine",
    "day",
    "days",
    "events",
    "live_files",
    "meanwhile",
    "rows_of",
    "transform",
]

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Engine(Protocol):
    """What the tests ask of an engine."""

    name: str
    lake: Lake

    def write(self, table: TableIdentifier, data: pa.Table, **options: Any) -> SnapshotInfo: ...

    def read(self, table: TableIdentifier, **options: Any) -> pa.Table: ...


class ArrowEngine:
    """PyIceberg: no JVM."""

    name = "arrow"

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def write(self, table: TableIdentifier, data: pa.Table, **options: Any) -> SnapshotInfo:
        return self.lake.tables.write_data(table, data, **options)

    def read(self, table: TableIdentifier, **options: Any) -> pa.Table:
        return self.lake.tables.scan(table, **options).to_arrow()


class SparkEngine:
    """PySpark; the same data as a DataFrame."""

    name = "spark"

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def write(self, table: TableIdentifier, data: pa.Table, **options: Any) -> SnapshotInfo:
        schema = from_arrow_schema(data.schema, prefer_timestamp_ntz=True)
        frame = self.lake.spark.createDataFrame(data, schema)
        if isinstance(self.lake, SideLake):
            self.lake.step_aside()
        return self.lake.write(frame, table, **options).snapshot

    def read(self, table: TableIdentifier, **options: Any) -> pa.Table:
        return self.lake.read(table, **options).toArrow()


def day(number: int) -> datetime:
    return FIRST + timedelta(days=number)


def days(*numbers: int, column: str = "at") -> TableSlice:
    return TableSlice.of_windows(column, [(day(number), day(number + 1)) for number in numbers])


def events(*numbers: int, rows: int = 10, note: str = "v1") -> pa.Table:
    """`rows` rows for each of the days, spread over the day; ids are unique among them."""
    moments = [day(number) + timedelta(seconds=86_400 * place // rows) for number in numbers for place in range(rows)]
    return pa.table(
        {
            "id": pa.array([number * 10_000 + place for number in numbers for place in range(rows)], pa.int64()),
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "note": pa.array([note] * len(moments)),
        }
    )


def transform(kind: str, column: str = "at", **arguments: int) -> PartitionTransform:
    return PartitionTransform(source_column=column, transform_type=PartitionTransformType(kind), **arguments)


BY_DAY = [transform("day")]


def live_files(lake: Lake, table: TableIdentifier) -> dict[str, set[str]]:
    """The data files of the table by partition."""
    found: dict[str, set[str]] = {}
    for task in lake.tables.load_table(table).scan().plan_files():
        found.setdefault(str(task.file.partition), set()).add(task.file.file_path)
    return found


def rows_of(data: pa.Table) -> list[tuple[Any, ...]]:
    """The rows in an order of their own, to compare what was read with what was written."""
    return sorted((tuple(row.values()) for row in data.to_pylist()), key=str)


@contextmanager
def meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> Iterator[None]:
    """Let somebody else act once, just after a write has looked at its table and before it commits."""
    look = lake.tables.find_table
    acted: list[bool] = []

    def look_then_act(identifier: TableIdentifier) -> Table | None:
        found = look(identifier)
        if not acted:
            acted.append(True)
            action()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(lake.tables, "find_table", look_then_act)
        yield
    assert acted, "the write did not look"
