"""Rows that break a check are moved to a table of their own: once, with their reasons, published with the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException

from floe_core import PartitionTransform, TableCheck, TableSlice, compile_project
from floe_core.errors import (
    CheckFailedError,
    ConcurrencyConflictError,
    ConfigurationError,
    FloeError,
    PartitionMismatchError,
    QueryError,
    SchemaEvolutionError,
    TableNotFoundError,
)
from floe_iceberg import Lake
from floe_iceberg._pyiceberg.tables import table_of
from floe_iceberg.writing import commits

T, Q = "silver.orders", "silver.orders_quarantine"
BY_DAY = [PartitionTransform(source_column="day", transform_type="identity")]
NO_ID = TableCheck(not_null="id", quarantine=True)
POSITIVE = TableCheck(range={"column": "amount", "min": 0}, quarantine=True)
BOTH = (NO_ID, POSITIVE)


def rows(day: int, *orders: tuple[int | None, float | None]) -> pa.Table:
    return pa.table(
        {
            "day": pa.array([date(2026, 1, day)] * len(orders), pa.date32()),
            "id": pa.array([one for one, _ in orders], pa.int64()),
            "amount": pa.array([amount for _, amount in orders], pa.float64()),
        }
    )


def day(number: int) -> TableSlice:
    return TableSlice.of_values("day", [f"2026-01-{number:02}"])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    with Lake(compile_project(tmp_path).artifacts) as opened:
        yield opened


def stored(lake: Lake, table: str = T, ref: str | None = None) -> list[tuple[Any, ...]]:
    found = lake.tables.scan(table, ref=ref).to_arrow().to_pylist()
    return sorted(((str(row["day"])[-2:], row["id"], row["amount"]) for row in found), key=str)


def moved(lake: Lake, ref: str | None = None) -> list[tuple[Any, ...]]:
    found = lake.tables.scan(Q, ref=ref).to_arrow().to_pylist()
    return sorted(((row["id"], row["amount"], row["floe_failed_checks"]) for row in found), key=str)


def test_rows_that_break_checks_are_moved_once_with_all_reasons(lake: Lake) -> None:
    with lake.audit(T, quarantine=BOTH) as draft:
        draft.write(rows(1, (1, 5.0), (None, 6.0), (2, -1.0), (None, -2.0), (3, None)), mode="append")
        with pytest.raises(TableNotFoundError, match="is not published yet"):
            stored(lake, Q)
        by_id, by_amount = draft.check(BOTH)
    assert stored(lake) == [("01", 1, 5.0), ("01", 3, None)]
    assert moved(lake) == [
        (2, -1.0, "range_amount"),
        (None, -2.0, "not_null_id, range_amount"),
        (None, 6.0, "not_null_id"),
    ]
    assert (by_id.passed, by_id.failing, by_id.quarantined, by_id.quarantine) == (True, 0, 2, Q)
    assert by_id.message == f"0 of 2 rows have no id; 2 rows were moved to '{Q}'"
    assert [one["amount"] for one in by_id.examples] == [6.0, -2.0]
    assert by_amount.quarantined == 2
    row = lake.tables.scan(Q).to_arrow().to_pylist()[0]
    assert draft.branch == f"floe-run-{row['floe_run_id']}"
    assert row["floe_quarantined_at"].tzinfo is not None
    assert sorted(lake.tables.load_table(Q).metadata.refs) == ["main"]


def test_without_rows_to_move_there_is_no_quarantine_table(lake: Lake) -> None:
    with lake.audit(T, quarantine=BOTH) as draft:
        draft.write(rows(1, (1, 5.0)), mode="append")
        found = draft.check(BOTH)
    assert [one.quarantined for one in found] == [0, 0]
    assert found[0].message == f"0 of 1 rows have no id; no rows were moved to '{Q}'"
    assert lake.tables.find_table(Q) is None


def test_an_overwrite_replaces_what_its_slice_has_moved_before_and_nothing_else(lake: Lake) -> None:
    for number, orders in ((1, ((1, 1.0), (None, 1.5))), (2, ((2, 2.0), (None, 2.5)))):
        with lake.audit(T, quarantine=[NO_ID]) as draft:
            draft.write(rows(number, *orders), mode="overwrite", slice=day(number), partition_by=BY_DAY)
    assert moved(lake) == [(None, 1.5, "not_null_id"), (None, 2.5, "not_null_id")]
    assert [one.name for one in lake.tables.load_table(Q).spec().fields] == ["day"], "partitioned as its source"
    with lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(rows(1, (1, 1.0), (None, 9.0), (None, 9.5)), mode="overwrite", slice=day(1))
    assert moved(lake) == [(None, 2.5, "not_null_id"), (None, 9.0, "not_null_id"), (None, 9.5, "not_null_id")]
    with lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(rows(1, (1, 1.0)), mode="overwrite", slice=day(1))
    assert moved(lake) == [(None, 2.5, "not_null_id")], "a slice without bad rows is cleared"
    before = lake.tables.load_table(Q).metadata_location
    with lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(rows(4, (4, 4.0)), mode="overwrite", slice=day(4))
    assert lake.tables.load_table(Q).metadata_location == before, "without rows to move or replace it is left alone"
    with lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(rows(3, (3, 3.0)), mode="overwrite")
    assert (stored(lake), moved(lake)) == ([("03", 3, 3.0)], []), "as is a whole table"


def test_appends_add_to_what_was_moved(lake: Lake) -> None:
    for amount in (1.0, 2.0):
        with lake.audit(T, quarantine=[NO_ID]) as draft:
            draft.write(rows(1, (1, amount), (None, amount)), mode="append")
            draft.write(rows(1, (None, -amount)), mode="append")
    assert [amount for _, amount, _ in moved(lake)] == [-1.0, -2.0, 1.0, 2.0]


class BrokenError(Exception):
    pass


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Fail before the next commit to each of these tables."""
    tables, send = list[str](), commits._send

    def fail(transaction: Any) -> None:
        name = ".".join(table_of(transaction).name())
        if name in tables:
            tables.remove(name)
            raise BrokenError(name)
        send(transaction)

    monkeypatch.setattr(commits, "_send", fail)
    yield tables
    assert tables == []


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("table", [T, Q])
def test_a_retry_moves_and_stores_each_row_once(lake: Lake, failing: list[str], mode: str, table: str) -> None:
    within = day(1) if mode == "overwrite" else None
    with lake.audit(T, quarantine=BOTH) as draft:
        draft.write(rows(1, (8, 8.0), (None, 8.5)), mode="append", partition_by=BY_DAY, write_id="before")
        failing.append(table)
        data = rows(1, (1, 1.0), (None, 2.0), (3, -3.0))
        with pytest.raises(BrokenError):
            draft.write(data, mode=mode, slice=within, write_id="w")
        assert (1, 1.0) not in [row[1:] for row in stored(lake, ref=draft.branch)], "the write itself is committed last"
        draft.write(data, mode=mode, slice=within, write_id="w")
        draft.write(data, mode=mode, slice=within, write_id="w")
        found = draft.check(BOTH)
    before = [(None, 8.5, "not_null_id")] if mode == "append" else []
    assert moved(lake) == [(3, -3.0, "range_amount"), (None, 2.0, "not_null_id"), *before]
    assert stored(lake) == [("01", 1, 1.0), *([("01", 8, 8.0)] if mode == "append" else [])]
    assert [one.quarantined for one in found] == [2, 1], "of all writes of the draft"


