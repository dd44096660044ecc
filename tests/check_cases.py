"""A table, checks of it, and what each of them finds: the same on every engine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from floe_core import TableCheck

__all__ = ["CASES", "ORDERS", "STORES", "Case"]

ORDERS = pa.table(
    {
        "id": pa.array([1, 1, None, 4], pa.int64()),
        "amount": pa.array([Decimal("1.50"), Decimal("-2.00"), None, Decimal("9.99")], pa.decimal128(10, 2)),
        "status": pa.array(["new", "it\\'s paid", "lost", None]),
        "at": pa.array(
            [datetime(2026, 1, 1, 3), datetime(2026, 1, 1, 5), datetime(2026, 1, 2, 1), datetime(2026, 1, 2, 2)],
            pa.timestamp("us", "UTC"),
        ),
        "seen": pa.array([datetime(2026, 1, 1, hour) for hour in (3, 5, 7, 9)], pa.timestamp("us")),
        "day": pa.array([date(2026, 1, 1)] * 2 + [date(2026, 1, 2)] * 2),
        "ratio": pa.array([0.1, float("nan"), 3.0, None]),
        "store": pa.array([1, 2, 3, None], pa.int64()),
        "paid": pa.array([True, False, None, True]),
        "address": pa.array([{"city": "Oslo"}, {"city": None}, {"city": "Rome"}, None]),
    }
)
STORES = pa.table({"id": pa.array([1, 2], pa.int64())})


@dataclass(frozen=True)
class Case:
    """A rule, the failing rows in the whole table and in its first day, and a part of the message."""

    rule: dict[str, Any]
    failing: int | None
    failing_first_day: int | None
    message: str = ""

    def check(self, number: int) -> TableCheck:
        return TableCheck(name=f"case_{number}", **self.rule)


CASES = (
    Case({"not_null": "id"}, 1, 0, "1 of 4 rows has no id"),
    Case({"not_null": ["id", "amount"]}, 1, 0, "has no id or no amount"),
    Case({"not_null": "address.city"}, 2, 1, "2 of 4 rows have no address.city"),
    Case({"unique": "id"}, 1, 1, "1 row repeats the id of another row"),
    Case({"unique": ["id", "at"]}, 0, 0, "no rows repeat the id and at of another row"),
    Case({"accepted_values": {"column": "status", "values": ["new", "it\\'s paid"]}}, 1, 0, "that is not accepted"),
    Case({"accepted_values": {"column": "paid", "values": [True]}}, 1, 1),
    Case({"range": {"column": "amount", "min": 0, "max": "5.5"}}, 2, 1, "below 0 or above 5.5"),
    Case({"range": {"column": "at", "min": "2026-01-01T04:00:00+00:00"}}, 1, 1),
    Case({"range": {"column": "seen", "max": datetime(2026, 1, 1, 5)}}, 2, 0),
    Case({"range": {"column": "day", "max": date(2026, 1, 1)}}, 2, 0),
    Case({"range": {"column": "ratio", "min": 0, "max": 2.5}}, 2, 1),
    Case({"condition": "amount > 0 -- refunds are elsewhere"}, 1, 1, "1 of 4 rows does not meet"),
    Case({"references": {"columns": "store", "table": "silver.stores", "to": "id"}}, 1, 0, "refers to a row that"),
    Case({"sql": {"name": "big", "query": "SELECT id, '{}' AS x FROM this WHERE amount > 5 -- {x}"}}, 1, 0),
    Case({"row_count": {"min": 3, "max": 10}}, None, None, "rows"),
    Case({"freshness": {"max_age": "1d", "column": "at"}}, None, None, "at most 1d is expected"),
)
