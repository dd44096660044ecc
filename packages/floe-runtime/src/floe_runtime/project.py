"""A project as notebooks and programs use it: its lake, and the plan, the runs and the history of its assets."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from floe_core.errors import ConfigurationError, FloeError
from floe_core.notebooks import Listing
from floe_core.observability import warn
from floe_iceberg import Lake
from floe_runtime.branches import ProjectBranches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from floe_core.config import Publish
    from floe_iceberg.transactions import UndoPlan
    from floe_runtime.checking import CheckReport
    from floe_runtime.runs.described_plan import DescribedPlan
    from floe_runtime.runs.history import PastRun, RunDetails
    from floe_runtime.runs.pipeline import Pipeline
    from floe_runtime.runs.planning import RunRequest
    from floe_runtime.runs.runner import RunReport

__all__ = ["Project"]


class Project(Lake):
    """The lake of a project with the verbs of the terminal: `plan`, `run`, `runs` and `show_run`.

    The verbs on tables and snapshots are those of `tables`; `sql`, `read` and `write` are those of `Lake`. The files of
    the project are imported again if they have changed. `connect` opens a project.

    Args:
        artifacts: The compiled project.

    Example:
        >>> from floe_runtime import connect
        >>> from pathlib import Path
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> _ = Path("definitions.py").write_text('''
        ... import dagster as dg
        ... import pyarrow as pa
        ... from floe_dagster import create_definitions
        ...
        ... @dg.asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
        ... def orders():
        ...     return pa.table({"id": [1, 2]})
        ...
        ... defs = create_definitions([orders])
        ... ''')
        >>> with connect() as lake:
        ...     print(lake.plan().created)
        ...     print([one.rows for one in lake.run("bronze/orders").materialized])
        ...     print([run.status for run in lake.runs()])
        ['bronze.orders']
        [2]
        ['success']
    """

    @property
    def branches(self) -> ProjectBranches:
        """The branches of the lake, with their histories."""
        return ProjectBranches(self)

    def plan(
        self,
        *selection: str,
        partitions: Sequence[str] = (),
        partition_range: str | None = None,
        with_unpartitioned: bool = False,
        missing: bool = False,
        atomic: bool = False,
        one_by_one: bool = False,
    ) -> DescribedPlan:
        """Plan what `run` would do with the same arguments, and why; nothing is run or written.

        Args:
            selection: Names, tags, groups and so on, as floe plan takes them. By default all assets.
            partitions: Only these partitions.
            partition_range: The partitions from START to END, as `START...END`.
            with_unpartitioned: With partitions: also the assets that are not partitioned.
            missing: What was never materialized, is no longer in its table or is behind its upstream assets, and what
                depends on it.
            atomic: Also refuse what could not be published in one commit.
            one_by_one: As atomic; the tables may be published one after the other.
        """
        from floe_runtime.runs.described_plan import plan_with_effects
        from floe_runtime.runs.planning import when_published

        request = _requested(selection, partitions, partition_range, with_unpartitioned, missing)
        publish = when_published(atomic, one_by_one)
        with self._pipeline(publish) as pipeline:
            return plan_with_effects(pipeline, request, atomic=publish is not None)

    def run(
        self,
        *selection: str,
        partitions: Sequence[str] = (),
        partition_range: str | None = None,
        with_unpartitioned: bool = False,
        missing: bool = False,
        atomic: bool = False,
        one_by_one: bool = False,
    ) -> RunReport:
        """Materialize assets in this process.

        A failed asset or check raises `RunFailedError`, whose `report` has what was written before.

        Args:
            selection: Names, tags, groups and so on, as floe run takes them. By default all assets.
            partitions: Only these partitions.
            partition_range: The partitions from START to END, as `START...END`.
            with_unpartitioned: With partitions: also the assets that are not partitioned.
            missing: What was never materialized, is no longer in its table or is behind its upstream assets, and what
                depends on it.
            atomic: Publish all tables of the run in one commit, when it and its checks have succeeded.
            one_by_one: As atomic; on a catalog server that cannot commit several tables at once, commit them one after
                the other.
        """
        from floe_runtime.runs.planning import AppendAgainError, plan_run, refuse_not_atomic, when_published
        from floe_runtime.runs.runner import run_batches

        request = _requested(selection, partitions, partition_range, with_unpartitioned, missing)
        publish = when_published(atomic, one_by_one)
        with self._pipeline(publish) as pipeline:
            plan = plan_run(pipeline, request)
            if plan.refused is not None:
                raise AppendAgainError(plan.refused)
            if publish is not None:
                refuse_not_atomic(pipeline, plan)
            if plan.batches and pipeline.starts_spark:
                _ = self.spark
            return run_batches(pipeline, plan.batches, lambda _event: None)

    def runs(self, *, limit: int = 20, status: str | None = None, asset: str | None = None) -> Listing[PastRun]:
        """The latest runs, newest first.

        Args:
            limit: The maximum number of runs.
            status: Only runs with this status, such as `failure`.
            asset: Only runs that were to materialize this asset.
        """
        from floe_runtime.runs.history import STATUSES, past_runs
        from floe_runtime.runs.pipeline import open_history

        if status is not None and status not in STATUSES:
            raise ConfigurationError(f"status is {status!r}; it must be one of {', '.join(STATUSES)}")
        if limit < 1:
            raise ConfigurationError(f"limit is {limit}; it must be at least 1")
        with open_history(self.artifacts) as instance:
            found = past_runs(instance, limit=limit, status=status, asset=asset) if instance is not None else []
        return Listing(self._marked(found))

    def show_run(self, run: str | None = None) -> RunDetails:
        """A run: its status, what it wrote, its checks and its errors.

        Args:
            run: The id of the run, or its beginning. By default the latest run.
        """
        from floe_runtime.runs.history import NO_RUNS, details_of, find_run
        from floe_runtime.runs.pipeline import open_history

        with open_history(self.artifacts) as instance:
            if instance is None:
                raise ConfigurationError(NO_RUNS)
            details = details_of(instance, find_run(instance, run), self.artifacts.root)
        (found,) = self._marked([details.run])
        return replace(details, run=found)

    def undo(self, run: str, *, with_later: bool = False, one_by_one: bool = False) -> UndoPlan:
        """Restore every table that a run wrote, in one commit.

        Later writes to the same slices, and tables that were computed from what the run wrote, stop it.
        `tables.plan_undo` shows what would be done, and `tables.restore_undone` brings it back.

        Args:
            run: The id of the run, or its beginning.
            with_later: Take back later writes that depend on the run, too.
            one_by_one: On a catalog server that cannot commit several tables at once, commit them one after the other.
        """
        from floe_runtime.runs.history import ended_run, tables_written

        run_id = ended_run(self.artifacts, run)
        written = tables_written(self.artifacts, run_id)
        return self.tables.undo(run_id, with_later=with_later, one_by_one=one_by_one, written=written)

    def run_checks(self, *selection: str, partition: str | None = None) -> CheckReport:
        """Run the checks of assets and tables, without writing.

        Args:
            selection: Assets, as floe run takes them, or tables that no asset writes. By default all.
            partition: The partition to check, of assets that are partitioned. By default their whole tables.
        """
        from floe_runtime.checking import check_project

        with self._pipeline() as pipeline:
            return check_project(pipeline, selection, partition=partition)

    def _marked(self, runs: Sequence[PastRun]) -> Sequence[PastRun]:
        """The runs, marked if they were undone; as they are if the tables cannot be asked."""
        from floe_runtime.run_outcomes import mark_undone

        try:
            return mark_undone(self.tables, runs)
        except FloeError as exc:
            warn("runs that were undone are not marked", reason=str(exc))
            return runs

    @contextmanager
    def _pipeline(self, publish: Publish | None = None) -> Iterator[Pipeline]:
        """The definitions of the project. They read its contract, which is written first, as every command does."""
        from floe_runtime.runs.pipeline import open_pipeline

        self.artifacts.write()
        with open_pipeline(self.artifacts, publish=publish) as pipeline:
            yield pipeline


def _requested(
    selection: Sequence[str],
    partitions: Sequence[str],
    partition_range: str | None,
    with_unpartitioned: bool,
    missing: bool,
) -> RunRequest:
    """The request that the arguments make; refused if they exclude each other."""
    from floe_runtime.runs.planning import RunRequest

    if isinstance(partitions, str):
        raise ConfigurationError(f"partitions is a text; give a list of partitions: [{partitions!r}]")
    if sum(map(bool, (partitions, partition_range, missing))) > 1:
        raise ConfigurationError("partitions, partition_range and missing are mutually exclusive")
    if with_unpartitioned and not (partitions or partition_range):
        raise ConfigurationError("with_unpartitioned goes with partitions or partition_range")
    return RunRequest(tuple(selection), tuple(partitions), partition_range, missing, with_unpartitioned)
