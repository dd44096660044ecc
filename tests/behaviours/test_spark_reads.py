"""Reading with Spark: the rows, columns and moment asked for, by the same words as without Spark, and lazily."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThan, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.types import StringType
from pyspark.sql import functions as F  # noqa: N812

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, WriteMode
from floe_iceberg import Lake

ROWS = """SELECT * FROM VALUES
    (1, 'ann', 1.5D, CAST(1.50 AS DECIMAL(9,2)), DATE '2026-01-01', TIMESTAMP '2026-01-01 10:00:00',
     TIMESTAMP_NTZ '2026-01-01 10:00:00', true, X'00ff', named_struct('city', 'Ulm')),
    (2, 'bob', double('NaN'), CAST(-2.25 AS DECIMAL(9,2)), DATE '2026-01-02', TIMESTAMP '2026-01-02 23:30:00.25',
     TIMESTAMP_NTZ '2026-01-02 23:30:00.25', false, X'01', named_struct('city', 'Köln')),
    (3, 'it''s 50%', double('Infinity'), CAST(0 AS DECIMAL(9,2)), DATE '1969-12-31', TIMESTAMP '1969-12-31 23:59:59',
     TIMESTAMP_NTZ '1969-12-31 23:59:59', true, X'02', named_struct('city', NULL)),
    (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
    AS t(id, name, price, tax, day, at, local, paid, raw, place)"""

FILTERS = [
    "id = 2",
    "id != 2 and name is not null",
    "id in (1, 3)",
    "id not in (1, 3)",
    "not (id > 1 and name = 'bob')",
    "name = 'ann'",
    "name != 'ann'",
    "not name = 'ann'",
    "not (name != 'ann')",
    "name in ('ann', 'bob')",
    "name = 'it''s 50%'",
    "name like 'a%'",
    "name not like 'a%'",
    "name is null",
    "name >= 'b'",
    "price > 1",
    "price >= 1.5",
    "price < 100",
    "price != 1.5",
    "price is nan",
    "price is not nan",
    "tax = 1.50",
    "tax < 0",
    "tax > -3.00 and tax <= 0",
    "day >= '2026-01-01'",
    "day < '1970-01-01'",
    "at >= '2026-01-02T23:30:00.25+00:00'",
    "at < '2026-01-01T11:00:00+01:00'",
    "local > '2026-01-01T10:00:00'",
    "paid = true",
    "paid != true",
    "place.city = 'Köln'",
    "place.city is null",
    "id > 5000000000",
    "true",
    "false",
]


@pytest.fixture(scope="module")
def people(lake: Lake) -> TableIdentifier:
    identifier = TableIdentifier.from_string("reads.people")
    lake.write(lake.spark.sql(ROWS), identifier, mode=WriteMode.APPEND)
    return identifier


RAW = And(EqualTo(term=Reference("raw"), value=literal(b"\x01")), GreaterThan(term=Reference("id"), value=literal(0)))


@pytest.mark.parametrize("row_filter", [*FILTERS, RAW], ids=str)
def test_a_filter_means_the_same_to_both_engines(
    lake: Lake, people: TableIdentifier, row_filter: str | BooleanExpression
) -> None:
    without_spark = lake.tables.scan(people, row_filter=row_filter, columns=["id"]).to_arrow()["id"].to_pylist()
    with_spark = [row.id for row in lake.read(people, row_filter=row_filter).collect()]
    assert sorted(with_spark) == sorted(without_spark)


def test_a_value_that_is_not_there_is_neither_in_nor_not_in(lake: Lake, people: TableIdentifier) -> None:
    rows = lake.read(people, row_filter="name not in ('ann', 'zoe')").collect()
    assert sorted(row.id for row in rows) == [2, 3]


def test_a_filter_is_handed_down_to_the_files(lake: Lake, table: TableIdentifier) -> None:
    frame = lake.spark.range(100).withColumn("kind", F.expr("cast(id % 4 as string)"))
    by_kind = [PartitionTransform(source_column="kind", transform_type="identity")]
    lake.write(frame, table, mode=WriteMode.APPEND, partition_by=by_kind)
    read = lake.read(table, row_filter="kind = '1' and id != 5")
    plan = read._jdf.queryExecution().executedPlan().toString()
    assert "kind IS NOT NULL, kind = '1'" in plan
    assert "id IS NOT NULL, NOT (id = 5)" in plan
    assert len(read.select(F.input_file_name()).distinct().collect()) == 1
    assert len(lake.read(table).select(F.input_file_name()).distinct().collect()) == 4


def test_only_the_columns_asked_for_are_read(lake: Lake, people: TableIdentifier) -> None:
    read = lake.read(people, columns=["name", "place.city"], row_filter="id = 1")
    assert [tuple(row) for row in read.collect()] == [("ann", "Ulm")]
    assert "tax" not in read._jdf.queryExecution().executedPlan().toString()


def test_the_past_is_read_by_moment_tag_and_branch(lake: Lake, table: TableIdentifier) -> None:
    first = lake.write(lake.spark.range(3), table, mode=WriteMode.APPEND).snapshot
    lake.tables.create_tag(table, "closed")
    lake.tables.create_branch(table, "trial")
    second = lake.write(lake.spark.range(4).withColumn("new", F.lit(1)), table, mode=WriteMode.APPEND).snapshot
    lake.spark.sql(f"INSERT INTO lake.`{table.namespace[0]}`.events.branch_trial VALUES (77, 7)")

    assert lake.read(table).count() == 7
    assert lake.read(table, as_of=first.timestamp).count() == 3
    assert lake.read(table, as_of=first.timestamp).columns == ["id"]
    assert lake.read(table, as_of=second.timestamp + timedelta(days=1)).count() == 7
    assert lake.read(table, ref="closed").count() == 3
    assert lake.read(table, ref="trial", row_filter="new = 7").count() == 1
    assert lake.read(table, ref="main").count() == 7
    assert lake.read(table, snapshot_id=first.snapshot_id, row_filter="id > 0").count() == 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"snapshot_id": 42}, "has no snapshot 42"),
        ({"ref": "nowhere"}, "no tag or branch 'nowhere'"),
        ({"as_of": datetime(1999, 1, 1, tzinfo=timezone.utc)}, "had no snapshot at 1999"),
        ({"as_of": datetime(2026, 1, 1)}, "has no time zone"),
        ({"snapshot_id": 1, "ref": "main"}, "are mutually exclusive"),
        ({"row_filter": "nme = 'ann'"}, "nme"),
        ({"row_filter": "name = "}, "cannot be read"),
        ({"row_filter": "id = 'x'"}, "does not fit"),
        ({"columns": ["nme"]}, "has no column 'nme'"),
    ],
)
def test_what_cannot_be_read_is_said_before_spark_is_asked(
    lake: Lake, people: TableIdentifier, options: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        lake.read(people, **options)


def test_a_frame_shows_the_table_as_it_was_when_it_was_read(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.range(3), table, mode=WriteMode.APPEND)
    before = lake.read(table)
    lake.tables.load_table(table).append(pa.table({"id": [10]}))
    assert (before.count(), lake.read(table).count()) == (3, 4)


def test_a_column_that_was_only_added_is_read(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.range(3), table, mode=WriteMode.APPEND)
    with lake.tables.load_table(table).update_schema() as update:
        update.add_column("note", StringType())
    assert lake.read(table, row_filter="note is null", columns=["note"]).count() == 3