def test_a_retry_that_decides_otherwise_replaces_what_was_moved(lake: Lake, failing: list[str]) -> None:
    """As if the rows were computed again, or the condition depended on the time."""
    with lake.audit(T, quarantine=[POSITIVE]) as draft:
        failing.append(T)
        with pytest.raises(BrokenError):
            draft.write(rows(1, (1, -1.0), (2, 2.0), (3, -3.0)), mode="append", write_id="w")
        draft.write(rows(1, (1, 1.0), (2, -2.0), (3, 3.0)), mode="append", write_id="w")
    assert (stored(lake), moved(lake)) == ([("01", 1, 1.0), ("01", 3, 3.0)], [(2, -2.0, "range_amount")])
    with lake.audit(T, quarantine=[POSITIVE]) as draft:
        failing.append(T)
        with pytest.raises(BrokenError):
            draft.write(rows(1, (4, -4.0)), mode="append", write_id="w2")
        draft.write(rows(1, (4, 4.0)), mode="append", write_id="w2")
    assert moved(lake) == [(2, -2.0, "range_amount")], "what the first attempt moved is not published"
    assert ("01", 4, 4.0) in stored(lake)


def test_a_draft_that_is_not_published_leaves_both_tables_as_they_were(lake: Lake) -> None:
    with lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(rows(1, (1, 1.0), (None, 1.0)), mode="append")
    with pytest.raises(CheckFailedError, match="range_amount: 1 of 3 rows"), lake.audit(T, quarantine=[NO_ID]) as draft:  # noqa: PT012 - the block is what is tested
        draft.write(rows(1, (2, -2.0), (None, 2.0), (3, 3.0)), mode="append")
        draft.check([NO_ID, POSITIVE.model_copy(update={"quarantine": False})])
    assert (stored(lake), moved(lake)) == ([("01", 1, 1.0)], [(None, 1.0, "not_null_id")])
    assert len(moved(lake, draft.branch)) == 2


