"""Names of tables and namespaces, and slices of time."""

from __future__ import annotations

import itertools
import random
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from floe_core.errors import ConfigurationError
from floe_core.identifiers import ColumnRange, Namespace, TableIdentifier, TableSlice, check_name

Window = tuple[datetime, datetime]

REFUSED = ["", "a/b", "..", "a`b", "a'b", 'a"b', "a b", "bücher", "-a", "a;b", "a\n", "x" * 129, "a\\b", "\u202ea"]


def utc(day: int, hour: int = 0) -> datetime:
    return datetime(2024, 3, day, hour, tzinfo=timezone.utc)


def windows_of(one: TableSlice) -> list[ColumnRange]:
    return [condition for part in one.parts for condition in part if isinstance(condition, ColumnRange)]


@pytest.mark.parametrize(
    ("text", "namespace", "name"),
    [
        ("bronze.customers", ("bronze",), "customers"),
        ("gold.metrics.daily", ("gold", "metrics"), "daily"),
        ("a.b.c.d", ("a", "b", "c"), "d"),
    ],
)
def test_a_table_is_read_from_its_dotted_name(text: str, namespace: tuple[str, ...], name: str) -> None:
    table = TableIdentifier.from_string(text)
    assert (table.namespace, table.name) == (namespace, name)
    assert table.full_name == str(table) == text


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (["customers"], "public.customers"),
        (["bronze", "customers"], "bronze.customers"),
        (["bronze", "raw_events"], "bronze.raw_events"),
        (["gold", "metrics", "daily"], "gold.metrics_daily"),
        (["a", "b", "c", "d"], "a.b_c_d"),
    ],
)
def test_an_asset_key_becomes_a_table(key: list[str], text: str) -> None:
    assert str(TableIdentifier.from_asset_key(key)) == text


@pytest.mark.parametrize(("default", "text"), [("raw", "raw.orders"), ("lake.raw", "lake.raw.orders")])
def test_a_single_part_lands_in_the_default_namespace(default: str, text: str) -> None:
    assert str(TableIdentifier.from_asset_key(["orders"], default)) == text
    assert str(TableIdentifier.from_asset_key(["a", "orders"], default)) == "a.orders"


def test_a_table_without_a_namespace_is_told_how_to_write_one() -> None:
    with pytest.raises(ConfigurationError, match=r"table 'orders' has no namespace: write it as 'namespace\.orders'"):
        TableIdentifier.from_string("orders")


@pytest.mark.parametrize("name", REFUSED)
def test_unusual_names_are_refused_everywhere(name: str) -> None:
    with pytest.raises(ValueError, match=r"is not a valid name|at most 128 are allowed"):
        check_name(name)
    with pytest.raises(ConfigurationError, match="asset key"):
        TableIdentifier.from_asset_key(["bronze", name])
    with pytest.raises(ConfigurationError, match="asset key"):
        TableIdentifier.from_asset_key([name])
    with pytest.raises(ConfigurationError, match="table"):
        TableIdentifier.from_string(f"bronze.{name}")
    with pytest.raises(ConfigurationError, match="namespace"):
        Namespace.from_string(name)


def test_a_dot_inside_a_part_of_an_asset_key_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'a\.b' is not a valid name"):
        TableIdentifier.from_asset_key(["a.b", "orders"])


def test_an_asset_key_without_parts_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="asset key"):
        TableIdentifier.from_asset_key([])


def test_every_bad_level_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        TableIdentifier.from_string("a b.c/d.e")
    assert "'a b' is not" in str(caught.value)
    assert "'c/d' is not" in str(caught.value)


def test_a_long_name_is_shortened_in_the_message() -> None:
    with pytest.raises(ValueError, match=r"^the name 'x{20}…' has 129 characters; at most 128 are allowed$"):
        check_name("x" * 129)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,9}", fullmatch=True), min_size=2, max_size=5))
def test_a_table_survives_being_written_and_read(levels: list[str]) -> None:
    table = TableIdentifier(namespace=tuple(levels[:-1]), name=levels[-1])
    assert TableIdentifier.from_string(str(table)) == table


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=20))
def test_any_text_is_a_name_of_plain_characters_or_refused(text: str) -> None:
    accepted = text.isascii() and text.replace("_", "a").replace("-", "a").isalnum() and not text.startswith("-")
    if accepted:
        assert check_name(text) == text
    else:
        with pytest.raises(ValueError, match="is not a valid name"):
            check_name(text)


