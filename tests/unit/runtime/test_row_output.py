"""Rows as JSON, as CSV and as a table for people: nothing is lost without notice."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterator
from datetime import date, datetime, time, timezone
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from rich.console import Console

from floe_core.errors import QueryError
from floe_iceberg.reading import csv_array, json_values, shown_values
from floe_runtime.cli.rows.options import Wanted
from floe_runtime.cli.rows.output import Rows, write_rows
from floe_runtime.cli.rows.table import COUNTED, print_table

MICROS, ZONED, NANOS = pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns")
POINT = pa.struct([("x", pa.float64()), ("at", pa.list_(ZONED))])
INTERVAL = pa.month_day_nano_interval()


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([True, None], pa.bool_(), [True, None]),
        ([2**63 - 1, None], pa.int64(), [2**63 - 1, None]),
        ([1.5, math.nan, math.inf, -math.inf, -0.0], pa.float64(), [1.5, "NaN", "Infinity", "-Infinity", -0.0]),
        ([0.1], pa.float32(), [0.10000000149011612]),
        ([Decimal("12.50"), Decimal("-0.0000001"), None], pa.decimal128(20, 7), ["12.5000000", "-0.0000001", None]),
        ([Decimal(10**37)], pa.decimal128(38, 0), [10**37]),
        (["", "Ærø\n", None], pa.string(), ["", "Ærø\n", None]),
        ([b"\x00\xff", b"", None], pa.binary(), ["AP8=", "", None]),
        ([date(2026, 1, 31), None], pa.date32(), ["2026-01-31", None]),
        ([time(1, 2, 3), time(1, 2, 3, 4)], pa.time64("us"), ["01:02:03", "01:02:03.000004"]),
        ([datetime(2026, 1, 31, 12), None], MICROS, ["2026-01-31T12:00:00", None]),
        ([datetime(1, 1, 1, 0, 0, 0, 5)], MICROS, ["0001-01-01T00:00:00.000005"]),
        ([datetime(2026, 1, 31, 12, tzinfo=timezone.utc), None], ZONED, ["2026-01-31T12:00:00+00:00", None]),
        ([datetime(2026, 1, 31, 12, tzinfo=timezone.utc)], pa.timestamp("s", "+02:00"), ["2026-01-31T12:00:00+00:00"]),
        ([pa.scalar(1, NANOS)], NANOS, ["1970-01-01T00:00:00.000000001"]),
        ([pa.scalar(2**58, MICROS)], MICROS, ["11103-08-29T17:22:31.711744"]),
        ([pa.scalar(2**63 - 1, ZONED), pa.scalar(1 - 2**63, ZONED)], ZONED, ["Infinity", "-Infinity"]),
        ([pa.scalar(2**31 - 1, pa.date32()), pa.scalar(10**8, pa.date32())], pa.date32(), ["Infinity", "275760-09-13"]),
        ([pa.scalar(-(2**62), ZONED), None], ZONED, ["-144169-06-28T09:59:32.612096+00:00", None]),
        ([pa.scalar(2**63 - 1, NANOS)], NANOS, ["Infinity"]),
        ([(1, 2, 3_000_000_000), (0, 0, 0), (14, 0, 500)], INTERVAL, ["P1M2DT3S", "PT0S", "P14MT0.0000005S"]),
        ([{"x": math.nan, "at": [None]}, None], POINT, [{"x": "NaN", "at": [None]}, None]),
        ([[1, None], [], None], pa.list_(pa.int32()), [[1, None], [], None]),
        ([[1, 2], None], pa.list_(pa.int32(), 2), [[1, 2], None]),
        ([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64()), [[{"key": "k", "value": 1}], [], None]),
        ([None], pa.null(), [None]),
    ],
)  # fmt: skip
def test_values_as_json(values: list[Any], kind: pa.DataType, expected: list[Any]) -> None:
    array = pa.array(values, kind)
    assert json.dumps(json_values(array)) == json.dumps(expected)
    # A slice, as a limit makes one, has the values of its own rows.
    assert (
        json_values(pa.concat_arrays([array, array]).slice(1, len(array)))
        == (json_values(array) * 2)[1 : len(array) + 1]
    )


def test_values_of_extension_types_and_dictionaries() -> None:
    one = uuid.UUID(int=1)
    assert json_values(pa.array([one.bytes, None], pa.uuid())) == [str(one), None]
    assert json_values(pa.array(["a", None, "a"]).dictionary_encode()) == ["a", None, "a"]


def test_csv_has_texts_only_where_it_would_lose_something() -> None:
    assert csv_array(pa.array([Decimal("1.50")])).type == pa.decimal128(3, 2)
    assert csv_array(pa.array([datetime(2026, 1, 31)], ZONED)).to_pylist() == ["2026-01-31T00:00:00+00:00"]
    assert csv_array(pa.array([{"a": [1, None]}, None])).to_pylist() == ['{"a": [1, null]}', None]


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert shown_values(pa.array(["a\x1b[31m\nb\u202e世", None])) == ["a\\x1b[31m\\nb\\u202e世", None]


def printed(table: pa.Table, *, width: int = 60, limit: int = 3, total: int | None = None) -> str:
    target = StringIO()
    console = Console(file=target, width=width, no_color=True, highlight=False)
    print_table(console, table.schema, iter(table.to_batches()), limit=limit, total=total, fewer="--columns chooses")
    return target.getvalue()


def test_columns_that_do_not_fit_are_named() -> None:
    wide = pa.table({f"column_{number}": ["some text", "other"] for number in range(12)})
    text = printed(wide)
    assert max(map(len, text.splitlines())) <= 60
    assert "and 7 more columns: column_5, column_6," in text.replace("\n", " ")
    assert "--columns chooses" in text.replace("\n", " ")
    assert "column_11" in printed(wide, width=200)


def test_a_single_wide_row_has_a_line_for_each_column() -> None:
    text = printed(pa.table({f"column_{number}": ["some text"] for number in range(12)}))
    assert text.count("some text") == 12
    assert "more column" not in text


def test_long_texts_are_cut_visibly_and_rows_are_counted() -> None:
    table = pa.table({"text": ["x" * 100] * 5, "n": [None, 2, 3, 4, 5]})
    text = printed(table)
    assert f"{'x' * 37}..." in text
    assert "NULL" in text
    assert "and 2 more rows; --limit shows more" in text
    assert "and 995 more rows" in printed(table, total=998)
    assert "5 rows" in printed(table, limit=5)
    assert "1 row\n" in printed(table.slice(0, 1))
    assert "no rows" in printed(table.slice(0, 0))
    assert f"and more than {COUNTED:,} more rows" in printed(pa.table({"n": range(COUNTED + 5)}))


def failing(limit: int | None) -> Iterator[pa.RecordBatch]:
    del limit
    yield pa.record_batch({"n": [1, 2]})
    raise QueryError("n is too large")


@pytest.mark.parametrize("output", ["json", "csv", "parquet"])
def test_rows_that_end_with_an_error_are_no_success(
    output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = Rows(pa.schema([("n", pa.int64())]), ["long"], failing, {"table": "a.b"}, "")
    file = tmp_path / "rows"
    with pytest.raises(QueryError):
        write_rows(rows, Wanted(output, None, file, as_json=False))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(click.exceptions.Exit) as ended:
        write_rows(rows, Wanted("json", None, None, as_json=True))
    assert ended.value.exit_code == 1
    assert json.loads(capsys.readouterr().out) == {
        "table": "a.b",
        "columns": [{"name": "n", "type": "long"}],
        "rows": [{"n": 1}, {"n": 2}],
        "ok": False,
        "error": "n is too large",
        "problems": [],
    }