def test_both_tables_are_put_on_top_of_commits_to_other_slices(lake: Lake) -> None:
    with lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(rows(1, (1, 1.0), (None, 1.0)), mode="overwrite", slice=day(1), partition_by=BY_DAY)
    with lake.audit(T, quarantine=[NO_ID]) as outer:
        outer.write(rows(2, (2, 2.0), (None, 2.0)), mode="overwrite", slice=day(2))
        with lake.audit(T, quarantine=[NO_ID]) as inner:
            inner.write(rows(3, (3, 3.0), (None, 3.0)), mode="overwrite", slice=day(3))
    assert stored(lake) == [("01", 1, 1.0), ("02", 2, 2.0), ("03", 3, 3.0)]
    assert moved(lake) == [(None, 1.0, "not_null_id"), (None, 2.0, "not_null_id"), (None, 3.0, "not_null_id")]


def test_two_drafts_of_the_same_slice_are_a_conflict_that_names_the_table(lake: Lake) -> None:
    with pytest.raises(ConcurrencyConflictError, match=f"'{T}' cannot be"), lake.audit(T, quarantine=[NO_ID]) as outer:  # noqa: PT012 - the block is what is tested
        outer.write(rows(2, (2, 2.0), (None, 2.0)), mode="overwrite", slice=day(2), partition_by=BY_DAY)
        with lake.audit(T, quarantine=[NO_ID]) as inner:
            inner.write(rows(2, (3, 3.0), (None, 3.0)), mode="overwrite", slice=day(2))
    assert (stored(lake), moved(lake)) == ([("02", 3, 3.0)], [(None, 3.0, "not_null_id")])
    with lake.audit(T, quarantine=[NO_ID]) as outer:
        outer.write(rows(2, (4, 4.0), (None, 4.0)), mode="append")
        with lake.audit(T, quarantine=[NO_ID]) as inner:
            inner.write(rows(2, (5, 5.0), (None, 5.0)), mode="append")
    assert [amount for _, amount, _ in moved(lake)] == [3.0, 4.0, 5.0], "appends are none"


