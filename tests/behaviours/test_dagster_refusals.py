"""Assets that cannot be written are refused by the name of the asset and of the option, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import AssetIn, DagsterInstance, DailyPartitionsDefinition, Definitions, asset
from tests.lakes import open_manager
from tests.runs import QUIET

from floe_core.errors import ConfigurationError
from floe_dagster import IcebergIOManager

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-08")
DATA = pa.table({"id": [1], "day": ["2026-01-01"]})


def materialize(root: Path, instance: DagsterInstance, *assets: Any, **arguments: Any) -> None:
    definitions = Definitions(
        assets=list(assets), resources={"io_manager": IcebergIOManager(table_manager=open_manager(root))}
    )
    job = definitions.resolve_implicit_global_asset_job_def()
    job.execute_in_process(instance=instance, run_config=QUIET, **arguments)


@pytest.mark.parametrize("there", [False, True], ids=["new table", "table that is there"])
@pytest.mark.parametrize(
    ("expr", "remedy"),
    [
        ("day", "'day' is string; for windows of time it must be a timestamp or a date: cast it in the data"),
        ("CAST(day AS date)", "partition_expr 'CAST(day AS date)' is an expression, and must be the name of a column"),
    ],
)
def test_a_partition_column_that_cannot_serve_names_asset_option_and_remedy(
    tmp_path: Path, instance: DagsterInstance, expr: str, remedy: str, there: bool
) -> None:
    @asset(key_prefix="bronze", partitions_def=DAYS, metadata={"partition_expr": expr})
    def visits() -> pa.Table:
        return DATA

    if there:
        open_manager(tmp_path).write_data("bronze.visits", DATA.slice(0, 0), mode="append")
    with pytest.raises(ConfigurationError) as raised:
        materialize(tmp_path, instance, visits, partition_key="2026-01-01")
    message = str(raised.value)
    assert message.startswith("asset bronze/visits: ")
    assert remedy in message
    assert "partition_expr" in message


def test_an_upsert_without_keys_names_the_asset_and_upsert_keys(tmp_path: Path, instance: DagsterInstance) -> None:
    @asset(key_prefix="bronze", metadata={"write_mode": "upsert"})
    def visits() -> pa.Table:
        return DATA

    with pytest.raises(ConfigurationError, match="asset bronze/visits: write_mode is upsert, and upsert_keys"):
        materialize(tmp_path, instance, visits)


def test_an_input_without_annotation_is_arrow_where_only_a_table_manager_is_configured(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    seen: list[Any] = []

    @asset(key_prefix="bronze", metadata={"write_mode": "append"})
    def visits() -> pa.Table:
        return DATA

    @asset(ins={"visits": AssetIn(["bronze", "visits"])})
    def count(visits) -> None:  # type: ignore[no-untyped-def]  # without an annotation, which is the point
        seen.append(visits)

    materialize(tmp_path, instance, visits, count)
    assert isinstance(seen[0], pa.Table)
    assert seen[0].num_rows == 1
