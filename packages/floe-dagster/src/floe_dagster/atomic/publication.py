"""The last step of an atomic group: publish what the other steps wrote, and report it as materializations."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dagster import AssetKey, DagsterEventType, DagsterInstance, OpExecutionContext
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_core.formatting import counted
from floe_core.identifiers import TableIdentifier
from floe_core.models import WriteMode
from floe_dagster._dagster.names import step_of_op, unpack_value
from floe_dagster.atomic.execution import MADE
from floe_dagster.io_manager import IcebergIOManager
from floe_dagster.resources import lake_of
from floe_dagster.runs import cursors
from floe_dagster.runs.quarantine import quarantine_in
from floe_dagster.runs.steps import heads_of, runs_of_write
from floe_iceberg import IcebergTableManager
from floe_iceberg.backoff import ATTEMPTS, delay
from floe_iceberg.snapshots import FOLLOWED, ancestors_of, run_branch, snapshot_info, summary_of
from floe_iceberg.transactions import REPLAYED, Isolation

__all__ = ["GroupSteps", "Policy", "Recorded", "publish", "recorded", "refuse_unfinished"]

_TABLE, _SNAPSHOT, _BRANCH = "dagster/table_name", "floe/snapshot_id", "floe/branch"


@dataclass(frozen=True)
class Recorded:
    """What a step of the run has made; `table` is None for an asset that Floe did not store.

    `partitions` is what the metadata of a partition has beside that of the others.
    """

    asset: AssetKey
    table: TableIdentifier | None
    snapshot_id: int
    metadata: Mapping[str, Any]
    data_version: str | None
    tags: Mapping[str, str]
    partitions: Mapping[str, Mapping[str, Any]]


class Policy(Protocol):
    """How the tables of a group are published."""

    @property
    def isolation(self) -> Isolation: ...

    @property
    def one_by_one(self) -> bool: ...

    @property
    def audit(self) -> bool: ...


@dataclass(frozen=True)
class GroupSteps:
    """The other steps of a group, as its publish step knows them.

    Args:
        keys: The assets of the run, upstream first.
        names: The steps.
        naming: The name of the output of a step for an asset.
        check_again: Runs the checks that other writers may have made fail, or all of them; raises if one does.
    """

    keys: Sequence[AssetKey]
    names: Sequence[str]
    naming: Callable[[AssetKey], str]
    check_again: Callable[[bool], None]


def publish(
    context: OpExecutionContext, policy: Policy, managers: Mapping[AssetKey, str], steps: GroupSteps
) -> Iterator[tuple[AssetKey, Recorded]]:
    """Publish the tables of the assets that the run wrote, in one commit.

    Args:
        context: The publish step.
        policy: What to do if tables have moved, and on a catalog that cannot commit many tables.
        managers: The resource keys of the IO managers of the assets.
        steps: The other steps of the group.
    """
    runs = runs_of_write(step_of_op(context))
    refuse_unfinished(context.instance, runs, steps.names)
    made = recorded(context.instance, runs, steps.names, {steps.naming(key): key for key in steps.keys})
    written = [(one, one.table) for one in made.values() if one.table is not None]
    if written:
        tables = _tables(context, managers, [one.asset for one, _ in written])
        loaded = tables.load_at_once([table for _, table in written])
        branch = run_branch(runs[-1])
        pending = [(one, table) for one, table in written if branch in loaded[table].metadata.refs]
        for one, table in written:
            if (one, table) not in pending:
                _refuse_lost(one.snapshot_id, table, loaded[table], branch)
        moved = _quarantines(tables, made.values(), branch)
        staged = [snapshot for _, table in pending for snapshot in _staged(loaded[table], branch)]
        reads = [read for snapshot in staged for read in heads_of(summary_of(snapshot))]
        branches = {table: branch for _, table in pending} | dict.fromkeys(moved.values(), branch)
        if policy.audit:
            own = [name for name, _ in reads if any(str(table) == str(name) for table in branches)]
            follows = any(summary_of(snapshot).get(FOLLOWED) for snapshot in staged)
            was_replayed = any(REPLAYED in summary_of(snapshot) for snapshot in staged)
            for one, table in written:
                both = tuple(name for name in (table, moved.get(one.asset)) if name in branches)
                if both:
                    audited = Audited(one.asset, both, branch, bool(own) or follows, was_replayed, policy.one_by_one)
                    _publish_audited(context, tables, audited, getattr(context.resources, managers[one.asset]), steps)
        else:
            tables.publish(branches, reads=reads, isolation=policy.isolation, one_by_one=policy.one_by_one)
        how = "in one commit" if tables.refuses_many_tables is None else "one by one"
        context.log.info(f"published {counted(len(branches), 'table')} {how}")
        _advance_cursors(context, tables, written)
    for one in made.values():
        yield one.asset, replace(one, metadata={**one.metadata, **({_BRANCH: MAIN_BRANCH} if one.table else {})})


@dataclass(frozen=True)
class Audited:
    """An asset whose branch is published.

    `tables` are its table, and the quarantine table if rows were moved. `is_bound` is whether its rows belong to the
    state of its table that the run began at: it reads its own table, or continues after what it has consumed.
    `was_replayed` is whether an earlier attempt has put it on top of others.
    """

    asset: AssetKey
    tables: tuple[TableIdentifier, ...]
    branch: str
    is_bound: bool
    was_replayed: bool
    one_by_one: bool


def _publish_audited(
    context: OpExecutionContext,
    tables: IcebergTableManager,
    audited: Audited,
    manager: IcebergIOManager,
    steps: GroupSteps,
) -> None:
    """Publish exactly what was checked; if main has moved in other slices only, on top of that, checked again."""
    mode, within = manager.replaced_by(step_of_op(context), audited.asset)
    everything = mode is not WriteMode.OVERWRITE or within is None  # the rows of the slice may be others, too
    if audited.was_replayed:  # an attempt that ended, or was refused, before it was checked again
        steps.check_again(everything)
    for number in itertools.count(1):
        try:
            tables.publish(dict.fromkeys(audited.tables, audited.branch), one_by_one=audited.one_by_one)
        except ConcurrencyConflictError:
            if audited.is_bound or number >= ATTEMPTS:
                raise
        else:
            return
        if number > 1:
            time.sleep(delay(number))
        for table in audited.tables:
            tables.replay_branch(table, audited.branch, mode=mode, within=within)
        context.log.info(f"'{audited.tables[0]}' has moved in other slices: the run is put on top, and checked again")
        steps.check_again(everything)


def refuse_unfinished(instance: DagsterInstance, runs: Sequence[str], steps: Sequence[str]) -> None:
    """Refuse to publish if a step or a check of the group has not succeeded, in this run or in one that it retries."""
    succeeded = {
        entry.dagster_event.step_key
        for run_id in runs
        for entry in instance.all_logs(run_id, of_type=DagsterEventType.STEP_SUCCESS)
        if entry.dagster_event is not None
    }
    missing = [step for step in steps if step not in succeeded]
    if missing:
        raise ConfigurationError(
            f"{', '.join(missing)} did not succeed in this run, so nothing is published: re-execute the run from its "
            f"failure, or run all of the group"
        )


def recorded(
    instance: DagsterInstance, runs: Sequence[str], steps: Sequence[str], assets: Mapping[str, AssetKey]
) -> dict[AssetKey, Recorded]:
    """What the steps of the run made, or those of the failed runs that it retries; in the order of the assets.

    Args:
        instance: Where Dagster records it.
        runs: The run, and those that it retries.
        steps: The steps.
        assets: The assets, by the names of the outputs of these steps.
    """
    found: dict[AssetKey, Recorded] = {}
    for run_id in runs:
        for entry in instance.all_logs(run_id, of_type=DagsterEventType.STEP_OUTPUT):
            event = entry.dagster_event
            if event is None or event.step_key not in steps:
                continue
            data = event.step_output_data
            asset = assets.get(data.step_output_handle.output_name)
            if asset is not None and asset not in found and MADE in data.metadata:
                found[asset] = _recorded(asset, data.metadata)
    return {asset: found[asset] for asset in assets.values() if asset in found}


def _recorded(asset: AssetKey, metadata: Mapping[str, Any]) -> Recorded:
    beside: Any = metadata[MADE].value
    is_stored = _SNAPSHOT in metadata and _TABLE in metadata
    return Recorded(
        asset=asset,
        table=TableIdentifier.from_string(str(metadata[_TABLE].value)) if is_stored else None,
        snapshot_id=int(str(metadata[_SNAPSHOT].value)) if is_stored else 0,
        metadata={key: value for key, value in metadata.items() if key != MADE},
        data_version=beside["data_version"],
        tags=beside["tags"],
        partitions={partition: _unpacked(packed) for partition, packed in beside["partitions"].items()},
    )


def _unpacked(packed: Any) -> Any:
    return unpack_value(packed)


def _tables(
    context: OpExecutionContext, managers: Mapping[AssetKey, str], assets: Sequence[AssetKey]
) -> IcebergTableManager:
    """The lake of all assets; one commit cannot change two."""
    found: list[IcebergTableManager] = []
    for asset in assets:
        manager = getattr(context.resources, managers[asset])
        if not isinstance(manager, IcebergIOManager):
            raise ConfigurationError(f"asset {asset.to_user_string()} is not stored by an IcebergIOManager")
        found.append(lake_of(manager.lake, manager.table_manager).tables)
    if any(tables is not found[0] for tables in found):
        raise ConfigurationError("the assets of an atomic group must be stored in one lake; nothing was published")
    return found[0]


def _quarantines(tables: IcebergTableManager, made: Iterable[Recorded], branch: str) -> dict[AssetKey, TableIdentifier]:
    """The quarantine tables with rows to publish, by the asset that they were taken from."""
    changed = {one.asset: found for one in made if (found := quarantine_in(one.metadata)) is not None}
    loaded = tables.load_at_once([table for table, _ in changed.values()]) if changed else {}
    for table, snapshot_id in changed.values():
        if branch not in loaded[table].metadata.refs:
            _refuse_lost(snapshot_id, table, loaded[table], branch)
    return {asset: table for asset, (table, _) in changed.items() if branch in loaded[table].metadata.refs}


def _refuse_lost(snapshot_id: int, name: TableIdentifier, table: Table, branch: str) -> None:
    """Refuse a table without the branch, unless an attempt of this run has published it."""
    history = (snapshot.snapshot_id for snapshot in ancestors_of(table.current_snapshot(), table.metadata))
    if snapshot_id not in history:
        raise ConcurrencyConflictError(
            f"branch {branch!r} of '{name}' was removed before it was published, so nothing was published: run it again"
        )


def _staged(table: Table, branch: str) -> Iterator[Any]:
    """The snapshots of the branch that main does not have."""
    mains = {snapshot.snapshot_id for snapshot in ancestors_of(table.current_snapshot(), table.metadata)}
    for snapshot in ancestors_of(table.snapshot_by_name(branch), table.metadata):
        if snapshot.snapshot_id in mains:
            return
        yield snapshot


def _advance_cursors(
    context: OpExecutionContext, tables: IcebergTableManager, written: Sequence[tuple[Recorded, TableIdentifier]]
) -> None:
    """Move the tags of tables that were read incrementally; the cursor itself is in the snapshot."""
    for one, table in written:
        snapshot = tables.load_table(table).snapshot_by_id(one.snapshot_id)
        followed = summary_of(snapshot).get(FOLLOWED, "") if snapshot is not None else ""
        if snapshot is None or not followed:
            continue
        sources = [TableIdentifier.from_string(name) for name in followed.split(",")]
        try:
            cursors.advance(tables, sources, one.asset.to_user_string(), snapshot_info(snapshot))
        except Exception as exc:  # noqa: BLE001 - the rows are published; the tag is a fallback for expired history
            context.log.warning(f"the cursor tags of {one.asset.to_user_string()} were not moved: {exc}")