def test_a_branch_that_was_removed_is_not_published_without_the_moved_rows(lake: Lake) -> None:
    with lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(rows(1, (1, 1.0), (None, 1.0)), mode="append")
    with pytest.raises(FloeError, match=f"'{Q}' has no branch"), lake.audit(T, quarantine=[NO_ID]) as draft:  # noqa: PT012 - the block is what is tested
        draft.write(rows(1, (2, 2.0), (None, 2.0)), mode="append")
        lake.tables.remove_branch(Q, draft.branch)
    assert stored(lake) == [("01", 1, 1.0)]


@pytest.mark.parametrize("kind", ["stream", "pandas", "polars", "lazy"])
def test_every_kind_of_data_is_divided(lake: Lake, kind: str) -> None:
    table = rows(1, (1, 5.0), (None, 6.0), (2, -1.0))
    frame = pl.DataFrame(table)
    data: Any = {
        "stream": pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1)),
        "pandas": pd.DataFrame({"id": [1, 7, 2], "amount": [5.0, 6.0, -1.0]}),
        "polars": frame,
        "lazy": frame.lazy(),
    }[kind]
    with lake.audit(T, quarantine=[POSITIVE]) as draft:
        draft.write(data, mode="overwrite")
    assert lake.tables.scan(T).to_arrow()["amount"].to_pylist() == [5.0, 6.0]
    assert lake.tables.scan(Q).to_arrow()["amount"].to_pylist() == [-1.0]


def test_types_and_nested_values_arrive_as_they_were(lake: Lake) -> None:
    table = pa.table(
        {
            "id": pa.array([1, None, 3], pa.int64()),
            "price": pa.array([Decimal("1.50"), Decimal("2.50"), None], pa.decimal128(9, 2)),
            "at": pa.array([datetime(2026, 1, 1, tzinfo=timezone.utc)] * 3, pa.timestamp("us", "Europe/Oslo")),
            "kind": pa.array(["a", "b", None]).dictionary_encode(),
            "place": pa.array([{"city": "Oslo"}, {"city": None}, None]),
            "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
            "raw": pa.array([b"1", b"2", None], pa.binary(1)),
        }
    )
    with lake.audit(T, quarantine=[TableCheck(condition="id IS NOT NULL", name="known", quarantine=True)]) as draft:
        draft.write(table, mode="overwrite")
    expected = table.select(["id", "price", "kind", "place", "tags", "raw"]).to_pylist()
    assert lake.tables.scan(T).to_arrow().select(list(expected[0])).to_pylist() == [expected[0], expected[2]]
    assert lake.tables.scan(Q).to_arrow().select(list(expected[0])).to_pylist() == [expected[1]]


def test_columns_that_are_added_later_and_columns_that_are_missing(lake: Lake) -> None:
    with lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(rows(1, (1, 1.0), (None, 2.0)), mode="append")
    more = rows(1, (2, 2.0), (None, 3.0)).append_column("note", pa.array(["a", "b"])).drop_columns(["amount"])
    with lake.audit(T, quarantine=[NO_ID], early_columns=True) as draft:
        draft.write(more, mode="append")
    found = lake.tables.scan(Q).to_arrow().to_pylist()
    assert sorted((row["amount"], row["note"]) for row in found if row["note"]) == [(None, "b")]
    with lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(rows(1, (3, 3.0)).drop_columns(["id"]), mode="append")
    assert len(moved(lake)) == 3, "a column that the data lacks is NULL"


def test_an_upsert_never_replaces_a_row_by_one_that_is_moved(lake: Lake) -> None:
    with lake.audit(T, quarantine=[POSITIVE]) as draft:
        draft.write(rows(1, (1, 1.0), (2, 2.0)), mode="append")
    with lake.audit(T, quarantine=[POSITIVE]) as draft:
        draft.write(rows(1, (1, -1.0), (2, 20.0)), mode="upsert", keys=["id"])
    assert stored(lake) == [("01", 1, 1.0), ("01", 2, 20.0)]
    assert moved(lake) == [(1, -1.0, "range_amount")]
    with (
        pytest.raises(ConfigurationError, match="there is no column 'amount'"),
        lake.audit(T, quarantine=[POSITIVE]) as draft,
    ):
        draft.write(rows(1, (1, 1.0)).drop_columns(["amount"]), mode="upsert", keys=["id"])


