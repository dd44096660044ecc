"""Maintain many tables: for each the steps of its policy, in a safe order; a failure does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from floe_core.config import MaintenanceConfig, MaintenancePolicy
from floe_core.errors import ConcurrencyConflictError, ConfigurationError, FloeError, TableNotFoundError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.maintenance import KeptFile, MismatchError, PolicyEnforcer, Recorder, Report, Step, records_path
from floe_core.security import redact
from floe_iceberg.files.other_tables import Neighbours
from floe_iceberg.maintenance.health import LAST_MAINTENANCE, TableFacts, cutoff_ms
from floe_iceberg.maintenance.leases import LeaseHeldError, leased, refuse_held
from floe_iceberg.maintenance.pins import keep_pinned
from floe_iceberg.maintenance.plan import PlannedStep, TablePlan, plan_table, table_policy
from floe_iceberg.maintenance.retention import of_ms

if TYPE_CHECKING:
    from floe_iceberg.lake import Lake
    from floe_iceberg.snapshots import LakeBranch

__all__ = ["Maintenance", "Outcome", "Progress", "TableOutcome"]

# Attempts to plan a table whose files are expired by another process while they are read.
_PLAN_ATTEMPTS = 3


class Outcome(str, Enum):
    """The result of maintenance for a table."""

    DONE = "done"
    NOTHING = "nothing to do"
    REFUSED = "refused"
    LATER = "left for later"
    GONE = "dropped meanwhile"
    FAILED = "failed"


@dataclass(frozen=True)
class TableOutcome:
    """What was done to one table. After a failure, `reports` has the steps that were finished before."""

    table: TableIdentifier
    outcome: Outcome
    reports: tuple[Report, ...] = ()
    skipped: tuple[tuple[Step, str], ...] = ()
    reason: str = ""
    refused: frozenset[Step] = frozenset()
    left: tuple[KeptFile, ...] = ()

    @property
    def not_removed(self) -> tuple[KeptFile, ...]:
        """The files that were left in the store because they are not certainly the table's own."""
        by_path = {file.path: file for report in self.reports for file in report.not_removed}
        return tuple(({file.path: file for file in self.left} | by_path).values())

    @property
    def is_complete(self) -> bool:
        """Was everything done that was due? A table that was dropped during the run needs nothing."""
        return not self.refused and self.outcome in (Outcome.DONE, Outcome.NOTHING, Outcome.GONE)

    @property
    def files_removed(self) -> int:
        return sum(len(report.files_removed) for report in self.reports)

    @property
    def bytes_freed(self) -> int:
        return sum(report.bytes_freed for report in self.reports)


@dataclass(frozen=True)
class Progress:
    """A step that begins, or has ended."""

    table: TableIdentifier
    step: PlannedStep
    report: Report | None = None


