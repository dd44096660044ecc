"""Slices as filters: what a key means depends on the column, and every value has one spelling."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from floe_core.errors import ConfigurationError
from floe_core.identifiers import ColumnRange, ColumnValues, TableSlice
from floe_iceberg.expressions.conditions import matches
from floe_iceberg.expressions.slices import slice_filter

UTC = timezone.utc
BERLIN = "Europe/Berlin"


def schema(kind: Any) -> Schema:
    return Schema(NestedField(1, "Key", kind))


def chosen(one: TableSlice, kind: Any, values: list[Any]) -> list[Any]:
    """Which of these values the slice holds."""
    arrow = {
        "string": pa.string(),
        "int": pa.int32(),
        "long": pa.int64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
        "timestamptz": pa.timestamp("us", tz="UTC"),
    }[str(kind)]
    table = pa.table({"Key": pa.array(values, arrow)})
    kept: list[Any] = table.filter(matches(slice_filter(one, schema(kind)), schema(kind)))["Key"].to_pylist()
    return kept


@pytest.mark.parametrize(
    ("kind", "keys", "values", "inside"),
    [
        (
            StringType(),
            ["a", "it's", "ü/x", 'q"'],
            ["a", "it's", "ü/x", 'q"', "A", "", None],
            ["a", "it's", "ü/x", 'q"'],
        ),
        (IntegerType(), ["7", "-3", "0"], [7, -3, 0, 1, None], [7, -3, 0]),
        (LongType(), ["9223372036854775807"], [2**63 - 1, 0], [2**63 - 1]),
        (
            DateType(),
            ["2026-01-31"],
            [datetime(2026, 1, 31).date(), datetime(2026, 2, 1).date()],
            [datetime(2026, 1, 31).date()],
        ),
    ],
)
def test_a_key_is_a_value_of_the_column(kind: Any, keys: list[str], values: list[Any], inside: list[Any]) -> None:
    assert chosen(TableSlice.of_values("key", keys), kind, values) == inside


@pytest.mark.parametrize(
    ("kind", "key", "words"),
    [
        (IntegerType(), "07", "'07' is no such value; write keys like '7'"),
        (IntegerType(), "seven", "is int, and the partition key 'seven'"),
        (IntegerType(), "2147483648", "no such value"),
        (IntegerType(), "٣", "no such value"),
        (IntegerType(), "-0", "no such value"),
        (LongType(), "1_000", "no such value"),
        (DateType(), "2026-1-31", "write keys like '2026-01-31'"),
        (DateType(), "20260131", "no such value"),
        (BooleanType(), "true", "must be a string, an integer or a date: cast it"),
    ],
)
def test_a_key_that_is_no_value_or_not_its_only_spelling_is_refused(kind: Any, key: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        slice_filter(TableSlice.of_values("key", [key]), schema(kind))


def day(date: str, zone: str = BERLIN) -> ColumnRange:
    start = datetime.fromisoformat(date).replace(tzinfo=ZoneInfo(zone))
    return ColumnRange(column="key", start=start, end=start + timedelta(days=1), zone=zone)


def test_a_day_of_a_zone_on_a_column_that_knows_no_zone_is_a_day_of_the_wall_clock() -> None:
    one = TableSlice.union([[day("2026-10-25")]])
    walls = [
        datetime(2026, 10, 24, 23, 59),
        datetime(2026, 10, 25),
        datetime(2026, 10, 25, 23, 59),
        datetime(2026, 10, 26),
    ]
    assert chosen(one, TimestampType(), walls) == walls[1:3]
    assert chosen(one, DateType(), [wall.date() for wall in walls]) == [walls[1].date()] * 2
    moments = [datetime(2026, 10, 24, 22, tzinfo=UTC) + timedelta(hours=hour) for hour in range(-1, 27)]
    assert len(chosen(one, TimestamptzType(), moments)) == 25


def test_an_hour_that_the_wall_clock_shows_twice_is_refused_where_it_cannot_be_told() -> None:
    first = datetime(2026, 10, 25, 0, tzinfo=UTC)  # 02:00 in Berlin, for the first time
    for start in (first, first + timedelta(hours=1)):
        hour = TableSlice.of_windows("key", [(start, start + timedelta(hours=1))], zone=BERLIN)
        with pytest.raises(ConfigurationError, match="show 2026-10-25 02:00 twice; use a timestamp with a time zone"):
            slice_filter(hour, schema(TimestampType()))
        assert chosen(hour, TimestamptzType(), [start, start + timedelta(hours=1)]) == [start]


def test_a_window_that_cuts_a_date_is_refused() -> None:
    half = TableSlice.of_windows("key", [(datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 2, 12, tzinfo=UTC))])
    with pytest.raises(ConfigurationError, match="is a date, but the partition reaches from 2026-01-01 12:00"):
        slice_filter(half, schema(DateType()))


@pytest.mark.parametrize(("zone", "date"), [("America/Havana", "2026-03-08"), ("Africa/Cairo", "2026-04-24")])
def test_a_date_is_a_date_where_clocks_change_at_midnight(zone: str, date: str) -> None:
    days = [datetime.fromisoformat(date).date() + timedelta(days=number) for number in (-1, 0, 1)]
    starts = [datetime.combine(one, datetime.min.time(), ZoneInfo(zone)).astimezone(UTC) for one in days]
    for one, (start, end) in zip(days, itertools.pairwise(starts), strict=False):
        window = TableSlice.of_windows("key", [(start, end)], zone=zone)
        assert chosen(window, DateType(), days) == [one]


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone 'Mars/North' is known here"):
        TableSlice.of_windows(
            "key", [(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))], zone="Mars/North"
        )


CELLS = st.sets(st.tuples(st.integers(0, 5), st.sampled_from("abc")), min_size=1)


@given(CELLS)
def test_a_union_of_cells_holds_exactly_these_cells(cells: set[tuple[int, str]]) -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC)
    both = Schema(NestedField(1, "at", TimestamptzType()), NestedField(2, "city", StringType()))

    def part(number: int, city: str) -> list[Any]:
        start = first + timedelta(days=number)
        return [
            ColumnRange(column="at", start=start, end=start + timedelta(days=1)),
            ColumnValues(column="city", values=(city,)),
        ]

    one = TableSlice.union(part(*cell) for cell in sorted(cells))
    everything = [(number, city) for number in range(6) for city in "abc"]
    moments = pa.array(
        [first + timedelta(days=number, hours=7) for number, _ in everything], pa.timestamp("us", tz="UTC")
    )
    table = pa.table(
        {"n": [number for number, _ in everything], "at": moments, "city": [city for _, city in everything]}
    )
    kept = table.filter(matches(slice_filter(one, both), both))
    assert {(row["n"], row["city"]) for row in kept.to_pylist()} == cells
    assert len(one.parts) <= len(cells)


def test_a_thousand_separate_days_are_no_deeper_than_a_few() -> None:
    first = datetime(2020, 1, 1, tzinfo=UTC)
    windows = [(first + timedelta(days=2 * n), first + timedelta(days=2 * n + 1)) for n in range(2000)]
    one = TableSlice.of_windows("key", windows)
    assert len(one.parts) == 2000
    moments = [first + timedelta(days=n) for n in range(10)]
    assert len(chosen(one, TimestamptzType(), moments)) == 5
    assert str(one).endswith("and 1995 more")