def test_rows_outside_of_the_slice_are_refused_also_if_they_would_be_moved(lake: Lake) -> None:
    strange = pa.concat_tables([rows(1, (1, 1.0)), rows(2, (None, 1.0))])
    with pytest.raises(PartitionMismatchError), lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(strange, mode="overwrite", slice=day(1), partition_by=BY_DAY)
    assert [name for name in lake.tables.find_tables() if lake.tables.find_table(name) is None] == []


def test_a_column_that_must_not_be_null_stays_so(lake: Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.float64())])
    lake.tables.create_table(T, schema)
    with lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(pa.table({"id": [1, None], "amount": [1.0, 2.0]}), mode="append")
    assert lake.tables.load_table(T).schema().find_field("id").required
    assert lake.tables.scan(Q).to_arrow()["amount"].to_pylist() == [2.0]


def test_a_table_of_another_kind_or_owner_is_refused_before_anything_is_written(lake: Lake) -> None:
    lake.tables.write_data(Q, pa.table({"id": [1]}), mode="append")
    before = lake.tables.load_table(Q).metadata_location
    with (
        pytest.raises(ConfigurationError, match="exists and is no quarantine table"),
        lake.audit(T, quarantine=[NO_ID]) as draft,
    ):
        draft.write(rows(1, (1, 1.0)), mode="append")
    assert lake.tables.load_table(Q).metadata_location == before
    bad = "silver.bad"
    check = NO_ID.model_copy(update={"quarantine": bad})
    with lake.audit("silver.other", quarantine=[check]) as draft:
        draft.write(rows(1, (None, 1.0)), mode="append")
    with (
        pytest.raises(ConfigurationError, match=r"takes the rows of 'silver\.other'"),
        lake.audit(T, quarantine=[check]) as draft,
    ):
        draft.write(rows(1, (None, 1.0)), mode="append")
    assert len(lake.tables.scan(bad).to_arrow()) == 1
    with (
        pytest.raises(ConfigurationError, match="has the columns floe_run_id"),
        lake.audit(T, quarantine=[NO_ID.model_copy(update={"quarantine": "silver.third"})]) as draft,
    ):
        draft.write(pa.table({"id": [1], "floe_run_id": ["x"]}), mode="append")


def test_a_quarantine_table_with_a_column_of_another_type_is_refused(lake: Lake) -> None:
    schema = pa.schema([("id", pa.string())])
    lake.tables.create_table(Q, schema, properties={"floe.quarantine-of": T})
    with pytest.raises(SchemaEvolutionError, match="id"), lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(rows(1, (1, 1.0), (None, 2.0)), mode="append")
    assert lake.tables.scan(T, ref=draft.branch).count() == 0


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("amount >= (SELECT min(amount) FROM silver.limits)", "on the row alone.*it reads silver.limits"),
        ("amount >= avg(amount) OVER ()", "it has an aggregate or a window"),
        ("amount >", "check c of 'silver.orders': .*Nothing was written"),
        ("amuont > 1", "could not be evaluated for quarantine: .*amuont"),
    ],
)
def test_conditions_that_cannot_decide_about_a_row_are_refused(lake: Lake, condition: str, message: str) -> None:
    check = TableCheck(condition=condition, name="c", quarantine=True)
    with pytest.raises((ConfigurationError, QueryError), match=message), lake.audit(T, quarantine=[check]) as draft:
        draft.write(rows(1, (1, 1.0)), mode="append")
    with suppress(TableNotFoundError):
        assert stored(lake) == []


