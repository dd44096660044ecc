"""What others do to tables while Spark writes is a conflict in Floe's words, never a raw error of Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from floe_core.errors import ConcurrencyConflictError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform
from floe_iceberg import Lake
from floe_iceberg.schema.changes import AddColumn, DropColumn, RenameColumn
from floe_spark.writing import commits

Act = Callable[[str | None], object]
WRITES: dict[str, dict[str, object]] = {
    "append": {"mode": "append"},
    "filter": {"mode": "overwrite", "overwrite_filter": "id < 3"},
    "upsert": {"mode": "upsert", "keys": ["id"]},
}


def rows(lake: Lake, end: int = 3) -> DataFrame:
    return lake.spark.range(end).select("id", F.lit("x").alias("note"))


def recreate(lake: Lake, table: TableIdentifier) -> None:
    lake.tables.drop_table(table)
    lake.tables.write_data(table, pa.table({"id": [7], "note": ["theirs"]}), mode="append")


def while_a_task_runs(frame: DataFrame, folder: Path, act: Callable[[], None]) -> DataFrame:
    """The frame, whose only task waits until `act` is done."""
    begun, done = str(folder / "begun"), str(folder / "done")

    def wait(value: str) -> str:
        Path(begun).touch()
        deadline = time.time() + 120
        while not Path(done).exists() and time.time() < deadline:
            time.sleep(0.02)
        return value

    def other() -> None:
        while not Path(begun).exists():
            time.sleep(0.02)
        act()
        Path(done).touch()

    threading.Thread(target=other, daemon=True).start()
    return frame.coalesce(1).withColumn("note", F.udf(wait, "string")("note"))


@pytest.fixture
def before_spark_writes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Do something when a write is prepared and Spark is about to get it."""

    def install(act: Callable[[], object]) -> None:
        plain = commits._send

        def send(write: Act, branch: str | None) -> None:
            monkeypatch.setattr(commits, "_send", plain)
            act()
            write(branch)

        monkeypatch.setattr(commits, "_send", send)

    return install


@pytest.mark.parametrize("name", ["append", "filter"])
def test_a_table_that_is_created_again_while_spark_writes_is_a_conflict(
    lake: Lake, table: TableIdentifier, tmp_path: Path, name: str
) -> None:
    lake.write(rows(lake), table, mode="append")
    frame = while_a_task_runs(rows(lake), tmp_path, lambda: recreate(lake, table))
    with pytest.raises(ConcurrencyConflictError, match="was dropped and created again"):
        lake.write(frame, table, **WRITES[name])
    assert [row.note for row in lake.read(table).collect()] == ["theirs"]


def test_a_table_that_is_created_again_while_spark_merges_is_a_conflict(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(rows(lake), table, mode="append")

    def send(write: Act, branch: str | None) -> None:
        del write, branch
        recreate(lake, table)
        raise RuntimeError("java.lang.IllegalStateException: Table UUID does not match: current=1 != refreshed=2")

    monkeypatch.setattr(commits, "_send", send)
    with pytest.raises(ConcurrencyConflictError, match="was dropped and created again"):
        lake.write(rows(lake), table, **WRITES["upsert"])
    assert [row.note for row in lake.read(table).collect()] == ["theirs"]


@pytest.mark.parametrize("name", ["append", "filter", "upsert"])
def test_a_column_that_is_replaced_while_spark_writes_is_a_conflict(
    lake: Lake, table: TableIdentifier, tmp_path: Path, name: str
) -> None:
    """The schema changes without a snapshot: the rows would be there, and their values NULL."""

    def replace() -> None:
        lake.tables.evolve_schema(table, DropColumn("note"), allow_incompatible_changes=True)
        lake.tables.evolve_schema(table, AddColumn("note", pa.string()))

    lake.write(rows(lake), table, mode="append")
    with pytest.raises(ConcurrencyConflictError, match="nothing was written"):
        lake.write(while_a_task_runs(rows(lake, 2), tmp_path, replace), table, **WRITES[name])
    assert lake.read(table).count() == 3
    assert list(lake.tables.load_table(table).refs()) == ["main"]


@pytest.mark.parametrize("name", ["append", "upsert"])
def test_a_column_that_is_renamed_before_spark_writes_is_a_conflict_that_names_it(
    lake: Lake,
    table: TableIdentifier,
    name: str,
    before_spark_writes: Callable[[Callable[[], object]], None],
) -> None:
    lake.write(rows(lake), table, mode="append")
    before_spark_writes(lambda: lake.tables.evolve_schema(table, RenameColumn("note", "remark")))
    with pytest.raises(
        ConcurrencyConflictError, match=r"note was renamed to remark.*nothing was written: run it again"
    ):
        lake.write(rows(lake, 5), table, **WRITES[name])
    assert lake.read(table).count() == 3
    assert list(lake.tables.load_table(table).refs()) == ["main"]


@pytest.mark.parametrize("name", ["append", "upsert"])
def test_a_frame_made_before_an_expiry_says_to_make_it_again(lake: Lake, table: TableIdentifier, name: str) -> None:
    source = table.model_copy(update={"name": "source"})
    lake.write(rows(lake), source, mode="append")
    lake.write(rows(lake), table, mode="append")
    frame = lake.read(source)
    lake.write(rows(lake, 2), source, mode="overwrite")
    lake.tables.compute.expire_snapshots(source, older_than=datetime.now(timezone.utc), keep_last=1)  # type: ignore[union-attr]
    with pytest.raises(FloeStorageError, match=r"expired (after|since) the DataFrame was made"):
        lake.write(frame, table, **WRITES[name])
    assert lake.read(table).count() == 3


@pytest.mark.parametrize("name", ["create", "append"])
def test_a_partition_value_that_makes_too_long_a_file_name_says_what_to_do(
    lake: Lake, table: TableIdentifier, name: str
) -> None:
    by_note = [PartitionTransform.model_validate({"source_column": "note", "transform_type": "identity"})]
    if name == "append":
        lake.write(rows(lake), table, mode="append", partition_by=by_note)
    long = rows(lake).withColumn("note", F.lit("v" * 4000))
    with pytest.raises(FloeStorageError, match="too long a file name; use truncate or bucket"):
        lake.write(long, table, mode="append", partition_by=by_note if name == "create" else ())
