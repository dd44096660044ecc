"""What an input can say about what it reads, and that no more than that is read."""

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster import (
    AssetIn,
    AssetsDefinition,
    AssetSpec,
    DagsterInstance,
    DailyPartitionsDefinition,
    TimeWindowPartitionMapping,
    asset,
)
from pyspark.sql import DataFrame
from tests.runs import files_of, metadata_of, rows_of, run, run_alone

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager, Lake

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
KINDS: dict[str, Any] = {
    "spark": DataFrame,
    "arrow": pa.Table,
    "reader": pa.RecordBatchReader,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "lazy": pl.LazyFrame,
}
BLOB = 2_000_000


@pytest.fixture
def events(tables: IcebergTableManager, namespace: str) -> TableIdentifier:
    """Seven days of two rows, a file each, with a column that is heavy."""
    identifier = TableIdentifier(namespace=(namespace,), name="events")

    def day(number: int) -> pa.Table:
        at = FIRST + timedelta(days=number)
        heavy = [os.urandom(BLOB // 2).hex() for _ in range(2)]
        moments = pa.array([at, at + timedelta(hours=5)], pa.timestamp("us", tz="UTC"))
        return pa.table({"id": [number * 10, number * 10 + 1], "at": moments, "heavy": heavy})

    for number in range(7):
        tables.write_data(identifier, day(number), mode="append")
    return identifier


def as_rows(value: Any) -> list[dict[str, Any]]:
    """The rows of whatever arrived."""
    if isinstance(value, DataFrame):
        return [row.asDict() for row in value.collect()]
    if isinstance(value, pd.DataFrame):
        return list(pa.Table.from_pandas(value, preserve_index=False).to_pylist())
    if isinstance(value, pl.LazyFrame):
        value = value.collect()
    if isinstance(value, pl.DataFrame):
        value = value.to_arrow()
    if isinstance(value, pa.RecordBatchReader):
        value = value.read_all()
    return list(value.to_pylist())


def reading(events: TableIdentifier, kind: Any, seen: list[Any], **arguments: Any) -> list[Any]:
    """An asset that looks at the table, which somebody else writes."""
    metadata = arguments.pop("metadata", {})
    mapping = {"partition_mapping": arguments.pop("mapping")} if "mapping" in arguments else {}
    source = AssetSpec([events.namespace[0], "events"], partitions_def=arguments.get("partitions_def"))
    ins = {"events": AssetIn([events.namespace[0], "events"], metadata=metadata, **mapping)}

    def look(events: Any) -> None:
        seen.append((type(events), as_rows(events)))

    look.__annotations__["events"] = kind
    made: AssetsDefinition = asset(name="look", key_prefix=events.namespace[0], ins=ins, **arguments)(look)
    return [source, made]


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_arrives_as_it_is_annotated(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, events: TableIdentifier, kind: str
) -> None:
    seen: list[Any] = []
    said = {"columns": ["id"], "row_filter": "id >= 60"}
    run(reading(events, KINDS[kind], seen, metadata=said), project, instance)
    ((arrived, rows),) = seen
    assert issubclass(arrived, KINDS[kind])
    assert sorted(rows, key=str) == [{"id": 60}, {"id": 61}]


def test_an_input_without_an_annotation_is_a_lazy_spark_frame(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, events: TableIdentifier
) -> None:
    for path in files_of(lake.tables.load_table(events)):
        Path(path.removeprefix("file://")).unlink()  # nothing is read before it is asked for
    arrived: list[Any] = []

    @asset(key_prefix=events.namespace[0], ins={"events": AssetIn([events.namespace[0], "events"])})
    def look(events) -> None:  # type: ignore[no-untyped-def]
        arrived.append(events)

    run([AssetSpec([events.namespace[0], "events"]), look], project, instance)
    assert isinstance(arrived[0], DataFrame)
    assert arrived[0].columns == ["id", "at", "heavy"]


def bytes_read(process: str) -> int:
    """What a process has read from files and pipes so far, as the kernel counts it."""
    counted = dict(line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
    return int(counted["rchar"])


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_files_and_columns_that_are_asked_for_are_read(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, events: TableIdentifier, kind: str
) -> None:
    inside = lake.tables.scan(events, row_filter="id >= 60")
    needed = {task.file.file_path for task in inside.plan_files()}
    assert len(needed) == 1
    for path in files_of(lake.tables.load_table(events)) - needed:
        Path(path.removeprefix("file://")).unlink()
    jvm = lake.spark.sparkContext._jvm
    reader = str(jvm.java.lang.ProcessHandle.current().pid()) if kind == "spark" else "self"  # type: ignore[union-attr]
    amounts = {}
    for columns in (["id"], ["id", "heavy"]):
        seen: list[Any] = []
        before = bytes_read(reader)
        run(
            reading(events, KINDS[kind], seen, metadata={"columns": columns, "row_filter": "id >= 60"}),
            project,
            instance,
        )
        amounts[len(columns)] = bytes_read(reader) - before
        assert sorted(row["id"] for row in seen[0][1]) == [60, 61]
    # The two heavy values are 4 MB of digits, of which compression leaves about half.
    assert amounts[2] - amounts[1] > BLOB // 2


def test_a_partition_of_an_input_reads_no_other_files(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, events: TableIdentifier
) -> None:
    inside = lake.tables.scan(events, row_filter="id >= 60")
    for path in files_of(lake.tables.load_table(events)) - {task.file.file_path for task in inside.plan_files()}:
        Path(path.removeprefix("file://")).unlink()
    for kind in ("arrow", "spark"):
        seen: list[Any] = []
        said = {"partition_expr": "at"}
        assets = reading(events, KINDS[kind], seen, metadata=said, partitions_def=DAYS)
        run(assets, project, instance, partition_key="2026-01-07")
        assert sorted(row["id"] for row in seen[0][1]) == [60, 61]


@pytest.mark.parametrize("kind", ["arrow", "spark"])
@pytest.mark.parametrize("how", ["snapshot_id", "as_of", "ref"])
def test_the_past_is_read_where_an_input_asks_for_it(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str, kind: str, how: str
) -> None:
    table = TableIdentifier(namespace=(namespace,), name="events")
    first = lake.tables.write_data(table, pa.table({"id": [1]}), mode="append")
    lake.tables.create_tag(table, "yesterday")
    lake.tables.write_data(table, pa.table({"id": [2]}), mode="append")
    said = {"snapshot_id": first.snapshot_id, "as_of": first.timestamp.isoformat(), "ref": "yesterday"}[how]
    seen: list[Any] = []
    run(reading(table, KINDS[kind], seen, metadata={how: said}), project, instance)
    assert [row["id"] for row in seen[0][1]] == [1]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a moment without a zone": ({"as_of": "2026-01-01T00:00:00"}, "it needs a time zone"),
    "a moment that is none": ({"as_of": "yesterday"}, "as_of 'yesterday'"),
    "two moments": ({"snapshot_id": 1, "ref": "x"}, "are mutually exclusive"),
    "an unknown tag": ({"ref": "x"}, "has no tag or branch 'x'"),
    "an unknown column": ({"columns": ["x"]}, "no column 'x'"),
    "an unknown option": ({"floe/column": ["id"]}, "did you mean 'floe/columns'"),
    "an option of outputs": ({"floe/write_mode": "append"}, "is an option of an asset"),
    "a filter that cannot be read": ({"row_filter": "id >"}, "cannot be read"),
    "what is new, of the past": ({"since": True, "ref": "x"}, "since and ref are mutually exclusive"),
}


@pytest.mark.parametrize("kind", ["arrow", "spark"])
@pytest.mark.parametrize("case", WRONG)
def test_what_an_input_cannot_mean_is_refused(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str, case: str, kind: str
) -> None:
    table = TableIdentifier(namespace=(namespace,), name="events")
    lake.tables.write_data(table, pa.table({"id": [1]}), mode="append")
    metadata, words = WRONG[case]
    with pytest.raises(ConfigurationError, match=words):
        run(reading(table, KINDS[kind], [], metadata=metadata), project, instance)


@pytest.mark.parametrize("annotation", [int, list[int], dict, pa.RecordBatch])
def test_an_annotation_that_floe_cannot_make_lists_those_it_can(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str, annotation: Any
) -> None:
    table = TableIdentifier(namespace=(namespace,), name="events")
    tables.write_data(table, pa.table({"id": [1]}), mode="append")
    listed = (
        "one of pyspark.sql.DataFrame, pyarrow.Table, pyarrow.RecordBatchReader, pandas.DataFrame, polars.DataFrame"
    )
    with pytest.raises(ConfigurationError, match=listed):
        run(reading(table, annotation, []), project, instance)


def test_an_optional_annotation_counts(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    table = TableIdentifier(namespace=(namespace,), name="events")
    tables.write_data(table, pa.table({"id": [1]}), mode="append")
    seen: list[Any] = []
    run(reading(table, pd.DataFrame | None, seen), project, instance)
    assert seen[0][0] is pd.DataFrame


def test_column_projection_can_be_switched_off(
    project: CompiledArtifacts, tables: IcebergTableManager, instance: DagsterInstance, namespace: str
) -> None:
    table = TableIdentifier(namespace=(namespace,), name="events")
    tables.write_data(table, pa.table({"id": [1], "note": ["x"]}), mode="append")
    seen: list[Any] = []
    assets = reading(table, pa.Table, seen, metadata={"columns": ["id"]})
    run_alone(assets, project, instance, manager={"column_projection_enabled": False})
    assert seen[0][1] == [{"id": 1, "note": "x"}]


@pytest.mark.parametrize("kind", KINDS)
def test_the_day_before_the_first_is_empty_with_the_columns_of_the_table_if_there_is_one(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str, kind: str
) -> None:
    table = TableIdentifier(namespace=(namespace,), name="events")
    mapping = TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    shapes: list[list[str]] = []

    def columns(value: Any) -> list[str]:
        if isinstance(value, pl.LazyFrame):
            return value.collect_schema().names()
        return list(value.schema.names if isinstance(value, pa.Table | pa.RecordBatchReader) else value.columns)

    source = AssetSpec([namespace, "events"], partitions_def=DAYS)
    ins = {"events": AssetIn([namespace, "events"], partition_mapping=mapping, metadata={"partition_expr": "at"})}

    def look(events: Any) -> None:
        shapes.append(columns(events))
        assert as_rows(events) == []

    look.__annotations__["events"] = KINDS[kind]
    made = asset(name="look", key_prefix=namespace, ins=ins, partitions_def=DAYS)(look)
    run([source, made], project, instance, partition_key="2026-01-01")
    moments = pa.array([FIRST], pa.timestamp("us", tz="UTC"))
    lake.tables.write_data(table, pa.table({"id": [1], "at": moments}), mode="append")
    run([source, made], project, instance, partition_key="2026-01-01")
    assert shapes == [[], ["id", "at"]]


def test_what_spark_wrote_polars_reads_and_the_snapshot_says_what_it_was_made_from(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    @asset(key_prefix=namespace, metadata={"write_mode": "overwrite"})
    def made() -> DataFrame:
        return lake.spark.range(5).selectExpr("id", "id * 2 AS twice")

    @asset(
        key_prefix=namespace,
        metadata={"write_mode": "overwrite"},
        ins={"made": AssetIn([namespace, "made"])},
        code_version="7",
    )
    def halved(made: pl.LazyFrame) -> pl.LazyFrame:
        return made.filter(pl.col("id") > 2).select("id")

    done = run([made, halved], project, instance)
    assert rows_of(lake.tables, f"{namespace}.halved") == [{"id": 3}, {"id": 4}]
    first, second = metadata_of(done, "made"), metadata_of(done, "halved")
    snapshot = lake.tables.current_snapshot(TableIdentifier.from_string(f"{namespace}.halved"))
    assert snapshot is not None
    assert snapshot.summary["floe.input-snapshots"] == f"{namespace}.made@{first['floe/snapshot_id']}"
    assert second["floe/input_snapshots"] == snapshot.summary["floe.input-snapshots"]
    assert (snapshot.summary["floe.run-id"], snapshot.summary["floe.code-version"]) == (done.run_id, "7")
    assert second["floe/snapshot_id"] == str(snapshot.snapshot_id)
    assert second["floe/write_id"] == snapshot.summary["floe.write-id"]
    assert set(second["floe/seconds"]) >= {"validating", "writing", "describing"}
    event = instance.get_latest_materialization_event(next(iter(halved.keys)))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.tags is not None
    assert event.asset_materialization.tags["dagster/data_version"] == str(snapshot.snapshot_id)
