"""Sensors on tables: a commit by another writer becomes an observation of its asset, or a run."""

# No postponed annotations here: Dagster inspects those of the sensor when it is defined.
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from dagster import (
    AssetKey,
    AssetObservation,
    AssetsDefinition,
    AssetSpec,
    DagsterInstance,
    DefaultSensorStatus,
    MetadataValue,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from floe_core.errors import ConfigurationError, FloeError
from floe_core.formatting import counted
from floe_core.identifiers import TableIdentifier
from floe_dagster.assets.names import Naming, table_of
from floe_dagster.assets.options import output_options
from floe_dagster.resources import LakeResource, lake_of
from floe_iceberg import Lake
from floe_iceberg.snapshots import RUN_ID, ancestors_of, snapshot_info, summary_of

__all__ = ["create_table_sensor"]

# Commits of one table that one tick reports by themselves; the rest are reported together.
_LISTED = 20


def create_table_sensor(
    name: str,
    assets: Sequence[AssetsDefinition | AssetSpec | AssetKey | str],
    *,
    job: Any = None,
    tables: Mapping[str, str] | None = None,
    minimum_interval_seconds: int = 60,
    default_status: DefaultSensorStatus = DefaultSensorStatus.STOPPED,
) -> SensorDefinition:
    """Create a sensor that notices commits of other writers to the tables of assets: Spark, Trino, another project.

    Without a job, each commit is an observation of the asset, which automation conditions can use. With a job, the
    sensor requests a run. Commits of runs that this Dagster instance knows do not count, and neither do compactions.
    The first tick only remembers where the tables are.

    Args:
        name: The name of the sensor.
        assets: The assets; those of other systems as AssetSpec.
        job: The job to run, with one run for each tick that found commits. By default none.
        tables: The tables of assets whose names do not follow from their keys, by asset key.
        minimum_interval_seconds: The time between two ticks.
        default_status: Whether the sensor runs without being switched on.

    Example:
        >>> from dagster import AssetSpec
        >>> from floe_dagster import create_table_sensor
        >>> create_table_sensor("from_trino", [AssetSpec(["bronze", "orders"])]).name
        'from_trino'
    """
    watched = [_watched(asset, tables or {}) for asset in assets]
    if not watched:
        raise ConfigurationError(f"sensor {name}: it has no assets to watch")

    @sensor(
        name=name,
        job=job,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
    )
    def found(context: SensorEvaluationContext, lake: LakeResource) -> SensorResult:
        return _evaluate(context, lake_of(lake, None), watched, runs=job is not None)

    return found


@dataclass(frozen=True)
class _Watched:
    """An asset, and its table if the key does not tell it."""

    key: AssetKey
    metadata: Mapping[str, Any]
    table: str | None

    def identifier(self, lake: Lake) -> TableIdentifier:
        if self.table is not None:
            return TableIdentifier.from_string(self.table)
        options = output_options(self.metadata, self.key.to_user_string())
        return table_of(self.key.path, options, Naming(lake.default_namespace, lake.ignore_key_prefix))


def _watched(asset: AssetsDefinition | AssetSpec | AssetKey | str, tables: Mapping[str, str]) -> _Watched:
    if isinstance(asset, AssetsDefinition):
        spec = next(iter(asset.specs))
        key, metadata = spec.key, spec.metadata
    elif isinstance(asset, AssetSpec):
        key, metadata = asset.key, asset.metadata
    else:
        key, metadata = AssetKey.from_user_string(asset) if isinstance(asset, str) else asset, {}
    return _Watched(key, metadata, tables.get(key.to_user_string()))


def _evaluate(context: SensorEvaluationContext, lake: Lake, watched: Sequence[_Watched], *, runs: bool) -> SensorResult:
    before: dict[str, int] = json.loads(context.cursor) if context.cursor else {}
    after = dict(before)
    events: list[AssetObservation] = []
    for one in watched:
        identifier = one.identifier(lake)
        try:
            table = lake.tables.find_table(identifier)
        except FloeError as exc:  # the others are looked at; this one is at the next tick
            context.log.warning(f"'{identifier}' could not be looked at: {exc}")
            continue
        head = table.current_snapshot() if table is not None else None
        if table is None or head is None:
            continue
        name = str(identifier)
        after[name] = head.snapshot_id
        if name in before and before[name] != head.snapshot_id:
            if _is_behind(table, head, before[name]):
                events.append(
                    AssetObservation(asset_key=one.key, description=f"main of '{identifier}' was rolled back")
                )
                continue
            found = list(_of_others(table, head, before[name], context.instance))
            events += _observations(one.key, identifier, found)
    requests = []
    if runs and events:
        heads = "-".join(str(after[name]) for name in sorted(after))
        requests = [RunRequest(run_key=heads, tags={"floe/commits": str(len(events))})]
    return SensorResult(
        run_requests=requests, asset_events=[] if runs else events, cursor=json.dumps(after, sort_keys=True)
    )


def _is_behind(table: Table, head: Snapshot, since: int) -> bool:
    """Was main rolled back to before the snapshot of the last tick?"""
    history = ancestors_of(table.snapshot_by_id(since), table.metadata)
    return any(snapshot.snapshot_id == head.snapshot_id for snapshot in history)


def _of_others(table: Table, head: Snapshot, since: int, instance: DagsterInstance) -> Iterator[Snapshot]:
    """The commits since a snapshot that no run of this instance made, oldest first; compactions change no rows."""
    found = []
    for snapshot in ancestors_of(head, table.metadata):
        if snapshot.snapshot_id == since:
            break
        found.append(snapshot)
    for snapshot in reversed(found):
        run_id = summary_of(snapshot).get(RUN_ID)
        if run_id is not None and instance.has_run(run_id):
            continue
        if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
            yield snapshot


def _observations(key: AssetKey, identifier: TableIdentifier, found: Sequence[Snapshot]) -> Iterator[AssetObservation]:
    """An observation of each commit; of very many, the last ones and their number."""
    if len(found) > _LISTED:
        left_out = found[: len(found) - _LISTED]
        yield AssetObservation(
            asset_key=key,
            description=f"{counted(len(left_out), 'commit')} of other writers to '{identifier}'",
            metadata={"floe/commits": len(left_out)},
        )
    for snapshot in found[-_LISTED:]:
        info = snapshot_info(snapshot)
        moment = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, timezone.utc)
        known: dict[str, Any] = {
            "floe/table": str(identifier),
            "floe/snapshot_id": str(snapshot.snapshot_id),
            "floe/operation": info.operation,
            "floe/rows_added": info.count("added-records"),
            "floe/rows_removed": info.count("deleted-records"),
            "floe/engine": info.summary.get("engine-name"),
            "floe/committed_at": MetadataValue.timestamp(moment),
        }
        yield AssetObservation(
            asset_key=key,
            description=f"a commit of another writer to '{identifier}'",
            metadata={name: value for name, value in known.items() if value is not None},
        )
