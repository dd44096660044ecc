"""Where the rows of a query come from: files that DuckDB reads itself, and Arrow data for all others."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType

from floe_core.compiler import compile_project
from floe_core.errors import (
    ConfigurationError,
    DamagedFileError,
    FloeStorageError,
    IncompatibleLibraryError,
    QueryError,
    TableNotFoundError,
)
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_iceberg import AddColumn, DropColumn, Lake, MoveColumn, RenameColumn, WidenColumn
from floe_iceberg.query.parquet_files import split

NAN = math.nan


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "floe.yaml").write_text("name: shop")
    with Lake(compile_project(tmp_path).artifacts) as opened:
        yield opened


@pytest.fixture
def as_arrow(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files of each table were left to Arrow, in the order in which tables were planned."""
    counts: list[int] = []

    def counted(*arguments: Any) -> Any:
        groups, rest = split(*arguments)
        counts.append(len(rest))
        return groups, rest

    monkeypatch.setattr("floe_iceberg.query.duckdb_engine.split", counted)
    return counts


def write(lake: Lake, table: str, **columns: Any) -> None:
    lake.tables.write_data(table, pa.table(columns), mode="append")


def rows(lake: Lake, query: str) -> list[dict[str, Any]]:
    return lake.sql(query).to_arrow().to_pylist()  # type: ignore[no-any-return]


def test_duckdb_reads_files_of_changed_columns_by_their_ids(lake: Lake, as_arrow: list[int]) -> None:
    write(lake, "a.t", id=pa.array([1], pa.int32()), x=pa.array([0.1], pa.float32()), was=["old"], gone=[7])
    lake.tables.evolve_schema("a.t", DropColumn("gone"), allow_incompatible_changes=True)
    lake.tables.evolve_schema(
        "a.t",
        RenameColumn("was", "gone"),  # the name of a column that old files have with another id
        AddColumn("new", pa.string()),
        WidenColumn("id", pa.int64()),
        WidenColumn("x", pa.float64()),
        MoveColumn("new"),
        allow_incompatible_changes=True,
    )
    write(lake, "a.t", id=[2**40], x=[NAN], gone=["young"], new=["n"])
    assert rows(lake, "SELECT * FROM a.t ORDER BY id") == [
        {"new": None, "id": 1, "x": pytest.approx(0.1), "gone": "old"},
        {"new": "n", "id": 2**40, "x": pytest.approx(NAN, nan_ok=True), "gone": "young"},
    ]
    assert rows(lake, "SELECT id FROM a.t WHERE gone = 'old' AND new IS NULL") == [{"id": 1}]
    assert as_arrow == [0, 0]


def test_values_that_statistics_of_files_leave_out_are_found(lake: Lake, as_arrow: list[int]) -> None:
    """PyArrow writes minimum and maximum without NaN, and DuckDB would take them for those of all values."""
    write(lake, "a.t", id=[1, 2, 3], x=[1.0, NAN, -0.0], f=pa.array([NAN, 2.0, None], pa.float32()))
    assert rows(lake, "SELECT id FROM a.t WHERE x > 5") == [{"id": 2}]
    assert rows(lake, "SELECT id FROM a.t WHERE NOT (f <= 2)") == [{"id": 1}]
    assert rows(lake, "SELECT id FROM a.t WHERE x = 'nan'::DOUBLE") == [{"id": 2}]
    assert math.isnan(rows(lake, "SELECT max(x) AS high FROM a.t")[0]["high"])
    assert rows(lake, "SELECT id FROM a.t WHERE x = 0 ORDER BY x DESC") == [{"id": 3}]
    assert set(as_arrow) == {0}


def test_floats_inside_of_other_columns_are_read_as_arrow(lake: Lake, as_arrow: list[int]) -> None:
    place = pa.struct([("lat", pa.float64())])
    write(lake, "a.t", id=[1, 2], place=pa.array([{"lat": 1.0}, {"lat": NAN}], place), scores=[[1.0], [NAN]])
    write(lake, "a.plain", id=[1, 2], place=[{"city": "Oslo"}, None], tags=[["a", None], []])
    assert rows(lake, "SELECT id FROM a.t WHERE place.lat > 5") == [{"id": 2}]
    assert rows(lake, "SELECT id FROM a.t WHERE scores[1] > 5") == [{"id": 2}]
    assert rows(lake, "SELECT place.city AS c, tags FROM a.plain WHERE id = 1") == [{"c": "Oslo", "tags": ["a", None]}]
    assert as_arrow == [1, 1, 0]