def test_the_lineage_of_a_namespace_is_outermost_first() -> None:
    namespace = Namespace.from_string("bronze.raw.events")
    assert [str(one) for one in namespace.lineage()] == ["bronze", "bronze.raw", "bronze.raw.events"]
    assert [str(one) for one in Namespace.from_string("a").lineage()] == ["a"]


def test_windows_that_touch_or_overlap_become_one() -> None:
    touching = TableSlice.of_windows("ts", [(utc(1), utc(2)), (utc(2), utc(3))])
    overlapping = TableSlice.of_windows("ts", [(utc(1), utc(2, 12)), (utc(2), utc(3)), (utc(1, 3), utc(1, 4))])
    assert touching == overlapping == TableSlice(parts=((ColumnRange(column="ts", start=utc(1), end=utc(3)),),))


def test_gaps_between_windows_are_kept() -> None:
    gap = TableSlice.of_windows("ts", [(utc(5), utc(6)), (utc(1), utc(2)), (utc(3), utc(4))])
    assert [(part.start.day, part.end.day) for part in windows_of(gap)] == [(1, 2), (3, 4), (5, 6)]


def test_a_slice_reads_like_a_sentence_in_utc() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    day = (datetime(2024, 7, 1, tzinfo=berlin), datetime(2024, 7, 2, tzinfo=berlin))
    assert str(TableSlice.of_windows("ts", [day])) == "ts from 2024-06-30 22:00 to 2024-07-01 22:00 UTC"
    assert str(TableSlice.of_windows("ts", [(utc(1), utc(2)), (utc(3), utc(4))])) == (
        "ts from 2024-03-01 00:00 to 2024-03-02 00:00 UTC; ts from 2024-03-03 00:00 to 2024-03-04 00:00 UTC"
    )


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 10)), min_size=1, max_size=12), st.randoms())
def test_a_slice_covers_exactly_its_windows_in_any_order(hours: list[tuple[int, int]], order: random.Random) -> None:
    begin = utc(1)
    windows = [(begin + timedelta(hours=start), begin + timedelta(hours=start + length)) for start, length in hours]
    merged = TableSlice.of_windows("ts", windows)
    covered = [
        hour
        for part in windows_of(merged)
        for hour in range(int((part.start - begin) / timedelta(hours=1)), int((part.end - begin) / timedelta(hours=1)))
    ]
    assert covered == sorted({hour for start, length in hours for hour in range(start, start + length)})
    parts = windows_of(merged)
    assert all(one.end < other.start for one, other in itertools.pairwise(parts))
    order.shuffle(windows)
    assert TableSlice.of_windows("ts", windows) == merged


@pytest.mark.parametrize("chosen", [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2, 3]])
def test_hours_of_the_night_when_clocks_go_back_are_told_apart(chosen: list[int]) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    # In Berlin 02:00 to 03:00 comes twice: as 00:00 to 01:00 and as 01:00 to 02:00 UTC.
    begin = datetime(2024, 10, 26, 23, tzinfo=timezone.utc)
    hours = [(begin + timedelta(hours=hour), begin + timedelta(hours=hour + 1)) for hour in range(4)]
    local = [(start.astimezone(berlin), end.astimezone(berlin)) for start, end in hours]
    in_utc = TableSlice.of_windows("ts", [hours[hour] for hour in chosen])
    assert str(TableSlice.of_windows("ts", [local[hour] for hour in chosen])) == str(in_utc)


@pytest.mark.parametrize(
    "windows",
    [
        [(utc(2), utc(1))],
        [(utc(1), utc(1))],
        [(utc(1), utc(10)), (utc(5), utc(3))],
        [(utc(1), utc(10)), (utc(5), utc(5))],
        [(datetime(2024, 1, 1), datetime(2024, 1, 2))],
        [],
    ],
)
def test_windows_that_are_empty_reversed_or_without_a_zone_are_refused(windows: list[Window]) -> None:
    with pytest.raises(ValidationError):
        TableSlice.of_windows("ts", windows)