def test_a_check_must_be_known_before_the_rows_are_written(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match=r"lake\.audit\('silver\.orders', quarantine="), lake.audit(T) as draft:  # noqa: PT012 - the block is what is tested
        draft.write(rows(1, (None, 1.0)), mode="append")
        draft.check([NO_ID])
    with (
        pytest.raises(ConfigurationError, match="a check that moves rows has quarantine=True"),
        lake.audit(T, quarantine=[TableCheck(not_null="id")]),
    ):
        pass
    two = [NO_ID, POSITIVE.model_copy(update={"quarantine": "silver.other"})]
    with (
        pytest.raises(ConfigurationError, match="a row that breaks several rules is moved once"),
        lake.audit(T, quarantine=two),
    ):
        pass
    with (
        pytest.raises(ConfigurationError, match="would move rows to the table that they are in"),
        lake.audit(T, quarantine=[NO_ID.model_copy(update={"quarantine": "Silver.Orders"})]),
    ):
        pass


def test_rows_that_were_in_the_table_before_still_fail_the_check(lake: Lake) -> None:
    lake.tables.write_data(T, rows(1, (None, 1.0)), mode="append")
    with pytest.raises(CheckFailedError, match="were in the table before"), lake.audit(T, quarantine=[NO_ID]) as draft:  # noqa: PT012 - the block is what is tested
        draft.write(rows(1, (1, 1.0), (None, 2.0)), mode="append")
        draft.check([NO_ID])
    assert stored(lake) == [("01", None, 1.0)]


def test_undoing_the_run_takes_the_moved_rows_back_too(lake: Lake) -> None:
    for number in (1, 2):
        with lake.audit(T, quarantine=[NO_ID]) as draft:
            facts = {"floe.run-id": f"run-{number}"}
            draft.write(rows(1, (number, 1.0), (None, 1.0)), mode="append", snapshot_properties=facts)
    lake.tables.undo("run-2")
    assert (stored(lake), len(moved(lake))) == ([("01", 1, 1.0)], 1)


def test_a_long_stream_is_divided(lake: Lake) -> None:
    batch = rows(1, *[(None if number % 2 else number, 1.0) for number in range(50_000)]).to_batches()[0]
    reader = pa.RecordBatchReader.from_batches(batch.schema, (batch for _ in range(20)))
    with lake.audit(T, quarantine=[NO_ID]) as draft:
        draft.write(reader, mode="append")
        (found,) = draft.check([NO_ID])
    assert (lake.tables.scan(T).count(), found.quarantined) == (500_000, 500_000)
    assert lake.tables.scan(Q).count() == 500_000


@pytest.mark.parametrize("is_applied", [False, True], ids=["not sent", "response lost"])
def test_whichever_commit_fails_each_row_is_there_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_applied: bool
) -> None:
    """The n-th commit of a write fails, or its response is lost; then the same write is tried again."""
    catalog = lake.tables.catalog_plugin.connect()
    assert isinstance(catalog, Catalog)
    commit, left = catalog.commit_table, [0]

    def commit_table(*given: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and not is_applied:
            raise BrokenError
        answer = commit(*given)
        if left[0] == 0:
            raise CommitStateUnknownException("the response was lost")
        return answer

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    data = rows(1, (1, 1.0), (None, 2.0), (3, -3.0))
    number = 0
    while left[0] <= 0:
        number, table = number + 1, f"silver.t{number}"
        with lake.audit(table, quarantine=BOTH) as draft:
            left[0] = number
            for _ in range(2):
                with suppress(BrokenError, FloeError):
                    draft.write(data, mode="append", write_id="w")
            ended, left[0] = left[0], 0
        assert lake.tables.scan(table).to_arrow()["id"].to_pylist() == [1], number
        assert sorted(lake.tables.scan(f"{table}_quarantine").to_arrow()["amount"].to_pylist()) == [-3.0, 2.0], number
        left[0] = ended
    assert number > 4
