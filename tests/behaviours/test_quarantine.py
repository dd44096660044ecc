"""Spark frames whose bad rows are moved to a quarantine table: as Arrow data, once, whatever ends in between."""

# No postponed annotations here: Dagster inspects those of assets.
import random
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from dagster import AssetExecutionContext, DagsterInstance, DailyPartitionsDefinition, asset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from tests.runs import QUIET

from floe_core import TableCheck, TableSlice
from floe_core.errors import ConfigurationError, FloeError, PartitionMismatchError
from floe_dagster import IcebergIOManager, checks, create_definitions
from floe_iceberg import Lake
from floe_spark.writing import commits

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")
NO_ID = TableCheck(not_null="id", quarantine=True)
POSITIVE = TableCheck(range={"column": "amount", "min": 0}, quarantine=True)
Row = tuple[int | None, float | None]
DELIVERY: list[Row] = [(1, 1.0), (None, 2.0), (3, -3.0), (None, -4.0), (5, None)]


def frame(lake: Lake, day: str, rows: list[Row]) -> DataFrame:
    found = [(date.fromisoformat(day), *row, {"city": "Oslo"}) for row in rows]
    return lake.spark.createDataFrame(found, "day date, id bigint, amount double, place struct<city: string>")


def day(number: int) -> TableSlice:
    return TableSlice.of_values("day", [f"2026-01-{number:02}"])