def test_partitions_in_the_names_of_folders_do_not_replace_values(lake: Lake, as_arrow: list[int]) -> None:
    by = [PartitionTransform(source_column="city", transform_type=PartitionTransformType.IDENTITY)]
    data = pa.table({"city": ["Oslo", "*", "[a]?", "%20 +", None], "id": [1, 2, 3, 4, 5]})
    lake.tables.write_data("a.t", data, mode="append", partition_by=by)
    found = rows(lake, "SELECT city, id FROM a.t ORDER BY id")
    assert [row["city"] for row in found] == ["Oslo", "*", "[a]?", "%20 +", None]
    assert rows(lake, "SELECT id FROM a.t WHERE city = '*'") == [{"id": 2}]
    assert as_arrow[0] < 5


def test_files_without_field_ids_are_read_as_arrow(lake: Lake, tmp_path: Path, as_arrow: list[int]) -> None:
    write(lake, "a.t", id=[1], note=["x"])
    table = lake.tables.load_table("a.t")
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"note": ["y"], "id": [2]}), foreign)
    table.add_files([foreign.as_uri()])
    assert rows(lake, "SELECT id, note FROM a.t ORDER BY id") == [{"id": 1, "note": "x"}, {"id": 2, "note": "y"}]
    assert as_arrow == [1]


