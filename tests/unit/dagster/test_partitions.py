"""Dagster partitions as slices of tables, and the hidden partitioning that fits them."""

from datetime import datetime, timezone
from typing import Any

import pytest
from dagster import (
    DailyPartitionsDefinition,
    DynamicPartitionsDefinition,
    HourlyPartitionsDefinition,
    MonthlyPartitionsDefinition,
    MultiPartitionsDefinition,
    PartitionsDefinition,
    StaticPartitionsDefinition,
    TimeWindowPartitionsDefinition,
    WeeklyPartitionsDefinition,
)
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, NestedField, StringType, TimestampType, TimestamptzType

from floe_core.errors import ConfigurationError
from floe_core.identifiers import ColumnRange, ColumnValues
from floe_dagster.assets.partitions import partitioning

COLUMNS = {"tz": TimestamptzType(), "wall": TimestampType(), "day": DateType(), "city": StringType()}
SCHEMA = Schema(*(NestedField(at, name, kind) for at, (name, kind) in enumerate(COLUMNS.items(), 1)))
DAILY = DailyPartitionsDefinition("2026-01-01")
BERLIN = DailyPartitionsDefinition("2026-01-01", timezone="Europe/Berlin")
CITIES = StaticPartitionsDefinition(["Oslo", "Rome", "Lima"])


def cron(schedule: str, zone: str = "UTC") -> PartitionsDefinition[str]:
    return TimeWindowPartitionsDefinition(
        start="2026-01-01-00:00", fmt="%Y-%m-%d-%H:%M", cron_schedule=schedule, timezone=zone
    )


@pytest.mark.parametrize(
    ("definition", "column", "transform"),
    [
        (HourlyPartitionsDefinition("2026-01-01-00:00"), "tz", "hour"),
        (DAILY, "tz", "day"),
        (DAILY, "wall", "day"),
        (DAILY, "day", "day"),
        (WeeklyPartitionsDefinition("2026-01-01"), "tz", "day"),
        (MonthlyPartitionsDefinition("2026-01-01"), "tz", "month"),
        (MonthlyPartitionsDefinition("2026-01-01"), "day", "month"),
        (MonthlyPartitionsDefinition("2026-01-01", day_offset=15), "tz", "day"),
        (cron("0 0 1 1 *"), "tz", "year"),
        (cron("0 0 1 */3 *"), "tz", "month"),
        (cron("0 0 */3 * *"), "tz", "day"),
        (cron("0 0 1 * 1"), "tz", "day"),  # the first of a month, and Mondays
        (cron("0 */6 * * *"), "tz", "hour"),
        (cron("@daily"), "tz", "day"),
        (cron("@monthly"), "tz", "month"),
        (cron("*/15 * * * *"), "tz", "hour"),
        (DailyPartitionsDefinition("2026-01-01", hour_offset=6), "tz", "hour"),
        (DailyPartitionsDefinition("2026-01-01", timezone="Etc/UTC"), "tz", "day"),
        (BERLIN, "tz", "hour"),
        (BERLIN, "wall", "day"),
        (BERLIN, "day", "day"),
        (DailyPartitionsDefinition("2026-01-01", timezone="Asia/Kolkata"), "tz", "hour"),
        (MonthlyPartitionsDefinition("2026-01-01", timezone="Europe/Berlin"), "tz", "hour"),
        (MonthlyPartitionsDefinition("2026-01-01", timezone="Europe/Berlin"), "wall", "month"),
        (CITIES, "city", "identity"),
        (DynamicPartitionsDefinition(name="cities"), "city", "identity"),
    ],
)
def test_a_new_table_is_partitioned_so_that_each_key_is_made_of_whole_partitions(
    definition: PartitionsDefinition[str], column: str, transform: str
) -> None:
    (one,) = partitioning(definition, column, "a").transforms(SCHEMA)
    assert (one.source_column, one.transform_type.value) == (column, transform)


def test_two_dimensions_are_two_fields() -> None:
    both = MultiPartitionsDefinition({"when": BERLIN, "where": CITIES})
    made = partitioning(both, {"when": "tz", "where": "city"}, "a").transforms(SCHEMA)
    assert [(one.source_column, one.transform_type.value) for one in made] == [("tz", "hour"), ("city", "identity")]


def test_days_of_a_zone_are_windows_between_its_midnights() -> None:
    one = partitioning(BERLIN, "tz", "a").slice(["2026-03-28", "2026-03-29", "2026-03-31"])
    utc = timezone.utc
    assert one.parts == (
        (
            ColumnRange(
                column="tz",
                start=datetime(2026, 3, 27, 23, tzinfo=utc),
                end=datetime(2026, 3, 29, 22, tzinfo=utc),
                zone="Europe/Berlin",
            ),
        ),
        (
            ColumnRange(
                column="tz",
                start=datetime(2026, 3, 30, 22, tzinfo=utc),
                end=datetime(2026, 3, 31, 22, tzinfo=utc),
                zone="Europe/Berlin",
            ),
        ),
    )


def test_pairs_are_merged_where_they_fill_a_grid_and_kept_apart_where_not() -> None:
    both = MultiPartitionsDefinition({"when": DAILY, "where": CITIES})
    made = partitioning(both, {"when": "tz", "where": "city"}, "a")
    grid = made.slice([f"2026-01-0{day}|{city}" for day in (1, 2, 3) for city in ("Oslo", "Lima")])
    assert len(grid.parts) == 1
    assert str(grid) == "tz from 2026-01-01 00:00 to 2026-01-04 00:00 UTC and city in ('Lima', 'Oslo')"
    pairs = made.slice(["2026-01-01|Oslo", "2026-01-02|Lima"])
    assert [[str(one) for one in part] for part in pairs.parts] == [
        ["tz from 2026-01-01 00:00 to 2026-01-02 00:00 UTC", "city = 'Oslo'"],
        ["tz from 2026-01-02 00:00 to 2026-01-03 00:00 UTC", "city = 'Lima'"],
    ]


def test_static_keys_are_values() -> None:
    one = partitioning(CITIES, "city", "a").slice(["Rome", "Oslo", "Rome"])
    assert one.parts == ((ColumnValues(column="city", values=("Oslo", "Rome")),),)


class Fancy(PartitionsDefinition[str]):
    def get_partition_keys(self, *_: Any, **__: Any) -> list[str]:
        return ["a"]

    def get_paginated_partition_keys(self, *_: Any, **__: Any) -> Any: ...


@pytest.mark.parametrize(
    ("definition", "expr", "words"),
    [
        (DAILY, None, r'add metadata=\{"partition_expr": "COLUMN"\}'),
        (DAILY, {"day": "tz"}, "does not name the column"),
        (DAILY, "", "does not name the column"),
        (MultiPartitionsDefinition({"when": DAILY, "where": CITIES}), "tz", r'"when": "COLUMN", "where": "COLUMN"'),
        (MultiPartitionsDefinition({"when": DAILY, "where": CITIES}), {"when": "tz"}, "by when and where"),
        (
            MultiPartitionsDefinition({"when": DAILY, "where": CITIES}),
            {"when": "TZ", "where": "tz"},
            "one column twice",
        ),
        (Fancy(), "city", "partitioned by Fancy, which Floe does not know"),
    ],
)
def test_what_the_metadata_must_say_is_said(definition: Any, expr: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        partitioning(definition, expr, "bronze/orders")
    assert "asset bronze/orders" in str(caught.value)