class Maintenance:
    """Plans and runs the maintenance of the tables of a lake, each by its policy in floe.yaml.

    Args:
        lake: The lake whose tables are maintained.
        enforcer: Validates the retention of each table. By default the floor in floe.yaml.
        start: Starts Spark. It is called before the first step on a table; an error that it raises ends the run.
        busy: Returns the reason for which a table is left for a later run, or None.
        watch: Called when a step begins and when it ends.
        now: Returns the current time, with a time zone.

    Example:
        >>> from pathlib import Path
        >>> from floe_core import compile_project
        >>> from floe_iceberg import Lake, Maintenance
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> with Lake(compile_project(Path()).artifacts) as lake:
        ...     _ = lake.tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
        ...     maintenance = Maintenance(lake)
        ...     for plan in maintenance.plan(maintenance.tables()):
        ...         print(plan.table, plan.steps)
        bronze.orders ()
    """

    def __init__(
        self,
        lake: Lake,
        *,
        enforcer: PolicyEnforcer | None = None,
        start: Callable[[], object] | None = None,
        busy: Callable[[TableIdentifier, Table], str | None] = lambda _identifier, _table: None,
        watch: Callable[[Progress], None] = lambda _progress: None,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._lake = lake
        self._enforcer = enforcer
        self._start = start or (lambda: lake.spark)
        self._busy = busy
        self._watch = watch
        self._now = now
        self._recorder = Recorder(records_path(lake.artifacts))

    @property
    def _config(self) -> MaintenanceConfig:
        return self._lake.artifacts.maintenance

    @cached_property
    def _neighbours(self) -> Neighbours:
        return self._lake.tables.neighbours()

    @cached_property
    def _branches(self) -> Sequence[LakeBranch] | None:
        return self._lake.tables.lake_branches()

    def discard_branches(self) -> Sequence[str]:
        """Discard the branches of the lake that were not used for as long as the policy says; returns their names."""
        return self._lake.branches.discard_unused(self._now())

    def tables(
        self, names: Sequence[TableIdentifier] = (), namespaces: Sequence[Namespace] = ()
    ) -> list[TableIdentifier]:
        """The tables named, those in the namespaces named and below, or all of the catalog."""
        chosen = dict.fromkeys(names)
        tables = self._lake.tables
        for name in names:
            tables.load_table(name)  # a wrong name is reported before anything begins
        within = list(namespaces)
        for namespace in namespaces:
            tables.load_namespace(namespace)
            within += tables.list_namespaces(namespace, recursive=True)
        if not names and not namespaces:
            within = tables.list_namespaces(recursive=True)
        for namespace in within:
            chosen |= dict.fromkeys(tables.list_tables(namespace))
        return list(chosen)

    def plan(
        self, identifiers: Sequence[TableIdentifier], only: Collection[Step] = tuple(Step)
    ) -> Iterator[TablePlan | TableOutcome]:
        """Plan each table without changing anything; one that cannot be planned yields an outcome with the reason."""
        for identifier in identifiers:
            yield self._planned(identifier, only)

    def _planned(self, identifier: TableIdentifier, only: Collection[Step]) -> TablePlan | TableOutcome:
        for _ in range(_PLAN_ATTEMPTS):
            result, version = self._try_plan(identifier, only)
            failed = isinstance(result, TableOutcome) and result.outcome is Outcome.FAILED
            if not failed or not self._has_changed(identifier, version):
                break
        return result

    def _try_plan(self, identifier: TableIdentifier, only: Collection[Step]) -> tuple[TablePlan | TableOutcome, str]:
        """The plan, or why there is none; and the version of the table that was read."""
        version = ""
        try:
            table = self._lake.tables.load_table(identifier)
            version = table.metadata_location
            return self._plan(table, identifier, self._policy(table, identifier), only), version
        except TableNotFoundError as exc:
            return TableOutcome(identifier, Outcome.GONE, reason=str(exc)), version
        except Exception as exc:  # noqa: BLE001 - one table must not stop the others, whatever is wrong with it
            return TableOutcome(identifier, Outcome.FAILED, reason=_reason_of(exc)), version

    def _has_changed(self, identifier: TableIdentifier, version: str) -> bool:
        """Was the table changed since it was read? Then a missing file may have been expired by another process."""
        try:
            return bool(version) and self._lake.tables.load_table(identifier).metadata_location != version
        except Exception:  # noqa: BLE001 - the first failure is the one to report
            return False

    def run(
        self, identifiers: Sequence[TableIdentifier], only: Collection[Step] = tuple(Step)
    ) -> Iterator[TableOutcome]:
        """Maintain one table after the other. If interrupted, run it again; finished steps are not repeated."""
        for identifier in identifiers:
            yield self._maintained(identifier, only)

    def _policy(self, table: Table, identifier: TableIdentifier) -> MaintenancePolicy:
        return table_policy(
            self._config, identifier, table, given=self._lake.tables.config.table_properties, enforcer=self._enforcer
        )

    def _plan(
        self,
        table: Table,
        identifier: TableIdentifier,
        policy: MaintenancePolicy,
        only: Collection[Step],
        known: TableFacts | None = None,
    ) -> TablePlan:
        now, neighbours = self._now(), self._neighbours
        homes = self._lake.tables.homes()
        return plan_table(
            table, identifier, policy, now=now, only=only, neighbours=neighbours, homes=homes, known=known
        )

    def _maintained(self, identifier: TableIdentifier, only: Collection[Step]) -> TableOutcome:
        plan = self._planned(identifier, only)
        if isinstance(plan, TableOutcome):
            return plan
        # Taking the lease is a commit, which repairs the timestamps; health names this command even if nothing is due.
        repairs = plan.facts.disorder is not None
        if not plan.steps and not repairs:
            outcome = Outcome.REFUSED if plan.refused else Outcome.NOTHING
            return TableOutcome(identifier, outcome, skipped=plan.skipped, refused=plan.refused, left=plan.not_removed)
        deferred = self._deferred(identifier)
        if deferred is not None:
            return deferred
        if plan.steps:
            self._start()
        reports: list[Report] = []
        try:
            with leased(
                self._lake.tables, identifier, clock=lambda: self._now().timestamp(), leaving=self._mark
            ) as check:
                self._steps(identifier, plan, only, reports, check)
        except LeaseHeldError as exc:
            return TableOutcome(identifier, Outcome.LATER, tuple(reports), reason=str(exc))
        except TableNotFoundError as exc:
            return TableOutcome(identifier, Outcome.GONE, tuple(reports), reason=str(exc))
        except Exception as exc:  # noqa: BLE001 - one table must not stop the others, whatever is wrong with it
            return TableOutcome(identifier, Outcome.FAILED, tuple(reports), reason=_reason_of(exc))
        return TableOutcome(
            identifier, Outcome.DONE, tuple(reports), plan.skipped, refused=plan.refused, left=plan.not_removed
        )

    def _deferred(self, identifier: TableIdentifier) -> TableOutcome | None:
        """Why the table must be left for later; checked before Spark is started for it."""
        try:
            table = self._lake.tables.load_table(identifier)
            refuse_held(table, identifier, self._now().timestamp())
            busy = self._busy(identifier, table)
        except LeaseHeldError as exc:
            return TableOutcome(identifier, Outcome.LATER, reason=str(exc))
        except TableNotFoundError as exc:
            return TableOutcome(identifier, Outcome.GONE, reason=str(exc))
        except Exception as exc:  # noqa: BLE001 - one table must not stop the others, whatever is wrong with it
            return TableOutcome(identifier, Outcome.FAILED, reason=_reason_of(exc))
        return TableOutcome(identifier, Outcome.LATER, reason=busy) if busy else None

    def _mark(self) -> dict[str, str]:
        return {LAST_MAINTENANCE: self._now().isoformat(timespec="seconds")}

    def _steps(
        self,
        identifier: TableIdentifier,
        plan: TablePlan,
        only: Collection[Step],
        reports: list[Report],
        check: Callable[[], None],
    ) -> None:
        """Run each step that is due, planned again after the previous step changed the table.

        If a rewrite fails by a conflict or a wrong setting, history is expired nevertheless, and the first failure is
        raised afterwards. After any other failure nothing is deleted: a file may have been lost.
        """
        facts, failures = plan.facts, list[FloeError]()
        for step in (step for step in Step if step in only):
            check()
            table = self._lake.tables.load_table(identifier)
            now = plan if not reports else self._plan(table, identifier, plan.policy, [step], facts)
            facts = now.facts
            for planned in (planned for planned in now.steps if planned.step is step):
                self._watch(Progress(identifier, planned))
                try:
                    self._recorded(identifier, planned, plan.policy, table, reports)
                except (ConfigurationError, ConcurrencyConflictError) as exc:
                    if step in (Step.EXPIRE, Step.ORPHANS) or isinstance(exc, LeaseHeldError):
                        raise
                    failures.append(exc)
                else:
                    self._watch(Progress(identifier, planned, reports[-1]))
        if failures:
            raise failures[0]

    def _recorded(
        self,
        identifier: TableIdentifier,
        planned: PlannedStep,
        policy: MaintenancePolicy,
        table: Table,
        reports: list[Report],
    ) -> None:
        details = {"reason": planned.reason, "policy": policy.model_dump(mode="json")}
        try:
            self._recorder.write(str(identifier), planned.step, "began", **details)  # type: ignore[arg-type]
            reports.append(self._run_step(identifier, planned.step, policy, table))
        except BaseException as exc:
            self._recorder.write(
                str(identifier),
                planned.step,
                "failed" if isinstance(exc, Exception) else "interrupted",
                report=exc.report if isinstance(exc, MismatchError) else None,
                error=f"{type(exc).__name__}: {exc}",
                **details,  # type: ignore[arg-type]
            )
            raise
        self._recorder.write(str(identifier), planned.step, "done", report=reports[-1], **details)  # type: ignore[arg-type]

    def _run_step(self, identifier: TableIdentifier, step: Step, policy: MaintenancePolicy, table: Table) -> Report:
        compute = self._lake.tables.require_compute()
        if step is Step.COMPACT:
            return compute.compact(
                identifier,
                strategy=policy.compact.strategy,
                columns=policy.compact.columns,
                target_file_size=policy.compact.target_file_size,
                min_files=policy.compact.min_files,
            )
        if step is Step.MANIFESTS:
            return compute.rewrite_manifests(identifier)
        if step is Step.STATISTICS:
            return compute.compute_statistics(identifier)
        if step is Step.EXPIRE:
            cutoff = of_ms(cutoff_ms(table, policy, self._now()))
            keep_last = policy.expire.keep_last
            keep_pinned(self._lake.tables, identifier, self._branches)
            return compute.expire_snapshots(
                identifier, older_than=cutoff, keep_last=keep_last, neighbours=self._neighbours
            )
        older_than = self._now() - policy.orphans.older_than
        return compute.remove_orphans(identifier, older_than=older_than, dry_run=False, neighbours=self._neighbours)


def _reason_of(exc: Exception) -> str:
    return redact(str(exc) if isinstance(exc, FloeError) else f"{type(exc).__name__}: {exc}")
