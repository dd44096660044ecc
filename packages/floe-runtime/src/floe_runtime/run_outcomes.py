"""What the tables of a lake still show of past runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING

from floe_core.errors import FloeError
from floe_iceberg.snapshots import run_branch
from floe_iceberg.transactions import undone_runs
from floe_runtime.runs.history import PastRun

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from floe_core.identifiers import TableIdentifier
    from floe_iceberg import IcebergTableManager
    from floe_runtime.runs.runner import Materialized

__all__ = ["mark_undone", "still_on_branch"]

_LOADED_AT_ONCE = 8


def mark_undone(tables: IcebergTableManager, runs: Sequence[PastRun]) -> list[PastRun]:
    """The runs, marked if they were undone; every table is loaded once."""
    undone = undone_runs(_every_table(tables)) if runs else set()
    return [replace(run, undone=run.run_id in undone) for run in runs]


def _every_table(tables: IcebergTableManager) -> Iterator[Table]:
    """The tables that can be read."""

    def load(name: TableIdentifier) -> Table | None:
        try:
            return tables.find_table(name)
        except FloeError:
            return None

    names = tables.find_tables()
    contexts = [copy_context() for _name in names]  # a span belongs to the trace of its context
    with ThreadPoolExecutor(_LOADED_AT_ONCE) as pool:
        loaded = pool.map(lambda context, name: context.run(load, name), contexts, names)
        yield from (table for table in loaded if table is not None)


def still_on_branch(
    tables: IcebergTableManager, run_id: str, unpublished: Sequence[Materialized]
) -> tuple[Materialized, ...]:
    """What an atomic run did not publish, as far as its branch is still there."""
    branch = run_branch(run_id)
    found = {name: tables.find_table(name) for name in {made.table for made in unpublished}}
    there = {name for name, table in found.items() if table is not None and branch in table.metadata.refs}
    return tuple(made for made in unpublished if made.table in there)
