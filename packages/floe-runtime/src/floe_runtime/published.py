"""The materializations of a branch of the lake, recorded in main's history when it is published."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from dagster import (
    AssetCheckSeverity,
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    DagsterInstance,
    MetadataValue,
)

from floe_core.config import MAIN, CompiledArtifacts
from floe_core.errors import CheckFailedError, FloeError
from floe_core.observability import warn
from floe_dagster._dagster.names import AssetCheckExecutionRecord, AssetCheckExecutionRecordStatus
from floe_dagster.runs import labelled
from floe_iceberg.branches import BranchPublication, BranchStatus, PublishedTable, PublishedWrite
from floe_runtime.runs.pipeline import load_definitions, open_history, open_instance, open_pipeline

__all__ = ["record_publication", "refuse_failed_checks"]

_BRANCH, _SNAPSHOT, _WRITE_ID = "floe/branch", "floe/snapshot_id", "floe/write_id"
_FROM = "floe/published_from"
_DATA_VERSION, _CODE_VERSION = "dagster/data_version", "dagster/code_version"
_PAGE = 1000


def record_publication(artifacts: CompiledArtifacts, published: BranchPublication) -> int:
    """Record in main's history what a publication has moved to main; returns how many materializations.

    What the history of the branch knows of a write is taken from there; without it, from the snapshots. A write that
    main's history has already is not recorded twice.

    Args:
        artifacts: The project.
        published: The publication.
    """
    recorded = 0
    with open_instance(artifacts.on_branch(MAIN)) as main, open_history(artifacts.on_branch(published.branch)) as own:
        for table, asset in _upstream_first(artifacts, published):
            known = _Known(main, AssetKey.from_user_string(asset))
            for made in _materializations(artifacts, own, table, asset, published.branch):
                if not known.has(made):
                    main.report_runless_asset_event(made)
                    recorded += 1
    return recorded


def _upstream_first(artifacts: CompiledArtifacts, published: BranchPublication) -> list[tuple[PublishedTable, str]]:
    """The tables with their assets, in the order of the graph: an asset that is recorded first would look outdated."""
    found = [
        (table, asset)
        for table in published.tables
        for asset in dict.fromkeys(write.asset for write in table.writes if write.asset)
    ]
    try:
        keys = load_definitions(artifacts.on_branch(MAIN)).resolve_asset_graph().toposorted_asset_keys
    except FloeError as exc:
        warn("published assets are recorded by the names of their tables", reason=str(exc))
        return found
    places = {key.to_user_string(): place for place, key in enumerate(keys)}
    return sorted(found, key=lambda one: places.get(one[1], -1))


def _materializations(
    artifacts: CompiledArtifacts, own: DagsterInstance | None, table: PublishedTable, asset: str, branch: str
) -> Iterator[AssetMaterialization]:
    """The latest materialization of each partition, the oldest first."""
    writes = {write.write_id: write for write in table.writes if write.asset == asset}
    recorded: dict[str, dict[str | None, AssetMaterialization]] = defaultdict(dict)
    for event in () if own is None else _events(own, AssetKey.from_user_string(asset), set(writes)):
        recorded[_text(event, _WRITE_ID)].setdefault(event.partition, event)
    latest: dict[str | None, AssetMaterialization] = {}
    for write_id, write in writes.items():
        known = [_as_published(event, write, branch) for event in reversed(recorded[write_id].values())]
        for made in known or _by_snapshot(artifacts, table, write, branch):
            latest.pop(made.partition, None)  # the place of its latest write
            latest[made.partition] = made
    yield from latest.values()


def _events(instance: DagsterInstance, asset: AssetKey, write_ids: Collection[str]) -> Iterator[AssetMaterialization]:
    """The materializations of an asset by these writes, the newest first."""
    cursor: str | None = None
    while True:
        page = instance.fetch_materializations(AssetRecordsFilter(asset_key=asset), limit=_PAGE, cursor=cursor)
        for record in page.records:
            event = record.asset_materialization
            if event is not None and _text(event, _WRITE_ID) in write_ids:
                yield event
        if not page.has_more:
            return
        cursor = page.cursor


def _as_published(event: AssetMaterialization, write: PublishedWrite, branch: str) -> AssetMaterialization:
    snapshot_id = str(write.snapshot_id)
    metadata = {
        **event.metadata,
        _BRANCH: MetadataValue.text(MAIN),
        _SNAPSHOT: MetadataValue.text(snapshot_id),
        _FROM: MetadataValue.text(branch),
    }
    tags = {**(event.tags or {}), _DATA_VERSION: snapshot_id}
    return AssetMaterialization(
        event.asset_key, description=event.description, metadata=metadata, partition=event.partition, tags=tags
    )


def _by_snapshot(
    artifacts: CompiledArtifacts, table: PublishedTable, write: PublishedWrite, branch: str
) -> Iterator[AssetMaterialization]:
    """What a snapshot says of its write, if it was recorded on another machine."""
    key, snapshot_id = AssetKey.from_user_string(write.asset), str(write.snapshot_id)
    metadata = {
        "dagster/table_name": MetadataValue.text(table.table),
        _BRANCH: MetadataValue.text(MAIN),
        _SNAPSHOT: MetadataValue.text(snapshot_id),
        _WRITE_ID: MetadataValue.text(write.write_id),
        _FROM: MetadataValue.text(branch),
    }
    tags = {_DATA_VERSION: snapshot_id, **({_CODE_VERSION: write.code_version} if write.code_version else {})}
    for partition in _partitions(artifacts, key, write):
        yield AssetMaterialization(key, metadata=metadata, partition=partition, tags=tags)


def _partitions(artifacts: CompiledArtifacts, key: AssetKey, write: PublishedWrite) -> Sequence[str | None]:
    if not write.partitions:
        return [None]
    try:
        graph = load_definitions(artifacts.on_branch(MAIN)).resolve_asset_graph()
        definition = graph.get(key).partitions_def if graph.has(key) else None
        names = definition.get_partition_keys() if definition is not None else []
    except FloeError as exc:
        warn("partitions that were published are not recorded in Dagster's history", asset=write.asset, reason=str(exc))
        return []
    return labelled(write.partitions, {str(name): place for place, name in enumerate(names)})


class _Known:
    """The writes of an asset that a history has."""

    def __init__(self, instance: DagsterInstance, asset: AssetKey) -> None:
        self._instance = instance
        self._asset = asset

    def has(self, made: AssetMaterialization) -> bool:
        wanted = AssetRecordsFilter(
            asset_key=self._asset, asset_partitions=None if made.partition is None else [made.partition]
        )
        latest = self._instance.fetch_materializations(wanted, limit=1).records
        event = latest[0].asset_materialization if latest else None
        return event is not None and _text(event, _WRITE_ID) == _text(made, _WRITE_ID)


def _text(event: AssetMaterialization, name: str) -> str:
    value: Any = event.metadata.get(name)
    return str(value.value) if value is not None else ""


def refuse_failed_checks(artifacts: CompiledArtifacts, status: BranchStatus) -> None:
    """Refuse to publish tables whose blocking checks have failed on the branch, and were not run again since.

    Args:
        artifacts: The project.
        status: The branch.
    """
    at_branch = artifacts.on_branch(status.name)
    assets = {AssetKey.from_user_string(asset) for table in status.tables for asset in table.assets}
    with open_history(at_branch) as history:
        if history is None or not assets:
            return
    with open_pipeline(at_branch) as pipeline:
        keys = [
            key
            for key in pipeline.graph.asset_check_keys
            if key.asset_key in assets and pipeline.graph.get(key).blocking
        ]
        latest = pipeline.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        failed = [
            f"{key.name} of {key.asset_key.to_user_string()}"
            for key, record in latest.items()
            # The history of a branch begins with what main's knows of assets, without its runs.
            if pipeline.instance.has_run(record.run_id) and not _lets_publish(record)
        ]
    if failed:
        raise CheckFailedError(
            f"branch {status.name!r} is not published, because blocking checks have failed on it, or did not end: "
            f"{', '.join(failed)}. "
            f"Correct what they found, then run floe run or floe check with --branch {status.name}",
            [],
        )


def _lets_publish(record: AssetCheckExecutionRecord) -> bool:
    """Has the check passed, or failed as a warning only? One that did not end hides whether the rows are good."""
    if record.status is not AssetCheckExecutionRecordStatus.FAILED:
        return record.status is AssetCheckExecutionRecordStatus.SUCCEEDED
    event = None if record.event is None else record.event.dagster_event
    return event is not None and event.asset_check_evaluation_data.severity is AssetCheckSeverity.WARN
