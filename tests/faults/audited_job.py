"""Eight days of an audited asset as eight runs at the same time: each delivers bad rows first, then good ones.

    python -m tests.faults.audited_job FOLDER NAMESPACE

Each day is a process forked from this one. The output is a JSON list: for each day whether the bad run and the good run
succeeded, and the rows that the check of the whole table saw last.
"""

# No postponed annotations here: Dagster inspects that of the context.
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
from dagster import AssetExecutionContext, DagsterInstance, DailyPartitionsDefinition, asset

from floe_core.compiler import compile_project
from floe_dagster import IcebergIOManager, checks, create_definitions
from floe_iceberg import Lake

__all__ = ["DAYS", "ROWS", "at_once", "run_day"]

DAYS = [f"2026-01-0{number}" for number in range(1, 9)]
ROWS = 5
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def rows_of(day: str, amount: int) -> pa.Table:
    return pa.table(
        {
            "day": [date.fromisoformat(day)] * ROWS,
            "id": [int(day[-2:]) * 100 + n for n in range(ROWS)],
            "n": [amount] * ROWS,
        }
    )


def run_day(lake: Lake, folder: Path, namespace: str, day: str, frame: Callable[[pa.Table], Any]) -> dict[str, Any]:
    """Run one day with bad rows, and then with good ones."""
    told: dict[str, Any] = {"day": day}
    for name, amount in (("bad", -1), ("good", 1)):
        seen: list[int] = []
        with DagsterInstance.ephemeral() as instance:
            definitions = create_definitions(
                [made := _orders(namespace, amount, frame)],
                project=folder,
                resources={"io_manager": IcebergIOManager(lake=lake)},
                asset_checks=[_checks(made, seen)],
            )
            job = definitions.resolve_implicit_global_asset_job_def()
            result = job.execute_in_process(
                instance=instance, run_config=_QUIET, raise_on_error=False, partition_key=day
            )
        told[name] = result.success
        if not result.success and name == "good":
            told["error"] = [str(event.step_failure_data.error) for event in result.all_events if event.is_step_failure]
    return {**told, "seen": seen[-1], "run": result.run_id}


def _orders(namespace: str, amount: int, frame: Callable[[pa.Table], Any]) -> Any:
    def orders(context: AssetExecutionContext) -> Any:
        return frame(rows_of(context.partition_key, amount))

    days = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-09")
    return asset(key_prefix=namespace, partitions_def=days, metadata={"partition_expr": "day", "floe/audit": True})(
        orders
    )


def _checks(made: Any, seen: list[int]) -> Any:
    def whole(rows: pa.Table) -> bool:
        seen.append(rows.num_rows)
        return bool(len(set(rows["id"].to_pylist())) == rows.num_rows)

    return checks.of(
        made,
        checks.value_range("n", min=0),
        checks.unique("id", scope="table"),
        checks.function(whole, scope="table"),
        blocking=True,
    )


def at_once(act: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    """All days in threads of this process."""
    with ThreadPoolExecutor(len(DAYS)) as pool:
        return list(pool.map(act, DAYS))


def main() -> None:
    folder, namespace = Path(sys.argv[1]), sys.argv[2]
    children = []
    for day in DAYS:
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            lake = Lake(compile_project(folder).artifacts)
            os.write(send, json.dumps(run_day(lake, folder, namespace, day, lambda rows: rows)).encode())
            os._exit(0)
        os.close(send)
        children.append((child, receive))
    told = []
    for child, receive in children:
        told.append(json.loads(b"".join(iter(lambda receive=receive: os.read(receive, 65536), b"")) or b"{}"))  # type: ignore[misc]
        os.waitpid(child, 0)
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
