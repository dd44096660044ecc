"""What bare Spark does to a table that Dagster's history knows: which of it is a loss."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from dagster import AssetExecutionContext, DagsterInstance, DailyPartitionsDefinition, asset
from tests.runs import run

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.identifiers import TableIdentifier
from floe_dagster import create_definitions
from floe_dagster.differences import find_differences
from floe_iceberg import Lake

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
KEYS = ["2026-01-01", "2026-01-02", "2026-01-03"]


class Days:
    """An asset with a row for each day, in a namespace of its own."""

    def __init__(self, lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str) -> None:
        self.lake, self.project, self.instance = lake, project, instance
        self.table = TableIdentifier(namespace=(namespace,), name="orders")

        @asset(key_prefix=namespace, partitions_def=DAYS, metadata={"partition_expr": "day"})
        def orders(context: AssetExecutionContext) -> pa.Table:
            return pa.table({"day": pa.array([context.partition_key]).cast(pa.date32())})

        self.asset = orders

    def fill(self, keys: Sequence[str] = KEYS) -> None:
        for key in keys:
            assert run([self.asset], self.project, self.instance, partition_key=key).success

    def sql(self, text: str) -> None:
        self.lake.spark.sql(text.format(t=f"lake.{self.table}"))

    def lost(self) -> list[tuple[str, tuple[str, ...]]]:
        definitions = create_definitions([self.asset], project=self.project.root)
        found = find_differences(definitions, [self.asset.key], self.instance)
        return [(one.reason, one.partitions) for one in found]


@pytest.fixture
def days(lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str) -> Days:
    made = Days(lake, project, instance, namespace)
    made.fill()
    return made


@pytest.mark.full
def test_a_table_that_spark_rewrote_is_no_loss(days: Days) -> None:
    days.sql("CALL lake.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))")
    days.sql("INSERT OVERWRITE {t} SELECT * FROM {t}")
    assert days.lost() == []
    days.sql("CALL lake.system.expire_snapshots(table => '{t}', older_than => now(), retain_last => 1)")
    assert len(days.lake.tables.list_snapshots(days.table)) == 1
    assert days.lost() == []


def test_create_or_replace_keeps_the_table_and_later_rollbacks_are_seen(days: Days) -> None:
    days.sql("CREATE OR REPLACE TABLE {t} USING iceberg PARTITIONED BY (day) AS SELECT * FROM {t}")
    assert days.lost() == []  # the rows are whose statement it was, and they are there
    replaced = days.lake.tables.current_snapshot(days.table)
    assert replaced is not None
    assert replaced.parent_snapshot_id is None
    days.fill(KEYS[:1])
    days.lake.tables.rollback_to_snapshot(days.table, replaced.snapshot_id)
    assert days.lost() == [("rolled back", tuple(KEYS[:1]))]


@pytest.mark.full
def test_a_snapshot_that_was_picked_from_a_branch_is_no_loss(days: Days) -> None:
    head = days.lake.tables.list_snapshots(days.table)[-1].snapshot_id
    days.lake.tables.rollback_to_snapshot(days.table, days.lake.tables.list_snapshots(days.table)[1].snapshot_id)
    assert days.lost() == [("rolled back", tuple(KEYS[2:]))]
    days.sql("INSERT INTO {t} VALUES (DATE '2026-01-01')")  # so that it cannot be fast-forwarded
    days.sql(f"CALL lake.system.cherrypick_snapshot('{{t}}', {head})")
    assert days.lost() == []
