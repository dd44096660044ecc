"""Dagster's kinds of partitions, ready to test with."""

from collections.abc import Mapping
from datetime import date

import pyarrow as pa
from dagster import (
    DailyPartitionsDefinition,
    DynamicPartitionsDefinition,
    HourlyPartitionsDefinition,
    MonthlyPartitionsDefinition,
    StaticPartitionsDefinition,
    TimeWindowPartitionsDefinition,
    WeeklyPartitionsDefinition,
)

from floe_dagster.testing.partitions import DATE, LOCAL, Dimension, Partitions, by_both, by_one, labels, windows

__all__ = ["ODD_PARTITIONS", "PARTITIONS"]

_DAYS = DailyPartitionsDefinition("2026-01-30", end_date="2026-02-03")
_MONTHS = MonthlyPartitionsDefinition("2025-11-01", end_date="2026-03-01")
_HOURS = HourlyPartitionsDefinition("2026-01-01-22:00", end_date="2026-01-02-02:00")
_WEEKS = WeeklyPartitionsDefinition("2025-12-21", end_date="2026-01-18")
_SIX_HOURS = TimeWindowPartitionsDefinition(
    cron_schedule="0 */6 * * *", start="2026-01-01-12:00", end="2026-01-02-12:00", fmt="%Y-%m-%d-%H:%M"
)
# The last window of a month is shorter: days are counted from the first.
_THREE_DAYS = TimeWindowPartitionsDefinition(
    cron_schedule="0 0 */3 * *", start="2026-01-25", end="2026-02-04", fmt="%Y-%m-%d"
)
# Clocks in Berlin go forward on the 29th; those of Kolkata are five and a half hours ahead of UTC.
_BERLIN = DailyPartitionsDefinition("2026-03-27", end_date="2026-03-31", timezone="Europe/Berlin")
_KOLKATA = DailyPartitionsDefinition("2026-01-30", end_date="2026-02-03", timezone="Asia/Kolkata")

_CITIES = ["berlin", "Berlin", "paris", "2026"]
_NUMBERS = ["-1", "0", "7", "1000000"]
_DATES = ["2025-12-31", "2026-01-01", "2026-02-28", "2026-03-01"]
_ODD = ["it's", 'say "no"', "a/b/../c", "grün ☃ 東京", "100 % = more; less?", "null", "\\d+\\", "x" * 200]


def _static(column: str, keys: list[str]) -> Dimension:
    return labels(StaticPartitionsDefinition(keys), column, keys)


def _dynamic(column: str, keys: list[str], name: str) -> Dimension:
    return labels(DynamicPartitionsDefinition(name=name), column, keys, dynamic=name)


_KINDS = (
    by_one("hourly", windows(_HOURS)),
    by_one("daily", windows(_DAYS)),
    by_one("daily-local", windows(_DAYS, kind=LOCAL)),
    by_one("daily-date", windows(_DAYS, kind=DATE)),
    by_one("weekly", windows(_WEEKS)),
    by_one("monthly", windows(_MONTHS)),
    by_one("monthly-local", windows(_MONTHS, kind=LOCAL)),
    by_one("monthly-date", windows(_MONTHS, kind=DATE)),
    by_one("six-hours", windows(_SIX_HOURS)),
    by_one("three-days", windows(_THREE_DAYS)),
    by_one("berlin", windows(_BERLIN)),
    by_one("kolkata", windows(_KOLKATA)),
    by_one("static", _static("city", _CITIES)),
    by_one("integers", labels(StaticPartitionsDefinition(_NUMBERS), "number", _NUMBERS, kind=pa.int64(), value=int)),
    by_one("dates", labels(StaticPartitionsDefinition(_DATES), "day", _DATES, kind=DATE, value=date.fromisoformat)),
    by_one("dynamic", _dynamic("city", _CITIES, "cities")),
    by_both("time-static", day=windows(_DAYS), city=_static("city", _CITIES[:2])),
    by_both("static-static", city=_static("city", _CITIES[:2]), shop=_static("shop", ["a", "b"])),
    by_both("time-dynamic", day=windows(_DAYS), city=_dynamic("city", _CITIES[:2], "cities")),
)
PARTITIONS: Mapping[str, Partitions] = {kind.name: kind for kind in _KINDS}

# Keys that are not valid folder names on some storages.
ODD_PARTITIONS: Mapping[str, Partitions] = {
    kind.name: kind
    for kind in (by_one("odd-static", _static("label", _ODD)), by_one("odd-dynamic", _dynamic("label", _ODD, "odd")))
}
