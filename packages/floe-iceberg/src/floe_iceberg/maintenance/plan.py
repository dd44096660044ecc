"""The plan: what maintenance would do to a table, and why. Nothing is done, and no JVM is started."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType, TimeType

from floe_core.config import MaintenanceConfig, MaintenancePolicy, policy_of
from floe_core.errors import FloeError
from floe_core.formatting import counted
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance import FloorEnforcer, KeptFile, PolicyEnforcer, Step, validated_retention
from floe_iceberg.errors import translated
from floe_iceberg.files.other_tables import Neighbours
from floe_iceberg.files.ownership import Homes
from floe_iceberg.files.purge import GC_ENABLED, is_shared
from floe_iceberg.files.reachable import present_files
from floe_iceberg.maintenance.health import TableFacts, cutoff_ms, look
from floe_iceberg.maintenance.orphans import find_orphans
from floe_iceberg.maintenance.retention import refuse_short_branches, to_ms

__all__ = ["PlannedStep", "TablePlan", "plan_table", "table_policy"]

_METADATA = ".metadata.json"
_MANY_METADATA_FILES = 50
_TIME_COLUMNS = (
    "Spark does not support columns of type time. Use this table with PyIceberg only, and set its property "
    "floe.maintenance.enabled=false"
)


@dataclass(frozen=True)
class PlannedStep:
    """One step that would run, why, and how many files and bytes it would rewrite or free."""

    step: Step
    reason: str
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class TablePlan:
    """The plan for one table. Steps that are due but cannot run are in both `skipped` and `refused`.

    `not_removed` are unreferenced files below its location that are not certainly its own.
    """

    table: TableIdentifier
    policy: MaintenancePolicy
    facts: TableFacts
    steps: tuple[PlannedStep, ...]
    skipped: tuple[tuple[Step, str], ...] = ()
    refused: frozenset[Step] = frozenset()
    not_removed: tuple[KeptFile, ...] = ()


def table_policy(
    config: MaintenanceConfig,
    identifier: TableIdentifier,
    table: Table,
    *,
    given: Mapping[str, str],
    enforcer: PolicyEnforcer | None = None,
) -> MaintenancePolicy:
    """The policy of a table, with a retention that governance approved."""
    policy = policy_of(config, identifier, table.properties, given)
    if not policy.enabled:
        return policy
    requested = policy.expire.older_than
    approved = validated_retention(enforcer or FloorEnforcer(), config.floor, identifier, requested)
    if approved == requested:
        return policy
    return policy.model_copy(update={"expire": policy.expire.model_copy(update={"older_than": approved})})


def plan_table(
    table: Table,
    identifier: TableIdentifier,
    policy: MaintenancePolicy,
    *,
    now: datetime,
    only: Collection[Step],
    neighbours: Neighbours,
    homes: Homes,
    known: TableFacts | None = None,
) -> TablePlan:
    """The steps that the policy requires for the present state of the table.

    Args:
        only: The steps that were requested.
        neighbours: The other tables, which are checked only if something is to be deleted.
        homes: Where files may be deleted.
        known: The facts of an earlier plan; the table's files are read again only if it has changed since.
    """
    with translated("plan", identifier):
        facts = look(table, policy, now=now, known=known)
    steps: list[PlannedStep] = []
    skipped: list[tuple[Step, str]] = []
    refused: set[Step] = set()
    not_removed: tuple[KeptFile, ...] = ()
    if not policy.enabled:
        return TablePlan(identifier, policy, facts, (), tuple((step, "the policy has enabled: false") for step in only))
    if table.current_snapshot() is None:
        return TablePlan(identifier, policy, facts, (), tuple((step, "the table has no snapshot yet") for step in only))

    def refuse_expiry(table: Table, identifier: TableIdentifier) -> None:
        cutoff, keep_last = cutoff_ms(table, policy, now), policy.expire.keep_last
        refuse_short_branches(table.metadata, identifier, older_than_ms=cutoff, keep_last=keep_last, now_ms=to_ms(now))
        neighbours.refuse_same(table, identifier)
        neighbours.refuse_unreadable(identifier)
        neighbours.refuse_used(identifier, lambda: present_files(table))
        neighbours.refuse_unknown(identifier)

    for step in (step for step in Step if step in only):
        if step in (Step.EXPIRE, Step.ORPHANS) and is_shared(table.properties):
            setting = f"{GC_ENABLED}={table.properties[GC_ENABLED]}"
            skipped.append((step, f"the table has {setting}: its files may be shared with another table"))
        elif step is Step.STATISTICS and policy.statistics and not _is_countable(table):
            skipped.append((step, "no column of the table has values that could be counted"))
        elif step is Step.EXPIRE and facts.expiring and (refusal := _refused(refuse_expiry, table, identifier)):
            skipped.append((step, refusal))
            refused.add(step)
        elif step is Step.ORPHANS:
            with translated("plan", identifier):
                orphans = find_orphans(table, identifier, homes, older_than=now - policy.orphans.older_than)
            if _is_worth_removing(orphans.found):  # only then are the other tables checked
                try:
                    neighbours.refuse_below(table, identifier)
                    orphans = orphans.unused(neighbours, identifier, planning=True)
                except FloeError as exc:
                    skipped.append((step, str(exc)))
                    refused.add(step)
            not_removed, sizes = orphans.kept, {path: file.size for path, file in orphans.found.items()}
            if _is_worth_removing(sizes) and step not in refused:
                reason = f"{counted(len(sizes), 'file')} that nothing refers to, untouched for {_days(policy)}"
                steps.append(PlannedStep(step, reason, len(sizes), sum(sizes.values())))
        else:
            planned = _planned(step, facts, policy)
            if planned is not None:
                steps.append(planned)
    if _has_time_columns(table):
        skipped += [(planned.step, _TIME_COLUMNS) for planned in steps]
        refused |= {planned.step for planned in steps}
        steps = []
    return TablePlan(identifier, policy, facts, tuple(steps), tuple(skipped), frozenset(refused), not_removed)


def _refused(check: Callable[[Table, TableIdentifier], None], table: Table, identifier: TableIdentifier) -> str:
    try:
        check(table, identifier)
    except FloeError as exc:
        return str(exc)
    return ""


def _has_time_columns(table: Table) -> bool:
    names = table.schema().column_names
    return any(isinstance(table.schema().find_type(name), TimeType) for name in names)


def _is_worth_removing(orphans: Collection[str]) -> bool:
    """Are there orphans other than a few earlier metadata files? Each maintenance leaves some of those behind."""
    earlier = sum(path.endswith(_METADATA) for path in orphans)
    return earlier < len(orphans) or earlier >= _MANY_METADATA_FILES


def _is_countable(table: Table) -> bool:
    return any(isinstance(field.field_type, PrimitiveType) for field in table.schema().fields)


def _planned(step: Step, facts: TableFacts, policy: MaintenancePolicy) -> PlannedStep | None:
    if step is Step.COMPACT and facts.compactable_files:
        far = f"are far from {policy.compact.target_file_size / 2**20:g} MB"
        reason = (
            f"{facts.compactable_files} of {counted(facts.files, 'file')} in {facts.compactable_partitions} of "
            f"{counted(facts.partitions, 'partition')} "
            + (
                f"have some of {counted(facts.delete_files, 'delete file')} to apply, or {far}"
                if facts.delete_files
                else far
            )
        )
        return PlannedStep(step, reason, facts.compactable_files, facts.compactable_bytes)
    if step is Step.MANIFESTS and facts.too_many_manifests:
        return PlannedStep(
            step, f"{facts.manifests} manifests where {facts.few_manifests} would suffice", facts.manifests
        )
    if step is Step.STATISTICS and policy.statistics and not facts.has_statistics:
        return PlannedStep(step, "the policy asks for statistics, and the current snapshot has none")
    if step is Step.EXPIRE and facts.expiring:
        aged = f" and {counted(len(facts.expiring.refs), 'ref')}" if facts.expiring.refs else ""
        reason = (
            f"{len(facts.expiring.snapshots)} of {counted(facts.snapshots, 'snapshot')}{aged} are older than the "
            f"policy keeps them"
        )
        return PlannedStep(step, reason, 0, facts.expiring.bytes)
    return None


def _days(policy: MaintenancePolicy) -> str:
    return f"{policy.orphans.older_than.total_seconds() / 86400:g} days"
