"""Upserts with Spark: by keys, once, in one snapshot, from sources of every kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, WriteMode
from floe_iceberg import Lake
from floe_iceberg.snapshots.snapshots import WRITE_ID
from floe_spark.writing import commits

UPSERT = WriteMode.UPSERT


def people(lake: Lake, start: int, end: int, note: str = "old") -> DataFrame:
    kind = F.when(F.col("id") % 2 == 0, "a").otherwise("b")
    return lake.spark.range(start, end).select("id", kind.alias("kind"), F.lit(note).alias("note"))


def notes(lake: Lake, table: TableIdentifier, **options: object) -> dict[int, str]:
    rows = lake.read(table, **options).collect()
    assert len({row.id for row in rows}) == len(rows)
    return {row.id: row.note for row in rows}


def test_rows_found_by_their_keys_change_and_the_others_are_added(lake: Lake, table: TableIdentifier) -> None:
    created = lake.write(people(lake, 0, 10), table, mode=UPSERT, keys=["id"])
    result = lake.write(
        people(lake, 5, 15, "new"), table, mode=UPSERT, keys=["id"], write_id="u-1", snapshot_properties={"by": "crm"}
    )
    again = lake.write(people(lake, 5, 15, "again"), table, mode=UPSERT, keys=["id"], write_id="u-1")

    assert created.created
    assert notes(lake, table) == dict.fromkeys(range(5), "old") | dict.fromkeys(range(5, 15), "new")
    assert (result.snapshot.summary[WRITE_ID], result.snapshot.summary["by"]) == ("u-1", "crm")
    assert again.deduplicated
    assert len(lake.tables.list_snapshots(table)) == 2


def test_several_columns_together_are_a_key(lake: Lake, table: TableIdentifier) -> None:
    both = lake.spark.sql("SELECT * FROM VALUES (1, 'x', 'old'), (1, 'y', 'old') AS t(id, kind, note)")
    by_kind = [PartitionTransform.model_validate({"source_column": "kind", "transform_type": "identity"})]
    lake.write(both, table, mode=WriteMode.APPEND, partition_by=by_kind)
    new = lake.spark.sql("SELECT 'new' AS note, 'y' AS kind, 1 AS id")
    lake.write(new, table, mode=UPSERT, keys=["id", "kind"])
    assert {(row.kind, row.note) for row in lake.read(table).collect()} == {("x", "old"), ("y", "new")}


def test_a_matched_row_keeps_what_the_data_does_not_have(lake: Lake, table: TableIdentifier) -> None:
    lake.write(people(lake, 0, 2), table, mode=WriteMode.APPEND)
    result = lake.write(lake.spark.range(1, 3).withColumn("phone", F.lit("0731")), table, mode=UPSERT, keys=["id"])
    assert str(result.schema_change) == "+phone string"
    rows = {row.id: (row.kind, row.note, row.phone) for row in lake.read(table).collect()}
    assert rows == {0: ("a", "old", None), 1: ("b", "old", "0731"), 2: (None, None, "0731")}


def test_keys_alone_add_only_what_is_missing(lake: Lake, table: TableIdentifier) -> None:
    lake.write(people(lake, 0, 2), table, mode=WriteMode.APPEND)
    lake.write(lake.spark.range(1, 3), table, mode=UPSERT, keys=["id"])
    assert notes(lake, table) == {0: "old", 1: "old", 2: None}


@pytest.mark.parametrize("exists", [True, False], ids=["existing", "new"])
def test_rows_without_a_key_or_with_the_same_are_refused(lake: Lake, table: TableIdentifier, exists: bool) -> None:
    if exists:
        lake.write(people(lake, 0, 10), table, mode=WriteMode.APPEND)
    bad = (
        people(lake, 0, 5)
        .unionByName(people(lake, 3, 5))
        .unionByName(
            people(lake, 0, 3).withColumn("id", F.lit(None).cast("long")).withColumn("extra", F.lit(1)),
            allowMissingColumns=True,
        )
    )
    with pytest.raises(
        FloeStorageError, match=r"3 rows have no id; 2 keys occur more than once \((3, 4|4, 3)\)"
    ) as said:
        lake.write(bad, table, mode=UPSERT, keys=["id"])
    assert "Nothing was written" in str(said.value)
    if exists:
        assert lake.tables.load_table(table).schema().column_names == ["id", "kind", "note"]
    assert lake.tables.table_exists(table) is exists


def test_rows_without_a_part_of_their_key_are_shown(lake: Lake, table: TableIdentifier) -> None:
    part = lake.spark.sql("SELECT * FROM VALUES (1, 'x'), (1, NULL), (2, 'x'), (2, 'x') AS t(id, kind)")
    with pytest.raises(
        FloeStorageError, match=r"1 row has no id or kind \(id = 1, kind = NULL\); 1 key .*id = 2, kind = x"
    ):
        lake.write(part, table, mode=UPSERT, keys=["id", "kind"])
    assert not lake.tables.table_exists(table)


@pytest.mark.parametrize("keys", [["nope"], ["ident"]])
def test_keys_that_are_not_columns_are_refused(lake: Lake, table: TableIdentifier, keys: list[str]) -> None:
    lake.write(people(lake, 0, 2), table, mode=WriteMode.APPEND)
    with pytest.raises(ConfigurationError, match="no column"):
        lake.write(people(lake, 0, 2).withColumn("ident", F.col("id")), table, mode=UPSERT, keys=keys)
    assert lake.tables.load_table(table).schema().column_names == ["id", "kind", "note"]


SOURCES: dict[str, Callable[[], Column]] = {
    "rand": F.rand,
    "uuid": lambda: F.expr("uuid()"),
    "monotonic": F.monotonically_increasing_id,
    "python": lambda: F.udf(lambda: str(random.random())).asNondeterministic()(),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_that_answers_differently_each_time_is_asked_once(
    lake: Lake, table: TableIdentifier, name: str
) -> None:
    lake.write(people(lake, 0, 20), table, mode=WriteMode.APPEND)
    new = people(lake, 10, 30).withColumn("note", SOURCES[name]().cast("string"))
    lake.write(new, table, mode=UPSERT, keys=["id"])
    assert len(notes(lake, table)) == 30


def test_keys_that_change_with_each_look_are_checked_as_they_are_written(lake: Lake, table: TableIdentifier) -> None:
    lake.write(people(lake, 0, 20), table, mode=WriteMode.APPEND)
    drawn = lake.spark.range(50).select(F.floor(F.rand() * 30).alias("id"), F.lit("x").alias("kind"))
    with pytest.raises(FloeStorageError, match="occur more than once"):
        lake.write(drawn, table, mode=UPSERT, keys=["id"])
    lake.write(drawn.dropDuplicates(["id"]), table, mode=UPSERT, keys=["id"])
    assert len({row.id for row in lake.read(table).collect()}) == lake.read(table).count()


def test_upserts_at_once_never_take_over_each_others_properties(lake: Lake, table: TableIdentifier) -> None:
    tables = [table.model_copy(update={"name": f"events{number}"}) for number in range(4)]
    for one in tables:
        lake.write(people(lake, 0, 10), one, mode=WriteMode.APPEND)

    def upsert(number: int) -> None:
        for turn in range(2):
            lake.write(
                people(lake, 5, 15, f"{turn}"),
                tables[number],
                mode=UPSERT,
                keys=["id"],
                write_id=f"{number}-{turn}",
                snapshot_properties={f"mark-{number}": "x"},
            )
            bare = lake.spark.range(1000 + turn, 1001 + turn).selectExpr("id", "'a' AS kind", "'bare' AS note")
            bare.writeTo(f"lake.`{table.namespace[0]}`.{tables[number].name}").append()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(upsert, range(4)))
    for number, one in enumerate(tables):
        snapshots = lake.tables.list_snapshots(one)
        ids = [snapshot.summary.get(WRITE_ID) for snapshot in snapshots][1:]
        assert ids == [f"{number}-0", None, f"{number}-1", None]
        marks = [[key for key in snapshot.summary if key.startswith("mark-")] for snapshot in snapshots][1:]
        assert marks == [[f"mark-{number}"], [], [f"mark-{number}"], []]


@pytest.mark.parametrize("number", [7, 100], ids=["of a key being added", "of another key"])
def test_a_row_that_appears_during_a_merge_is_neither_lost_nor_doubled(
    lake: Lake, table: TableIdentifier, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(people(lake, 0, 5), table, mode=WriteMode.APPEND)
    row = pa.table({"id": [number], "kind": ["z"], "note": ["theirs"]})
    plain, sent = commits._send, []

    def intrude(act: Callable[[str | None], object], branch: str | None) -> None:
        plain(act, branch)
        sent.append(branch)
        if len(sent) == 1:
            lake.tables.write_data(table, row, mode=WriteMode.APPEND)

    monkeypatch.setattr(commits, "_send", intrude)
    lake.write(people(lake, 3, 10, "new"), table, mode=UPSERT, keys=["id"])
    merged = dict.fromkeys(range(3), "old") | {number: "theirs"} | dict.fromkeys(range(3, 10), "new")
    assert notes(lake, table) == merged
    assert len(lake.tables.list_snapshots(table)) == 3


def test_an_upsert_goes_to_a_branch(lake: Lake, table: TableIdentifier) -> None:
    lake.write(people(lake, 0, 5), table, mode=WriteMode.APPEND)
    lake.tables.create_branch(table, "trial")
    lake.write(people(lake, 3, 8, "new"), table, mode=UPSERT, keys=["id"], branch="trial", write_id="u")
    again = lake.write(people(lake, 3, 8, "new"), table, mode=UPSERT, keys=["id"], branch="trial", write_id="u")
    assert again.deduplicated
    assert notes(lake, table) == dict.fromkeys(range(5), "old")
    assert notes(lake, table, ref="trial") == dict.fromkeys(range(3), "old") | dict.fromkeys(range(3, 8), "new")


@pytest.mark.parametrize("transform", [None, "identity", "bucket"])
def test_names_with_backticks_are_keys_and_columns(lake: Lake, table: TableIdentifier, transform: str | None) -> None:
    key, value = "i`d", "no`te` = t.`x"
    layout = {
        "source_column": key,
        "transform_type": transform,
        **({"num_buckets": 4} if transform == "bucket" else {}),
    }
    partition_by = [PartitionTransform.model_validate(layout)] if transform else []

    def rows(start: int, end: int, note: str) -> DataFrame:
        return lake.spark.range(start, end).toDF(key).withColumn(value, F.lit(note))

    lake.write(rows(0, 3, "old"), table, mode=UPSERT, keys=[key], partition_by=partition_by)
    lake.write(rows(2, 5, "new"), table, mode=UPSERT, keys=[key])
    lake.write(rows(5, 6, "new").withColumn("mo`re", F.lit(1)), table, mode=UPSERT, keys=[key])
    lake.tables.write_data(table, pa.table({key: [4, 6], value: ["arrow", "arrow"]}), mode=UPSERT, keys=[key])
    with pytest.raises(FloeStorageError, match="1 key occurs more than once"):
        lake.write(rows(0, 1, "a").union(rows(0, 1, "b")), table, mode=UPSERT, keys=[key])
    found = {row[key]: row[value] for row in lake.read(table).collect()}
    assert found == {0: "old", 1: "old", 2: "new", 3: "new", 4: "arrow", 5: "new", 6: "arrow"}