def test_each_occurrence_of_a_table_in_arrow_data_has_all_rows(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream can be read once; the table is read anew for each occurrence."""
    monkeypatch.setattr("floe_iceberg.query.duckdb_engine.split", lambda _session, tasks, *_rest: ([], list(tasks)))
    for start in (0, 5):
        write(lake, "a.t", id=list(range(start, start + 5)), note=["x"] * 5, place=[{"n": n} for n in range(5)])
    query = (
        "SELECT count(*) AS n, sum(y.place.n) AS s FROM a.t x JOIN a.t y ON x.id = y.id WHERE y.note = 'x' AND x.id > 3"
    )
    assert [(row["n"], int(row["s"])) for row in rows(lake, query)] == [(6, 14)]
    assert rows(lake, "SELECT count(*) AS n FROM a.t WHERE id IN (SELECT max(id) FROM a.t)") == [{"n": 1}]


def test_a_table_that_is_written_meanwhile_is_read_as_it_was(lake: Lake) -> None:
    write(lake, "a.t", id=[1])
    with lake.sql("SELECT x.id FROM a.t x, a.t y") as result:
        write(lake, "a.t", id=[2])
        assert [batch.num_rows for batch in result.batches()] == [1]
    assert list(result.snapshots) == ["a.t"]


def test_a_result_is_streamed_and_stops_when_it_is_closed(lake: Lake) -> None:
    write(lake, "a.t", id=list(range(1000)))
    result = lake.sql("SELECT t.id, n.range FROM a.t t, range(1000000000) n")
    assert sum(batch.num_rows for batch in result.batches(limit=25_000)) == 25_000
    with pytest.raises(QueryError, match="were read already"):
        next(result.batches())
    assert pa.total_allocated_bytes() < 100_000_000


def test_a_result_that_is_held_can_be_used_again(lake: Lake) -> None:
    write(
        lake, "a.t", id=[1, 2], at=pa.array([datetime(2026, 1, 1, tzinfo=timezone.utc)] * 2, pa.timestamp("us", "UTC"))
    )
    result = lake.sql("SELECT id, at FROM a.t ORDER BY id")
    assert result.columns == ("id", "at")
    assert result.types == ("BIGINT", "TIMESTAMP WITH TIME ZONE")
    assert result.to_pandas()["id"].tolist() == [1, 2]
    assert result.to_polars().shape == (2, 2)
    assert [batch.num_rows for batch in result.batches(limit=1)] == [1]
    assert str(result.to_arrow().schema.field("at").type) == "timestamp[us, tz=UTC]"


@pytest.mark.parametrize("fault", ["cut", "emptied", "removed"])
def test_a_damaged_file_is_named(lake: Lake, fault: str) -> None:
    write(lake, "a.t", id=list(range(100)), note=["x"] * 100)
    (path,) = (file.path for file in lake.tables.list_files("a.t").files)
    file = Path(path.removeprefix("file://"))
    content = file.read_bytes()
    if fault == "removed":
        file.unlink()
    else:
        file.write_bytes(content[:-9] if fault == "cut" else b"PAR1" + bytes(len(content) - 200) + content[-196:])
    expected = FloeStorageError if fault == "removed" else DamagedFileError
    with pytest.raises(expected, match=r"a\.t") as raised:
        rows(lake, "SELECT * FROM a.t")
    assert fault == "removed" or file.name in str(raised.value)


def test_what_does_not_exist_is_named_with_the_nearest(lake: Lake) -> None:
    write(lake, "bronze.raw.orders", order_id=[1], amount=[2])
    with pytest.raises(
        TableNotFoundError, match=r"line 1, column 15: table 'bronze.raw.ordres' .* bronze.raw.orders\?"
    ):
        lake.sql("SELECT * FROM bronze.raw.ordres")
    with pytest.raises(QueryError, match=r"'orders' has no namespace; did you mean bronze.raw.orders\?"):
        lake.sql("SELECT * FROM orders")
    for query in (
        "SELECT amuont FROM bronze.raw.orders",
        "SELECT o.amuont FROM bronze.raw.orders VERSION AS OF 'main' o",
    ):
        with pytest.raises(
            QueryError, match=r"line 1, column 8: there is no column '(o\.)?amuont'; did you mean 'amount'"
        ):
            lake.sql(query)
    with pytest.raises(QueryError, match=r"column 33: table .* snapshot 'lates' .*branches: main"):
        lake.sql("SELECT * FROM bronze.raw.orders VERSION AS OF 'lates'")
    with pytest.raises(QueryError, match="has no snapshot 12"):
        lake.sql("SELECT * FROM bronze.raw.orders VERSION AS OF 12")
    with pytest.raises(QueryError, match="no time zone"):
        lake.sql("SELECT * FROM bronze.raw.orders TIMESTAMP AS OF '2026-01-31'")
    with pytest.raises(QueryError, match="--engine spark"):
        lake.sql("SELECT * FROM bronze.raw.orders.snapshots")


def test_the_place_of_an_error_is_right_after_replaced_names_and_wide_characters(lake: Lake) -> None:
    write(lake, "bronze.raw.orders", id=[1])
    head = lake.tables.current_snapshot("bronze.raw.orders")
    assert head is not None
    with pytest.raises(QueryError) as raised:
        lake.sql(f"SELECT 'æ世' AS x\nFROM bronze.raw.orders VERSION AS OF {head.snapshot_id} AS o\nWHERE 'æ' = o.nope")
    assert (raised.value.line, raised.value.column) == (3, 13)


def test_an_unknown_engine_and_a_missing_library_say_what_to_do(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="must be duckdb or spark"):
        lake.sql("SELECT 1", engine="sqlite")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(IncompatibleLibraryError, match=r"pip install 'floe-iceberg\[sql\]'"):
        lake.sql("SELECT 1")


def test_a_library_that_is_missing_is_named_and_the_rows_stay(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    result = lake.sql("SELECT 1 AS a")
    for name in ("pandas", "polars"):
        monkeypatch.setattr("floe_iceberg.query.result.find_spec", {}.get)
        with pytest.raises(IncompatibleLibraryError, match=f"pip install {name}"):
            getattr(result, f"to_{name}")()
    assert result.to_arrow().to_pylist() == [{"a": 1}]


def test_columns_that_differ_only_in_case_are_refused(lake: Lake) -> None:
    write(lake, "a.t", id=[1])
    with lake.tables.load_table("a.t").update_schema(case_sensitive=True) as change:  # as another writer may
        change.add_column("ID", LongType())
    with pytest.raises(QueryError, match="differ only in case"):
        lake.sql("SELECT id FROM a.t")


@pytest.mark.parametrize(
    "value", ["time '12:00:00'::timetz", "1::uhugeint", "'1010'::bit", "1::bignum", "union_value(k := 1)", "1::variant"]
)
def test_types_that_a_result_would_change_are_refused(lake: Lake, value: str) -> None:
    for one in (value, f"{{'a': [{value}]}}"):
        with pytest.raises(QueryError, match=r"column 'x' is of type .*; cast it to VARCHAR"):
            lake.sql(f"SELECT {one} AS x")
    assert lake.sql("SELECT '1010'::bit::varchar AS x, [1::hugeint]::hugeint[1] AS y").to_arrow().to_pylist() == [
        {"x": "1010", "y": [1]}
    ]


def test_a_query_that_cannot_run_says_so_in_a_line(lake: Lake) -> None:
    for query, said in (
        ("SELECT ?", "line 1, column 8: a query has no parameters"),
        ("SELECT $1", "line 1, column 8: a query has no parameters"),
        ("SELECT '\udcff'", "character 9 of the query is not valid text"),
        ("SELECT 1 + 'x'::BLOB", "You might need to add explicit type casts\n"),
        ("SELECT nope", "there is no column 'nope'\n"),
    ):
        with pytest.raises(QueryError, match=re.escape(said)):
            lake.sql(query)
