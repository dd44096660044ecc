"""The latest materialization of each asset and partition in Dagster's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dagster import (
    AssetKey,
    AssetRecordsFilter,
    DagsterEventType,
    DagsterInstance,
    EventLogRecord,
    PartitionsDefinition,
)

from floe_dagster.differences import spread
from floe_runtime.runs.partition_keys import known_keys

__all__ = ["Materializations"]

_CODE_VERSION = "dagster/code_version"
_WHOLE = ""  # stands for the partition of an asset that has none
# Events per asset whose code version is read first. Versions change rarely: between two events with the same version,
# in the order in which they were recorded, there is another one only if a version was taken back.
_SAMPLES = 64
_READ_AT_ONCE = 1000  # events per query; databases limit the number of values in one


class Materializations:
    """What Dagster recorded last of each asset; every question is asked once."""

    def __init__(self, instance: DagsterInstance) -> None:
        self._instance = instance
        self._latest: dict[AssetKey, EventLogRecord | None] = {}
        self._ids: dict[AssetKey, Mapping[str, int]] = {}
        self._known: dict[PartitionsDefinition[str], list[str]] = {}
        self._key_sets: dict[PartitionsDefinition[str], frozenset[str]] = {}

    @property
    def instance(self) -> DagsterInstance:
        """Where the history is stored."""
        return self._instance

    def known_keys(self, partitions: PartitionsDefinition[str]) -> Sequence[str]:
        """All keys that exist now, in the order of the definition; to list thousands of windows takes time."""
        if partitions not in self._known:
            self._known[partitions] = known_keys(partitions, self._instance)
        return self._known[partitions]

    def key_set(self, partitions: PartitionsDefinition[str]) -> frozenset[str]:
        """All keys that exist now, to look some up."""
        if partitions not in self._key_sets:
            self._key_sets[partitions] = frozenset(self.known_keys(partitions))
        return self._key_sets[partitions]

    def latest(self, key: AssetKey) -> EventLogRecord | None:
        """The latest materialization of any partition; None if there was none."""
        if key not in self._latest:
            records = self._instance.fetch_materializations(key, limit=1).records
            self._latest[key] = records[0] if records else None
        return self._latest[key]

    def by_partition(self, key: AssetKey) -> Mapping[str, int]:
        """The id of the latest event of each partition, which grows with time."""
        if key not in self._ids:
            kind = DagsterEventType.ASSET_MATERIALIZATION
            self._ids[key] = self._instance.get_latest_storage_id_by_partition(key, kind)
        return self._ids[key]

    def code_versions(self, key: AssetKey, names: Sequence[str]) -> dict[str, str | None]:
        """The code version of the latest materialization of these partitions, empty if the asset declared none.

        Partitions that were never materialized are left out; None where nothing was recorded. Of many partitions, some
        are read, and those between two that differ.

        Args:
            names: The partitions; an empty name stands for the asset, if it is not partitioned.
        """
        if list(names) == [_WHOLE]:
            record = self.latest(key)
            return {} if record is None else {_WHOLE: _version(record)}
        ids = self.by_partition(key)
        recorded = sorted((name for name in names if name in ids), key=lambda name: ids[name])

        def read(places: Sequence[int]) -> list[str | None]:
            wanted = [ids[recorded[place]] for place in places]
            by_id: dict[int, str | None] = {}
            for start in range(0, len(wanted), _READ_AT_ONCE):
                some = wanted[start : start + _READ_AT_ONCE]
                chosen = AssetRecordsFilter(asset_key=key, storage_ids=some)
                records = self._instance.fetch_materializations(chosen, limit=len(some)).records
                by_id |= {record.storage_id: _version(record) for record in records}
            return [by_id.get(storage_id) for storage_id in wanted]

        return dict(zip(recorded, spread(len(recorded), read, samples=_SAMPLES), strict=True))


def _version(record: EventLogRecord) -> str | None:
    made = record.asset_materialization
    version = (made.tags or {}).get(_CODE_VERSION) if made is not None else None
    return "" if version == record.run_id else version  # Dagster records the run if no version is declared
