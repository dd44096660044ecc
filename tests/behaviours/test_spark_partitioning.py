"""Tables that Spark creates with every partition transform, and slices that do not follow their partitions."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, WriteMode
from floe_iceberg import Lake
from floe_iceberg.partitioning.specs import partition_spec

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)


def events(lake: Lake, days: int, *, rows: int = 24, note: str = "v1") -> DataFrame:
    """`rows` rows for each day from the first on, evenly spread over it."""
    step = F.expr(f"make_dt_interval(0, 0, 0, id * {86400 // rows})")
    at = F.lit(FIRST) + step
    return lake.spark.range(days * rows).select("id", at.alias("at"), F.lit(note).alias("note"))


def by(column: str, transform: str, **arguments: object) -> PartitionTransform:
    return PartitionTransform(source_column=column, transform_type=transform, **arguments)


@pytest.mark.parametrize(
    "partition_by",
    [
        [by("note", "identity")],
        [by("at", "year")],
        [by("at", "month")],
        [by("at", "day")],
        [by("at", "hour")],
        [by("id", "bucket", num_buckets=4)],
        [by("note", "truncate", width=1)],
        [by("at", "day", name="the_day"), by("id", "truncate", width=10)],
        [by("note", "identity"), by("id", "bucket", num_buckets=2), by("at", "month")],
    ],
    ids=lambda fields: "+".join(field.field_name for field in fields),
)
def test_a_new_table_has_the_partitions_asked_for(
    lake: Lake, table: TableIdentifier, partition_by: list[PartitionTransform]
) -> None:
    result = lake.write(events(lake, 2), table, mode=WriteMode.APPEND, partition_by=partition_by)

    loaded = lake.tables.load_table(table)
    made, asked = loaded.spec(), partition_spec(partition_by, loaded.schema())
    assert [(field.name, str(field.transform)) for field in made.fields] == [
        (field.name, str(field.transform)) for field in asked.fields
    ]
    assert result.created
    assert len(loaded.snapshots()) == 1
    assert lake.read(table).count() == 48
    assert loaded.properties["commit.retry.num-retries"] == "20"


@pytest.mark.parametrize(
    ("partition", "reason"),
    [(by("nope", "day"), "no column 'nope'"), (by("note", "day"), "'note' is string, which day cannot take")],
)
def test_partitions_that_cannot_be_are_refused_before_anything_happens(
    lake: Lake, table: TableIdentifier, partition: PartitionTransform, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        lake.write(events(lake, 1), table, mode=WriteMode.APPEND, partition_by=[partition])
    assert not lake.tables.table_exists(table)