def rows_of(lake: Lake, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = lake.tables.scan(table).to_arrow().to_pylist()
    return sorted((tuple(row[name] for name in columns) for row in found), key=str)


class BrokenError(Exception):
    pass


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Fail when Spark is about to get the write for which the list says True."""
    plan, send = list[bool](), commits._send

    def fail(write: Callable[[str | None], object], branch: str | None) -> None:
        if plan and plan.pop(0):
            raise BrokenError
        send(write, branch)

    monkeypatch.setattr(commits, "_send", fail)
    yield plan
    assert plan == []


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("fails", ["the quarantine", "the table"])
def test_a_frame_is_divided_once_and_a_retry_changes_nothing(
    lake: Lake, namespace: str, failing: list[bool], mode: str, fails: str
) -> None:
    table = f"{namespace}.orders"
    within = day(1) if mode == "overwrite" else None
    with lake.audit(table, quarantine=[NO_ID, POSITIVE]) as draft:
        failing.extend([True] if fails == "the quarantine" else [False, True])
        with pytest.raises(BrokenError):
            draft.write(frame(lake, "2026-01-01", DELIVERY), mode=mode, slice=within, write_id="w")
        for _ in range(2):
            draft.write(frame(lake, "2026-01-01", DELIVERY), mode=mode, slice=within, write_id="w")
        outcomes = draft.check([NO_ID, POSITIVE])
    assert rows_of(lake, table, "id", "amount") == [(1, 1.0), (5, None)]
    assert rows_of(lake, f"{table}_quarantine", "id", "amount", "floe_failed_checks") == [
        (3, -3.0, "range_amount"),
        (None, -4.0, "not_null_id, range_amount"),
        (None, 2.0, "not_null_id"),
    ]
    assert [(one.passed, one.quarantined) for one in outcomes] == [(True, 2), (True, 2)]
    stored = lake.tables.scan(f"{table}_quarantine").to_arrow().to_pylist()
    assert {row["place"]["city"] for row in stored} == {"Oslo"}
    assert all(row["floe_quarantined_at"].tzinfo is not None for row in stored)


def test_rows_that_differ_each_time_they_are_computed_are_computed_once(lake: Lake, namespace: str) -> None:
    table = f"{namespace}.orders"
    chance = F.udf(lambda: random.random() - 0.5, "double").asNondeterministic()
    numbers = lake.spark.range(2000).select(F.col("id"), chance().alias("amount"))
    with lake.audit(table, quarantine=[POSITIVE]) as draft:
        draft.write(numbers, mode="overwrite")
        (outcome,) = draft.check([POSITIVE])
    good, bad = rows_of(lake, table, "id"), rows_of(lake, f"{table}_quarantine", "id")
    assert sorted(one for (one,) in (*good, *bad)) == list(range(2000))
    assert (outcome.failing, outcome.quarantined) == (0, len(bad))


def test_both_engines_write_to_one_quarantine_table(lake: Lake, namespace: str) -> None:
    table = f"{namespace}.orders"
    with lake.audit(table, quarantine=[NO_ID]) as draft:
        draft.write(frame(lake, "2026-01-01", DELIVERY), mode="overwrite", slice=day(1))
    arrow = pa.table(
        {
            "day": pa.array([date(2026, 1, 2)] * 2, pa.date32()),
            "id": pa.array([7, None], pa.int64()),
            "amount": [7.0, 8.0],
            "note": ["a", "b"],
        }
    )
    with lake.audit(table, quarantine=[NO_ID], early_columns=True) as draft:
        draft.write(arrow, mode="overwrite", slice=day(2))
    assert len(rows_of(lake, f"{table}_quarantine", "id", "note")) == 3
    fewer = frame(lake, "2026-01-01", [(1, 1.0), (None, 9.0)]).drop("place")
    with lake.audit(table, quarantine=[NO_ID, TableCheck(condition="note <> 'b'", name="n", quarantine=True)]) as draft:
        draft.write(fewer, mode="overwrite", slice=day(1))
    assert rows_of(lake, f"{table}_quarantine", "amount", "note") == [(8.0, "b"), (9.0, None)]


def test_an_upsert_and_a_stray_row(lake: Lake, namespace: str) -> None:
    table = f"{namespace}.orders"
    with lake.audit(table, quarantine=[POSITIVE]) as draft:
        draft.write(frame(lake, "2026-01-01", [(1, 1.0), (2, 2.0)]), mode="append")
    with lake.audit(table, quarantine=[POSITIVE]) as draft:
        draft.write(frame(lake, "2026-01-01", [(1, -1.0), (2, 20.0)]), mode="upsert", keys=["id"])
    assert rows_of(lake, table, "id", "amount") == [(1, 1.0), (2, 20.0)]
    assert rows_of(lake, f"{table}_quarantine", "id", "amount") == [(1, -1.0)]
    stray = frame(lake, "2026-01-05", [(9, -9.0)])
    with pytest.raises(PartitionMismatchError), lake.audit(table, quarantine=[POSITIVE]) as draft:
        draft.write(frame(lake, "2026-01-01", [(1, 1.0)]).unionByName(stray), mode="overwrite", slice=day(1))
    assert rows_of(lake, f"{table}_quarantine", "id", "amount") == [(1, -1.0)]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("amount > (SELECT 1 FROM bronze.other)", r"it reads bronze\.other"),
        ("amount > avg(amount)", "an aggregate or a window"),
        ("amuont > 0", "could not be evaluated for quarantine: .*amuont"),
    ],
)
def test_a_condition_that_cannot_decide_is_refused(lake: Lake, namespace: str, condition: str, message: str) -> None:
    table = f"{namespace}.orders"
    check = TableCheck(condition=condition, name="c", quarantine=True)
    with pytest.raises(FloeError, match=message), lake.audit(table, quarantine=[check]) as draft:
        draft.write(frame(lake, "2026-01-01", DELIVERY), mode="append")
    assert lake.tables.find_table(f"{table}_quarantine") is None


def test_an_asset_that_returns_a_frame(lake: Lake, namespace: str) -> None:
    def orders(context: AssetExecutionContext) -> DataFrame:
        return frame(lake, context.partition_key, DELIVERY)

    made = asset(key_prefix=namespace, partitions_def=DAYS, metadata={"partition_expr": "day"})(orders)
    found = checks.of(made, checks.not_null("id", quarantine=True), checks.condition("amount >= 0", quarantine=True))
    definitions = create_definitions(
        [made],
        project=lake.artifacts.root,
        resources={"io_manager": IcebergIOManager(lake=lake)},
        asset_checks=[found],
    )
    with DagsterInstance.ephemeral() as instance:
        job = definitions.resolve_implicit_global_asset_job_def()
        for key in ("2026-01-01", "2026-01-02", "2026-01-01"):
            run = job.execute_in_process(instance=instance, run_config=QUIET, partition_key=key)
    table = f"{namespace}.orders"
    assert len(rows_of(lake, table, "id")) == 4
    assert len(rows_of(lake, f"{table}_quarantine", "id")) == 6, "a slice that is run again replaces its own"
    told = {one.check_name: one.metadata["floe/rows_quarantined"].value for one in run.get_asset_check_evaluations()}
    assert told == {"not_null_id": 2, "condition_amount_0": 2}


def test_on_a_catalog_server_both_tables_are_published(rest_lake: Lake, namespace: str) -> None:
    tables, table = rest_lake.tables, f"{namespace}.orders"
    can = tables.refuses_many_tables is None
    if not can:
        with (
            pytest.raises(ConfigurationError, match=r"cannot be published together\. Nothing was written"),
            rest_lake.audit(table, quarantine=[NO_ID]),
        ):
            pass
        assert tables.find_table(table) is None
    with rest_lake.audit(table, quarantine=[NO_ID], one_by_one=not can) as draft:
        draft.write(pa.table({"id": pa.array([1, None], pa.int64())}), mode="append")
    assert (tables.scan(table).count(), tables.scan(f"{table}_quarantine").count()) == (1, 1)
