"""Faults that were found by trying to break the Spark path; each stays mended."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timezone

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812
from tests.catalogs import CATALOGS, WITHOUT_SEAWEEDFS
from tests.engines import BY_DAY, Engine, SparkEngine, day, events, rows_of, transform

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, FloeError, SchemaEvolutionError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake
from floe_iceberg.schema.changes import AddColumn
from floe_spark.writing import commits
from floe_spark.writing.frames import OUTSIDE


@pytest.fixture(scope="session", params=WITHOUT_SEAWEEDFS)
def catalog(request: pytest.FixtureRequest) -> Lake:
    opened: Lake = request.getfixturevalue(CATALOGS[request.param])
    return opened


@pytest.mark.parametrize("words", ["n < 5", "n <= 5", "NOT n > 5", "n < 5 OR n = 100"])
@pytest.mark.parametrize("kind", ["identity", "bucket", "truncate"])
def test_less_than_leaves_the_rows_without_a_value(
    engine: Engine, table: TableIdentifier, words: str, kind: str
) -> None:
    arguments = {"bucket": {"num_buckets": 4}, "truncate": {"width": 10}}.get(kind, {})
    data = pa.table({"n": pa.array([1, 9, None], pa.int64()), "note": ["a", "z", "keep"]})
    engine.write(table, data, mode="append", partition_by=[transform(kind, "n", **arguments)])
    engine.write(table, pa.table({"n": [2], "note": ["new"]}), mode="overwrite", overwrite_filter=words)
    assert rows_of(engine.read(table)) == [(2, "new"), (9, "z"), (None, "keep")]


def _uuids(count: int) -> list[uuid.UUID]:
    return [uuid.UUID(int=0xABCDEF << 96 | number) for number in range(1, count + 1)]


def test_uuids_are_found_by_filter_and_by_key_however_they_are_spelt(catalog: Lake, table: TableIdentifier) -> None:
    ids = _uuids(3)
    stored = pa.array([one.bytes for one in ids], pa.binary(16)).cast(pa.uuid())
    catalog.tables.write_data(table, pa.table({"u": stored, "n": [1, 2, 3]}), mode="append")
    spark = SparkEngine(catalog)
    assert spark.read(table, row_filter=f"u = '{ids[1]}'")["n"].to_pylist() == [2]
    spark.write(table, pa.table({"u": [str(ids[2]).upper()], "n": [30]}), mode="upsert", keys=["u"])
    assert sorted(spark.read(table)["n"].to_pylist()) == [1, 2, 30]
    spark.write(
        table,
        pa.table({"u": pa.array([], pa.string()), "n": pa.array([], pa.int64())}),
        mode="overwrite",
        overwrite_filter=f"u != '{ids[0]}'",
    )
    assert spark.read(table)["n"].to_pylist() == [1]


def test_a_partitioning_that_changed_meanwhile_is_a_conflict_for_an_overwrite(
    catalog: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pa.table({"id": [1, 2], "city": ["a", "b"], "kind": ["x", "y"]})
    spark = SparkEngine(catalog)
    spark.write(table, data, mode="append", partition_by=[transform("identity", "city")])
    plain = commits._send

    def intrude(act: Callable[[str | None], object], branch: str | None) -> None:
        catalog.tables.evolve_partitions(table, [transform("identity", "kind")])
        plain(act, branch)

    monkeypatch.setattr(commits, "_send", intrude)
    with pytest.raises(ConcurrencyConflictError, match="changed the partitioning"):
        spark.write(table, data.slice(0, 1), mode="overwrite", dynamic_partitions=True)
    assert rows_of(spark.read(table)) == rows_of(data)


def _stale(catalog: Lake, table: TableIdentifier, how: str) -> object:
    if how == "a subquery":
        catalog.read(table).createOrReplaceTempView("own")
        return catalog.spark.sql("SELECT id, 'new' AS note FROM range(1, 3) WHERE id IN (SELECT id FROM own)")
    if how == "main by name":
        return catalog.read(table, ref="main").withColumn("note", F.lit("new"))
    catalog.tables.evolve_schema(table, AddColumn("phone", pa.string()))
    return catalog.read(table).withColumn("note", F.lit("new"))


@pytest.mark.parametrize("how", ["a subquery", "main by name", "after a change of the schema"])
def test_what_was_read_from_the_table_itself_does_not_replace_what_came_later(
    catalog: Lake, table: TableIdentifier, how: str
) -> None:
    catalog.tables.write_data(table, pa.table({"id": [1], "note": ["old"]}), mode="append")
    frame = _stale(catalog, table, how)
    frame.cache().count()  # type: ignore[attr-defined]
    catalog.tables.write_data(table, pa.table({"id": [2], "note": ["theirs"]}), mode="append")
    with pytest.raises(ConcurrencyConflictError):
        catalog.write(frame, table, mode="overwrite")  # type: ignore[arg-type]
    assert sorted(row.note for row in catalog.read(table).collect()) == ["old", "theirs"]


def test_a_branch_is_not_a_moment_of_the_past(catalog: Lake, table: TableIdentifier) -> None:
    catalog.tables.write_data(table, pa.table({"id": [1]}), mode="append")
    catalog.tables.create_branch(table, "dev")
    frame = catalog.read(table, ref="dev")
    catalog.tables.write_data(table, pa.table({"id": [2]}), mode="append", branch="dev")
    with pytest.raises(ConcurrencyConflictError):
        catalog.write(frame, table, mode="overwrite", branch="dev")
    assert catalog.read(table, ref="dev").count() == 2


BRICKS = {
    "a column without a name": "SELECT 1 AS id, 2 AS ``",
    "names that differ in case inside of a struct": "SELECT 1 AS id, named_struct('a', 1, 'A', 2) AS s",
    "a variant": "SELECT 1 AS id, parse_json('1') AS v",
}


@pytest.mark.parametrize("what", BRICKS)
def test_data_that_would_spoil_the_schema_is_refused_before_it_changes(
    catalog: Lake, table: TableIdentifier, what: str
) -> None:
    catalog.tables.write_data(table, pa.table({"id": pa.array([1], pa.int32())}), mode="append")
    with pytest.raises(SchemaEvolutionError, match=r"[Nn]othing was written"):
        catalog.write(catalog.spark.sql(BRICKS[what]), table, mode="append")
    assert catalog.tables.load_table(table).schema().column_names == ["id"]


@pytest.mark.parametrize(
    "options", [{"overwrite_filter": "typo = 1"}, {"overwrite_filter": "= ="}, {"dynamic_partitions": True}]
)
def test_a_mistake_does_not_change_the_schema(
    catalog: Lake, table: TableIdentifier, options: dict[str, object]
) -> None:
    catalog.tables.write_data(table, pa.table({"id": [1]}), mode="append")
    frame = catalog.spark.sql("SELECT 1L AS id, 2 AS extra")
    with pytest.raises(ConfigurationError):
        catalog.write(frame, table, mode="overwrite", **options)
    assert catalog.tables.load_table(table).schema().column_names == ["id"]


def test_moments_beyond_pythons_years_are_replaced_too(catalog: Lake, table: TableIdentifier) -> None:
    frame = catalog.spark.sql("SELECT 1 AS id, timestamp_micros(400000000000000000) AS at")
    catalog.write(frame, table, mode="append")
    spark = SparkEngine(catalog)
    spark.write(
        table,
        pa.table({"id": pa.array([2], pa.int32()), "at": pa.array([day(0)], pa.timestamp("us", "UTC"))}),
        mode="overwrite",
        overwrite_filter="id = 2",
    )
    assert catalog.read(table).count() == 2


@pytest.mark.parametrize("name", ["sp ace", "ü", "x`y", "1st"])
@pytest.mark.parametrize("kind", ["day", "identity"])
def test_a_partition_column_may_have_any_name(catalog: Lake, table: TableIdentifier, name: str, kind: str) -> None:
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    data = pa.table({name: pa.array([moment], pa.timestamp("us", "UTC"))})
    SparkEngine(catalog).write(table, data, mode="append", partition_by=[transform(kind, name)])
    assert rows_of(SparkEngine(catalog).read(table)) == [(moment,)]


def test_a_refusal_speaks_of_rows_only_if_there_are_some(
    catalog: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = SparkEngine(catalog)
    spark.write(table, events(0), mode="append", partition_by=BY_DAY)
    plain = commits._send

    def intrude(act: Callable[[str | None], object], branch: str | None) -> None:
        del act, branch
        plain(lambda _: catalog.spark.sql(f"SELECT nope, '{OUTSIDE}'").collect(), None)

    monkeypatch.setattr(commits, "_send", intrude)
    with pytest.raises(Exception, match="nope") as failure:
        spark.write(table, events(0), mode="overwrite", overwrite_filter="id >= 0")
    assert "0 rows" not in str(failure.value)


def test_what_is_not_a_frame_is_refused(catalog: Lake, table: TableIdentifier) -> None:
    with pytest.raises(FloeError, match="must be a Spark DataFrame"):
        catalog.write([1, 2], table, mode="append")  # type: ignore[arg-type]
