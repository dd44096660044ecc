"""`lake.audit`: rows that are written, checked and published without Dagster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from floe_core import PartitionTransform, PartitionTransformType, TableCheck, TableSlice, compile_project
from floe_core.errors import CheckFailedError, ConcurrencyConflictError, ConfigurationError, TableNotFoundError
from floe_iceberg import Lake

T = "silver.orders"
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
BY_DAY = [PartitionTransform(source_column="at", transform_type=PartitionTransformType.DAY)]
NOT_NULL, UNIQUE = TableCheck(not_null="id"), TableCheck(unique="id", scope="table")


def rows(day: int, *ids: int | None) -> pa.Table:
    at = pa.array([FIRST + timedelta(days=day)] * len(ids), pa.timestamp("us", "UTC"))
    return pa.table({"at": at, "id": pa.array(ids, pa.int64())})


def day(number: int) -> TableSlice:
    return TableSlice.of_windows("at", [(FIRST + timedelta(days=number), FIRST + timedelta(days=number + 1))])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    with Lake(compile_project(tmp_path).artifacts) as opened:
        yield opened


def ids(lake: Lake, ref: str | None = None) -> list[int]:
    return sorted(lake.tables.scan(T, ref=ref).to_arrow()["id"].to_pylist(), key=str)


def test_a_new_table_is_absent_until_its_rows_have_passed(lake: Lake) -> None:
    with lake.audit(T) as draft:
        draft.write(rows(0, 1, 2), mode="overwrite", slice=day(0), partition_by=BY_DAY, properties={"owner": "shop"})
        with pytest.raises(TableNotFoundError, match="is not published yet"):
            ids(lake)
        assert draft.scan().count() == 2
        assert [one.passed for one in draft.check([NOT_NULL, UNIQUE])] == [True, True]
    assert ids(lake) == [1, 2]
    assert draft.published is not None
    table = lake.tables.load_table(T)
    assert (table.properties["owner"], len(table.spec().fields), sorted(table.metadata.refs)) == ("shop", 1, ["main"])


def test_rows_that_break_a_check_stay_on_the_branch(lake: Lake) -> None:
    lake.tables.write_data(T, rows(0, 1, 2), mode="append", partition_by=BY_DAY)
    with pytest.raises(CheckFailedError, match="not_null_id: 1 of 2 rows has no id") as error, lake.audit(T) as draft:  # noqa: PT012 - the block is what is tested
        draft.write(rows(1, 3, None), mode="overwrite", slice=day(1))
        draft.check([NOT_NULL])
    assert [outcome.failing for outcome in error.value.outcomes] == [1]
    assert ids(lake) == [1, 2]
    assert ids(lake, draft.branch) == [1, 2, 3, None]
    with pytest.raises(ValueError, match="mine"), lake.audit(T) as other:  # noqa: PT012 - the block is what is tested
        other.write(rows(1, 3), mode="append")
        raise ValueError("mine")
    assert ids(lake) == [1, 2]


def test_a_warning_does_not_stop_the_publication_and_no_write_publishes_nothing(lake: Lake) -> None:
    with lake.audit(T) as draft:
        draft.write(rows(1, None), mode="append")
        draft.check([NOT_NULL.model_copy(update={"severity": "warn"})])
    assert ids(lake) == [None]
    before = lake.tables.load_table(T).metadata_location
    with lake.audit(T) as empty:
        pass
    assert (empty.published, lake.tables.load_table(T).metadata_location) == (None, before)
    with pytest.raises(ConfigurationError, match="nothing was written to the draft"), lake.audit(T) as draft:
        draft.check([NOT_NULL])


def test_commits_to_other_slices_stay_and_checks_of_the_whole_table_run_again(lake: Lake) -> None:
    lake.tables.write_data(T, rows(0, 1), mode="append", partition_by=BY_DAY)
    with lake.audit(T) as draft:
        draft.write(rows(1, 2), mode="overwrite", slice=day(1))
        draft.check([NOT_NULL, UNIQUE])
        lake.tables.write_data(T, rows(2, 3, None), mode="append")
    assert ids(lake) == [1, 2, 3, None], "NULL is in a slice that the draft did not write"
    with pytest.raises(CheckFailedError, match="unique_id: 1 row repeats"), lake.audit(T) as draft:  # noqa: PT012 - the block is what is tested
        draft.write(rows(3, 4), mode="overwrite", slice=day(3))
        draft.check([UNIQUE])
        lake.tables.write_data(T, rows(4, 4), mode="append")
    assert ids(lake) == [1, 2, 3, 4, None]


def test_the_same_slice_is_a_conflict_and_appends_are_not(lake: Lake) -> None:
    lake.tables.write_data(T, rows(0, 1), mode="append", partition_by=BY_DAY)
    with pytest.raises(ConcurrencyConflictError, match="another writer changed the same rows"), lake.audit(T) as draft:  # noqa: PT012 - the block is what is tested
        draft.write(rows(0, 2), mode="overwrite", slice=day(0))
        lake.tables.write_data(T, rows(0, 9), mode="append")
    assert ids(lake) == [1, 9]
    with lake.audit(T) as draft:
        draft.write(rows(0, 2), mode="append")
        lake.tables.write_data(T, rows(0, 10), mode="append")
    assert ids(lake) == [1, 10, 2, 9]


def test_columns_that_readers_would_see_early_need_consent(lake: Lake) -> None:
    lake.tables.write_data(T, rows(0, 1), mode="append")
    more = rows(0, 2).append_column("note", pa.array(["new"]))
    with pytest.raises(ConfigurationError, match="allow it with early_columns=True"), lake.audit(T) as draft:
        draft.write(more, mode="append")
    assert sorted(lake.tables.load_table(T).metadata.refs) == ["main"], "nothing was begun"
    with lake.audit(T, early_columns=True) as draft:
        draft.write(more, mode="append")
    assert ids(lake) == [1, 2]


def test_a_draft_has_a_branch_of_its_own(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match="written to its own branch"), lake.audit(T) as draft:
        draft.write(rows(0, 1), mode="append", branch="other")


def test_rows_that_are_written_after_a_check_are_checked(lake: Lake) -> None:
    lake.tables.write_data(T, rows(0, 1), mode="append")
    with pytest.raises(CheckFailedError, match="not_null_id"), lake.audit(T) as draft:  # noqa: PT012 - the block is what is tested
        draft.write(rows(1, 2), mode="append")
        draft.check([NOT_NULL])
        draft.write(rows(1, None), mode="append")
    assert ids(lake) == [1]


def test_a_failure_that_is_caught_still_stops_the_publication(lake: Lake) -> None:
    lake.tables.write_data(T, rows(0, 1), mode="append")
    with pytest.raises(CheckFailedError), lake.audit(T) as draft:  # noqa: PT012 - the block is what is tested
        draft.write(rows(1, None), mode="append")
        with suppress(CheckFailedError):
            draft.check([NOT_NULL])
    with pytest.raises(CheckFailedError):
        draft.publish()
    assert ids(lake) == [1]


def test_a_draft_that_lost_its_branch_or_has_ended_takes_no_rows(lake: Lake) -> None:
    lake.tables.write_data(T, rows(0, 1), mode="append")
    with pytest.raises(ConcurrencyConflictError, match="was removed with what was written"), lake.audit(T) as draft:  # noqa: PT012 - the block is what is tested
        draft.write(rows(1, 2), mode="append")
        lake.tables.remove_branch(T, draft.branch)
        draft.write(rows(1, 3), mode="append")
    with pytest.raises(ConfigurationError, match="has ended"):
        draft.write(rows(1, 3), mode="append")
    assert ids(lake) == [1]


def test_an_upsert_finds_keys_anywhere_and_is_a_conflict_with_every_change(lake: Lake) -> None:
    lake.tables.write_data(T, rows(0, 1), mode="append", partition_by=BY_DAY)
    with pytest.raises(ConcurrencyConflictError, match="another writer changed the same rows"), lake.audit(T) as draft:  # noqa: PT012 - the block is what is tested
        draft.write(rows(1, 5), mode="upsert", keys=["id"], slice=day(1))
        lake.tables.write_data(T, rows(2, 5), mode="append")
    assert ids(lake) == [1, 5]
