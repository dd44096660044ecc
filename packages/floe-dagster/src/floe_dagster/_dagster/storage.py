"""Dagster's SQLite storage, with public methods for the private ones that Floe uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dagster import EventLogEntry

from floe_core.engines import private_names, require_members

_HISTORY = "the history of a project is stored in few transactions, and without secrets"
with private_names("dagster", _HISTORY):
    from dagster._core.events import ASSET_EVENTS
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
    from dagster._core.storage.runs.sqlite.sqlite_run_storage import SqliteRunStorage
    from dagster._core.storage.schedules.sqlite.sqlite_schedule_storage import SqliteScheduleStorage
    from dagster._core.storage.sql import create_engine
    from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS, create_db_conn_string
    from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
    from dagster._serdes import ConfigurableClassData

if TYPE_CHECKING:
    from dagster._core.execution.backfill import PartitionBackfill as PartitionBackfill
    from dagster._core.scheduler.instigation import InstigatorTick as InstigatorTick
    from dagster._core.scheduler.instigation import TickData as TickData
    from dagster._daemon.types import DaemonHeartbeat as DaemonHeartbeat

__all__ = [
    "ASSET_EVENTS",
    "AdaptedEventLog",
    "AdaptedStorage",
    "ConfigurableClassData",
    "SqlEventLogStorageTable",
    "SqliteRunStorage",
    "SqliteScheduleStorage",
    "create_db_conn_string",
]

require_members(
    "dagster",
    SqliteEventLogStorage,
    "_event_to_row",
    "_initdb",
    "_initialized_dbs",
    "_store_asset_event",
    "_store_asset_event_tags",
    promise=_HISTORY,
)
require_members(
    "dagster",
    DagsterSqliteStorage,
    "_event_log_storage",
    "_run_storage",
    "_schedule_storage",
    promise=_HISTORY,
)


class AdaptedEventLog(SqliteEventLogStorage):
    """Dagster's event log, with the steps of storing an event as public methods."""

    def row_of(self, event: EventLogEntry) -> Mapping[str, Any]:
        """The event as a row of the log."""
        return self._event_to_row(event)

    @contextmanager
    def run_beside_index(self, run_id: str) -> Iterator[Any]:
        """A transaction in the run's log. `run_connection` would wait for the lock of `index_transaction`."""
        connect_args = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS}
        engine = create_engine(self.conn_string_for_shard(run_id), connect_args=connect_args)
        try:
            if run_id not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(run_id)
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()

    def store_tags(self, index: Any, events: Sequence[EventLogEntry], ids: Sequence[int]) -> None:
        """Store the tags of events that are in the index."""
        self._store_asset_event_tags(index, events, ids)

    def store_asset(self, index: Any, event: EventLogEntry, event_id: int) -> None:
        """Update the asset's row in the index from an event."""
        self._store_asset_event(index, event, event_id)


class AdaptedStorage(DagsterSqliteStorage):
    """Dagster's storage, composed of the given parts."""

    def use_parts(
        self, *, events: SqliteEventLogStorage, schedules: SqliteScheduleStorage, runs: SqliteRunStorage
    ) -> None:
        self._event_log_storage = events
        self._schedule_storage = schedules
        self._run_storage = runs
