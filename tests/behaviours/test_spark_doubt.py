"""Spark writes whose answer was lost: each row is there once, whatever became of the first attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyiceberg.table import Table, Transaction
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from floe_core.errors import CatalogConnectionError, CommitStateUnknownError, ConcurrencyConflictError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform
from floe_iceberg import IcebergTableManager, Lake
from floe_iceberg.arguments import TableName
from floe_iceberg.snapshots.snapshots import WRITE_ID
from floe_iceberg.writing import commits as control_plane
from floe_spark import write
from floe_spark.writing import commits

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
SECOND_DAY = TableSlice.of_windows("at", [(FIRST + timedelta(days=1), FIRST + timedelta(days=2))])
BY_DAY = [PartitionTransform.model_validate({"source_column": "at", "transform_type": "day"})]

Act = Callable[[str | None], object]
Send = Callable[[Act, str | None], None]


class LostAnswerError(Exception):
    """What PySpark raises for it, classic and Connect alike, in its words."""

    def __init__(self) -> None:
        super().__init__("org.apache.iceberg.exceptions.CommitStateUnknownException: Cannot determine the outcome")


def hourly(lake: Lake, start: int, end: int, note: str) -> DataFrame:
    at = F.lit(FIRST) + F.expr("make_dt_interval(0, id, 0, 0)")
    return lake.spark.range(start, end).select("id", at.alias("at"), F.lit(note).alias("note"))


def notes(lake: Lake, table: TableIdentifier, **options: object) -> dict[int, str]:
    rows = lake.read(table, **options).collect()
    assert len({row.id for row in rows}) == len(rows)
    return {row.id: row.note for row in rows}


WRITES: dict[str, dict[str, object]] = {
    "append": {"mode": "append"},
    "slice": {"mode": "overwrite", "slice": SECOND_DAY},
    "filter that cuts files": {"mode": "overwrite", "overwrite_filter": "id >= 24"},
    "partitions": {"mode": "overwrite", "dynamic_partitions": True},
    "table": {"mode": "overwrite"},
    "upsert": {"mode": "upsert", "keys": ["id"]},
}
KEPT = {"table": 0}


def lost_answer(act: Act, branch: str | None) -> None:
    act(branch)
    raise LostAnswerError


def lost_request(act: Act, branch: str | None) -> None:
    del act, branch
    raise LostAnswerError


class Faults:
    """What happens to each commit that is sent; the rest goes through."""

    def __init__(self, *sends: Send) -> None:
        self.sends: Iterator[Send] = iter(sends)
        self.branches: list[str | None] = []

    def __call__(self, act: Act, branch: str | None) -> None:
        self.branches.append(branch)
        send = next(self.sends, None)
        if send is None:
            act(branch)
        else:
            send(act, branch)


def expected(name: str) -> dict[int, str]:
    return dict.fromkeys(range(KEPT.get(name, 24)), "old") | dict.fromkeys(range(24, 48), "new")


def prepared(lake: Lake, table: TableIdentifier, name: str) -> None:
    end = 24 if name == "append" else 40
    lake.write(hourly(lake, 0, end, "old"), table, mode="append", partition_by=BY_DAY)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Faults]:
    def install(*sends: Send) -> Faults:
        made = Faults(*sends)
        monkeypatch.setattr(commits, "_send", made)
        return made

    return install


def has_one_snapshot_of(lake: Lake, table: TableIdentifier, write_id: str) -> bool:
    found = [one for one in lake.tables.list_snapshots(table) if one.summary.get(WRITE_ID) == write_id]
    loaded = lake.tables.load_table(table)
    on_main = [one for one in found if one.snapshot_id in {entry.snapshot_id for entry in loaded.history()}]
    return len(on_main) == 1 and list(loaded.refs()) == ["main"]


@pytest.mark.parametrize("name", WRITES)
def test_a_write_whose_answer_was_lost_is_found_and_not_repeated(
    lake: Lake, table: TableIdentifier, name: str, faults: Callable[..., Faults]
) -> None:
    prepared(lake, table, name)
    sent = faults(lost_answer)
    result = lake.write(hourly(lake, 24, 48, "new"), table, write_id="w", **WRITES[name])
    assert result.snapshot.summary[WRITE_ID] == "w"
    assert notes(lake, table) == expected(name)
    assert len(sent.branches) == 1
    assert has_one_snapshot_of(lake, table, "w")


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_did_not_arrive_is_repeated_pinned_to_the_head(
    lake: Lake, table: TableIdentifier, name: str, faults: Callable[..., Faults]
) -> None:
    prepared(lake, table, name)
    sent = faults(lost_request)
    lake.write(hourly(lake, 24, 48, "new"), table, write_id="w", **WRITES[name])
    assert notes(lake, table) == expected(name)
    assert len(sent.branches) == 2
    assert sent.branches[1] is not None
    assert has_one_snapshot_of(lake, table, "w")


@pytest.mark.parametrize("name", [name for name in WRITES if name != "table"])
def test_a_first_commit_that_lands_during_the_repetition_is_the_only_one(
    lake: Lake, table: TableIdentifier, name: str, faults: Callable[..., Faults]
) -> None:
    prepared(lake, table, name)

    def late(act: Act, branch: str | None) -> None:
        act(branch)
        act(None)  # the first request, held until now

    faults(lost_request, late)
    lake.write(hourly(lake, 24, 48, "new"), table, write_id="w", **WRITES[name])
    assert notes(lake, table) == expected(name)
    assert has_one_snapshot_of(lake, table, "w")


@pytest.mark.parametrize("name", ["append", "slice", "upsert"])
def test_a_repetition_that_met_somebody_elses_commit_begins_again_and_loses_nothing(
    lake: Lake, table: TableIdentifier, name: str, faults: Callable[..., Faults]
) -> None:
    prepared(lake, table, name)

    def overtaken(act: Act, branch: str | None) -> None:
        act(branch)
        hourly(lake, 0, 1, "theirs").withColumn("id", F.lit(99).cast("long")).writeTo(spark_name(table)).append()

    sent = faults(lost_request, overtaken)
    lake.write(hourly(lake, 24, 48, "new"), table, write_id="w", **WRITES[name])
    assert notes(lake, table) == expected(name) | {99: "theirs"}
    # What was staged is put on top of theirs; only what a MERGE means depends on what is there.
    assert len(sent.branches) == (3 if name == "upsert" else 2)
    assert has_one_snapshot_of(lake, table, "w")


def test_a_repetition_does_not_replace_rows_that_came_after_the_write_began(
    lake: Lake, table: TableIdentifier, faults: Callable[..., Faults]
) -> None:
    prepared(lake, table, "slice")

    def overtaken(act: Act, branch: str | None) -> None:
        del act, branch
        hourly(lake, 30, 31, "theirs").withColumn("id", F.lit(99).cast("long")).writeTo(spark_name(table)).append()
        raise LostAnswerError

    faults(overtaken)
    with pytest.raises(ConcurrencyConflictError, match="another writer changed"):
        lake.write(hourly(lake, 24, 48, "new"), table, mode="overwrite", slice=SECOND_DAY)
    assert notes(lake, table)[99] == "theirs"
    assert list(lake.tables.load_table(table).refs()) == ["main"]


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_iceberg_takes_for_refused_although_it_landed_is_thrown_away_and_made_anew(
    lake: Lake, table: TableIdentifier, name: str, faults: Callable[..., Faults]
) -> None:
    """Iceberg deletes the files of such a commit, so nothing of it may be used."""
    prepared(lake, table, name)

    def landed_and_cleaned_up(act: Act, branch: str | None) -> None:
        act(branch)
        (made,) = (one for one in lake.tables.load_table(table).snapshots() if one.summary[WRITE_ID] == "w")  # type: ignore[index]
        Path(made.manifest_list.removeprefix("file:").removeprefix("//")).unlink()
        raise RuntimeError("org.apache.iceberg.exceptions.CommitFailedException: it seems that others were quicker")

    faults(landed_and_cleaned_up)
    lake.write(hourly(lake, 24, 48, "new"), table, write_id="w", **WRITES[name])
    assert notes(lake, table) == expected(name)
    assert has_one_snapshot_of(lake, table, "w")
    for snapshot in lake.tables.list_snapshots(table):
        lake.read(table, snapshot_id=snapshot.snapshot_id).count()


def spark_name(table: TableIdentifier) -> str:
    return f"lake.`{table.namespace[0]}`.{table.name}"


@pytest.mark.parametrize("first", [lost_answer, lost_request])
def test_a_table_is_created_once(
    lake: Lake, table: TableIdentifier, first: Send, faults: Callable[..., Faults]
) -> None:
    faults(first)
    result = lake.write(hourly(lake, 0, 48, "new"), table, mode="append", write_id="w", partition_by=BY_DAY)
    assert result.created
    assert len(notes(lake, table)) == 48
    assert len(lake.tables.list_snapshots(table)) == 1


def test_a_creation_that_lands_during_its_repetition_is_the_only_one(
    lake: Lake, table: TableIdentifier, faults: Callable[..., Faults]
) -> None:
    def late(act: Act, branch: str | None) -> None:
        act(branch)  # the first request, held until now
        act(branch)

    faults(lost_request, late)
    lake.write(hourly(lake, 0, 48, "new"), table, mode="append", write_id="w")
    assert len(notes(lake, table)) == 48
    assert len(lake.tables.list_snapshots(table)) == 1


def test_doubt_that_does_not_end_is_said_and_nothing_is_left_behind(
    lake: Lake, table: TableIdentifier, faults: Callable[..., Faults]
) -> None:
    prepared(lake, table, "append")
    faults(*[lost_request] * 20)
    with pytest.raises(CatalogConnectionError, match=r"did not answer.*nothing was written: run it again"):
        lake.write(hourly(lake, 24, 48, "new"), table, mode="append")
    assert len(notes(lake, table)) == 24
    assert list(lake.tables.load_table(table).refs()) == ["main"]


def test_a_table_without_a_snapshot_cannot_be_pinned_and_the_doubt_is_said(
    lake: Lake, table: TableIdentifier, faults: Callable[..., Faults]
) -> None:
    lake.write(hourly(lake, 0, 1, "old"), table, mode="append")
    schema = lake.tables.load_table(table).schema()
    empty = table.model_copy(update={"name": "empty"})
    lake.tables.create_table(empty, schema)
    faults(lost_request)
    with pytest.raises(CommitStateUnknownError, match="may still arrive"):
        lake.write(hourly(lake, 24, 48, "new"), empty, mode="append")


class Unreachable(IcebergTableManager):
    """A manager whose catalog may stop to answer."""

    silent = False

    def find_table(self, identifier: TableName) -> Table | None:
        if self.silent:
            raise CatalogConnectionError("the catalog does not answer")
        return super().find_table(identifier)


def test_a_catalog_that_cannot_be_looked_at_leaves_the_outcome_open(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(lake, table, "append")
    monkeypatch.setattr("floe_iceberg.writing.commit_outcome._LOOKS", 2)
    manager = Unreachable(lake.tables.catalog_plugin, lake.tables.storage_plugin)
    plain = control_plane._send

    def publish_and_go_dark(transaction: Transaction) -> None:
        plain(transaction)
        manager.silent = True
        raise ConnectionResetError("the line is dead")

    monkeypatch.setattr(control_plane, "_send", publish_and_go_dark)
    with pytest.raises(CommitStateUnknownError, match="cannot be loaded now"):
        write(hourly(lake, 24, 48, "new"), manager, table, mode="append", write_id="w")
    again = lake.write(hourly(lake, 24, 48, "new"), table, mode="append", write_id="w")
    assert again.deduplicated
    assert notes(lake, table) == expected("append")


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("name", WRITES)
def test_a_publication_whose_answer_was_lost_is_found_or_repeated(
    lake: Lake, table: TableIdentifier, name: str, applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(lake, table, name)
    plain, sent = control_plane._send, []

    def lossy(transaction: Transaction) -> None:
        sent.append(1)
        if applied or len(sent) > 1:
            plain(transaction)
        if len(sent) == 1:
            raise ConnectionResetError("the line is dead")

    monkeypatch.setattr(control_plane, "_send", lossy)
    lake.write(hourly(lake, 24, 48, "new"), table, write_id="w", **WRITES[name])
    assert notes(lake, table) == expected(name)
    assert len(sent) == (1 if applied else 2)
    assert has_one_snapshot_of(lake, table, "w")
    assert len(lake.tables.list_snapshots(table)) == 2


@pytest.mark.parametrize("name", ["append", "slice", "partitions", "filter that cuts files"])
def test_what_others_commit_while_a_write_is_being_published_stays(
    lake: Lake, table: TableIdentifier, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(lake, table, name)
    plain, sent = control_plane._send, []

    def overtaken(transaction: Transaction) -> None:
        sent.append(1)
        if len(sent) == 1:
            other = hourly(lake, 0, 1, "theirs").withColumn("id", F.lit(-1).cast("long"))
            lake.tables.write_data(table, other.toArrow(), mode="append")
        plain(transaction)

    monkeypatch.setattr(control_plane, "_send", overtaken)
    lake.write(hourly(lake, 24, 48, "new"), table, write_id="w", **WRITES[name])
    assert notes(lake, table) == expected(name) | {-1: "theirs"}
    assert has_one_snapshot_of(lake, table, "w")
    assert len(lake.tables.list_snapshots(table)) == 3


@pytest.mark.parametrize("failure", [ConnectionResetError("reset"), TimeoutError("slow")])
def test_a_lost_connection_is_doubt_too(
    lake: Lake, table: TableIdentifier, failure: Exception, faults: Callable[..., Faults]
) -> None:
    prepared(lake, table, "append")

    def cut(act: Act, branch: str | None) -> None:
        act(branch)
        raise failure

    faults(cut)
    lake.write(hourly(lake, 24, 48, "new"), table, mode="append")
    assert notes(lake, table) == expected("append")


def test_an_append_to_a_table_without_a_budget_of_its_own_is_sent_again(
    lake: Lake, table: TableIdentifier, faults: Callable[..., Faults]
) -> None:
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.`{table.namespace[0]}`")
    lake.spark.sql(f"CREATE TABLE {spark_name(table)} (id BIGINT) USING iceberg")

    def beaten(act: Act, branch: str | None) -> None:
        del act, branch
        raise RuntimeError("org.apache.iceberg.exceptions.CommitFailedException: others were quicker")

    sent = faults(beaten, beaten)
    lake.write(lake.spark.range(3), table, mode="append")
    assert lake.read(table).count() == 3
    assert len(sent.branches) == 3
    assert "commit.retry.num-retries" not in lake.tables.load_table(table).properties


def test_an_append_to_a_table_with_a_budget_of_its_own_is_iceberg_s_to_repeat(
    lake: Lake, table: TableIdentifier, faults: Callable[..., Faults]
) -> None:
    lake.write(lake.spark.range(3), table, mode="append")

    def beaten(act: Act, branch: str | None) -> None:
        del act, branch
        raise RuntimeError("org.apache.iceberg.exceptions.CommitFailedException: others were quicker")

    faults(beaten, beaten, beaten)
    with pytest.raises(ConcurrencyConflictError, match="faster than this write could commit"):
        lake.write(lake.spark.range(3), table, mode="append")
    assert lake.read(table).count() == 3
