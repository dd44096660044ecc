"""Atomic runs of five assets, each in a process forked from this one, which may be killed at any call of the catalog.

    python -m tests.faults.atomic_job FOLDER NAMESPACE

Each line of the input is a run: {"number": 7, "kill_at": 3, "fault": "lost"}. The answer tells how its process ended,
and how many calls it made.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from dagster import AssetIn, AssetsDefinition, DagsterInstance, asset
from pyiceberg.exceptions import CommitStateUnknownException

from floe_core.compiler import compile_project
from floe_dagster import IcebergIOManager, create_definitions
from floe_iceberg import Lake

__all__ = ["TABLES"]

TABLES = ("t0", "t1", "t2", "t3", "t4")
_CALLS = ("commit_table", "commit_tables", "create_namespace", "drop_namespace", "update_namespace_properties")
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def assets(namespace: str, number: int) -> list[AssetsDefinition]:
    """A chain: each table has one row with the number of the run, taken from the table before it."""

    def first() -> pa.Table:
        return pa.table({"v": [number]})

    def next_(before: pa.Table) -> pa.Table:
        assert before["v"].to_pylist() == [number], "a step reads what its run has written"
        return before

    made = []
    for place, name in enumerate(TABLES):
        ins = {"before": AssetIn([namespace, TABLES[place - 1]])} if place else {}
        define = asset(name=name, key_prefix=namespace, ins=ins, metadata={"write_mode": "overwrite"})
        made.append(define(next_ if place else first))
    return made


def struck(catalog: Any, kill_at: int | None, fault: str | None, count: list[int]) -> None:
    """Kill this process before or after the given call, or lose the response of the publication."""

    def step() -> None:
        count[0] += 1
        if count[0] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def method(*arguments: Any, **options: Any) -> Any:
            step()
            result = call(*arguments, **options)
            step()
            if name == "commit_tables" and fault == "lost":
                raise CommitStateUnknownException("the response was lost")
            return result

        return method

    for name in _CALLS:
        setattr(catalog, name, wrapped(name, getattr(catalog, name)))


def run(folder: Path, namespace: str, order: dict[str, Any]) -> dict[str, Any]:
    lake = Lake(compile_project(folder).artifacts)
    count = [0]
    struck(lake.tables.catalog_plugin.connect(), order.get("kill_at"), order.get("fault"), count)
    if order.get("fault") == "conflict":
        _move_a_table_before_the_publication(lake, f"{namespace}.t3")
    made = assets(namespace, order["number"])
    manager = IcebergIOManager(lake=lake)
    definitions = create_definitions(made, project=folder, resources={"io_manager": manager}, atomic=made)
    with DagsterInstance.ephemeral() as instance:
        job = definitions.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(
            instance=instance, run_config=_QUIET, raise_on_error=False, run_id=order["run_id"]
        )
    return {"success": result.success, "calls": count[0]}


def _move_a_table_before_the_publication(lake: Lake, name: str) -> None:
    catalog: Any = lake.tables.catalog_plugin.connect()
    commit = catalog.commit_tables

    def commit_tables(changes: Any) -> None:
        catalog.commit_tables = commit
        lake.tables.write_data(name, pa.table({"v": pa.array([], pa.int64())}), mode="append")
        commit(changes)

    catalog.commit_tables = commit_tables


def main() -> None:
    folder, namespace = Path(sys.argv[1]), sys.argv[2]
    for line in sys.stdin:
        order = json.loads(line)
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(send, json.dumps(run(folder, namespace, order)).encode())
            os._exit(0)
        os.close(send)
        told = b"".join(iter(lambda: os.read(receive, 65536), b""))  # noqa: B023 - read before the next round
        os.close(receive)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        sys.stdout.write(json.dumps({"code": code, **(json.loads(told) if told else {})}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
