"""Dagster's SQLite storage, with batches of events in one transaction and known secrets masked.

A run over partitions stores a planned event and a materialization for each partition of each asset, and Dagster's
SQLite storage commits each of them twice: a year of days takes minutes. Files and tables are Dagster's own, so the
history is readable either way. The `dagster.yaml` of projects names this module and `ProjectStorage`: keep both names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster import EventLogEntry

from floe_core.config import CompiledArtifacts
from floe_core.errors import FloeError
from floe_dagster._dagster.storage import (
    ASSET_EVENTS,
    AdaptedEventLog,
    AdaptedStorage,
    ConfigurableClassData,
    SqlEventLogStorageTable,
    SqliteRunStorage,
    SqliteScheduleStorage,
    create_db_conn_string,
)
from floe_runtime.stored_events import redacted, with_redacted

if TYPE_CHECKING:
    from floe_dagster._dagster.storage import DaemonHeartbeat, InstigatorTick, PartitionBackfill, TickData

__all__ = ["BATCH_SIZE", "SETTINGS", "ProjectStorage", "protect_project"]

# Dagster stores events in batches only if this environment variable is set.
BATCH_SIZE = ("DAGSTER_EVENT_BATCH_SIZE", "1000")
SETTINGS = """\
storage:
  custom:
    module: floe_runtime.dagster_storage
    class: ProjectStorage
    config:
      base_dir:
        env: DAGSTER_HOME
"""
# Free text only: values that code reads back (cursors, run keys, run config, tags) are not masked. A masked title would
# be invalid.
_TICK_TEXTS = ("error", "skip_reason")
_BACKFILL_TEXTS = ("error", "description")
_CHECKSUM = re.compile("-[0-9a-f]{8}$")


class _EventLog(AdaptedEventLog):
    """Dagster's event log, with secrets masked, and each batch in one transaction per file (run and index)."""

    def store_event(self, event: EventLogEntry) -> None:
        super().store_event(redacted(event))

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        events = [redacted(event) for event in events]
        for (run_id, is_plain), group in itertools.groupby(events, lambda event: (event.run_id, _is_plain(event))):
            if is_plain:
                self._store_together(run_id, list(group))
            else:
                for event in group:
                    super().store_event(event)

    def _store_together(self, run_id: str, events: list[EventLogEntry]) -> None:
        rows = [self.row_of(event) for event in events]
        # On failure Dagster retries the events one at a time, so nothing may have been stored, or sensors see them
        # twice: neither file is committed before both have all rows. The run's log is committed first; if the commit
        # of the index then fails (disk full), the run's log lists these events twice, the index once.
        with self.index_transaction() as index, self.run_beside_index(run_id) as run:
            run.execute(SqlEventLogStorageTable.insert(), rows)
            self._store_in_index(index, events, rows)

    def _store_in_index(self, index: Any, events: Sequence[EventLogEntry], rows: Sequence[Mapping[str, Any]]) -> None:
        inserted = [index.execute(SqlEventLogStorageTable.insert().values(**row)) for row in rows]
        ids = [int(result.lastrowid) for result in inserted]
        self.store_tags(index, events, ids)
        # Each event overwrites the asset's row, so only the latest of each type is stored there.
        latest = {
            (event.dagster_event_type, row["asset_key"]): (event, event_id)
            for event, row, event_id in zip(events, rows, ids, strict=True)
        }
        for event, event_id in latest.values():
            self.store_asset(index, event, event_id)


def _is_plain(event: EventLogEntry) -> bool:
    """Whether it is an asset event, which is stored only in the log, its tags and the table of assets."""
    return event.dagster_event is not None and event.dagster_event.event_type in ASSET_EVENTS


class _Schedules(SqliteScheduleStorage):
    """Ticks of schedules and sensors, with secrets masked except in cursors and run keys, which sensors read back."""

    def create_tick(self, tick_data: TickData) -> InstigatorTick:
        return super().create_tick(with_redacted(tick_data, *_TICK_TEXTS))

    def update_tick(self, tick: InstigatorTick) -> InstigatorTick:
        return super().update_tick(tick._replace(tick_data=with_redacted(tick.tick_data, *_TICK_TEXTS)))


class _Runs(SqliteRunStorage):
    """Dagster's run storage, with secrets masked in the errors of backfills and daemons."""

    def add_backfill(self, partition_backfill: PartitionBackfill) -> None:
        super().add_backfill(with_redacted(partition_backfill, *_BACKFILL_TEXTS))

    def update_backfill(self, partition_backfill: PartitionBackfill) -> None:
        super().update_backfill(with_redacted(partition_backfill, *_BACKFILL_TEXTS))

    def add_daemon_heartbeat(self, daemon_heartbeat: DaemonHeartbeat) -> None:
        super().add_daemon_heartbeat(with_redacted(daemon_heartbeat, "errors"))


class ProjectStorage(AdaptedStorage):
    """Runs, events and schedules where Dagster keeps them by default, below `base_dir`."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(base_dir, inst_data)
        self.use_parts(
            events=_EventLog(str(Path(base_dir) / "history" / "runs")),
            schedules=_Schedules(create_db_conn_string(str(Path(base_dir) / "schedules"), "schedules")),
            runs=_Runs(create_db_conn_string(str(Path(base_dir) / "history"), "runs")),
        )
        protect_project(Path(base_dir))

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> ProjectStorage:
        return cls.from_local(inst_data=inst_data, **config_value)


def protect_project(home: Path) -> None:
    """Mask the secrets of the project whose Dagster home this is.

    Dagster's daemon and web server store errors of the project's code, but do not load its definitions.
    """
    # The folder of a branch of the lake has its name behind an @.
    folder, (kind, _, rest) = home.absolute().parent, home.name.partition("@")[0].partition(".")
    if folder.name != ".floe":
        return
    # `dagster.ENVIRONMENT`, plus a checksum if the catalog changed; `pipeline.py` names these folders.
    names = {rest, _CHECKSUM.sub("", rest)} if rest and kind == "dagster" else {None}
    for environment in names:
        with suppress(FloeError, OSError):  # without a contract there are no secrets to mask
            CompiledArtifacts.load(folder.parent, environment).protect_secrets()
