"""One write while things go wrong, and what must be true afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import ancestors_of

from floe_core.identifiers import TableIdentifier
from floe_core.models import SnapshotInfo
from floe_iceberg.snapshots.snapshots import snapshot_info
from tests.engines import BY_DAY, Engine, days, events, rows_of
from tests.faults.catalog import Fault, Outage, faulty
from tests.faults.files import KeptFiles, files_reached
from tests.faults.proxy import Fault as ProxyFault
from tests.faults.proxy import FaultProxy

__all__ = ["ON_A_TABLE", "WRITES", "Doubt", "DoubtfulWrite"]

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class DoubtfulWrite:
    """A write, the rows before it and the rows after it."""

    data: pa.Table
    after: pa.Table
    before: pa.Table | None = field(default_factory=lambda: events(0, 1))
    options: dict[str, Any] = field(default_factory=lambda: {"mode": "append"})


_NEW = events(1, rows=4, note="v2")
WRITES = {
    "append": DoubtfulWrite(events(2), events(0, 1, 2)),
    "overwrite a slice": DoubtfulWrite(
        _NEW, pa.concat_tables([events(0), _NEW]), options={"mode": "overwrite", "slice": days(1)}
    ),
    "upsert": DoubtfulWrite(
        _NEW, pa.concat_tables([events(0), _NEW, events(1).slice(4)]), options={"mode": "upsert", "keys": ["id"]}
    ),
    "first write": DoubtfulWrite(
        events(0, 1), events(0, 1), before=None, options={"mode": "append", "partition_by": BY_DAY}
    ),
}
ON_A_TABLE = [how for how in WRITES if how != "first write"]


class Doubt:
    """One write by an engine to one table; `readers` read it afterwards."""

    def __init__(
        self, engine: Engine, table: TableIdentifier, how: str, readers: Sequence[Engine], **properties: str
    ) -> None:
        self.engine = engine
        self.tables = engine.lake.tables
        self.table = table
        self.case = WRITES[how]
        self._readers = readers
        if self.case.before is not None:
            self.tables.write_data(
                table, self.case.before, mode="append", partition_by=BY_DAY, properties=properties, write_id="before"
            )
        self.files = KeptFiles(self.tables, table)

    @contextmanager
    def faults(self, monkeypatch: pytest.MonkeyPatch, *script: Fault, outage: Outage | None = None) -> Iterator[None]:
        """Faults inside of this process's catalog."""
        looking = [self._remembering(fault) for fault in script]
        with faulty(self.tables.catalog_plugin.connect(), monkeypatch, *looking, outage=outage):
            yield

    @contextmanager
    def faults_of(self, proxy: FaultProxy, *script: ProxyFault, any_commit: bool = False) -> Iterator[None]:
        """Faults on the way to a REST catalog."""
        with proxy.faults(*(self._remembering(fault) for fault in script), any_commit=any_commit):
            yield

    def _remembering(self, fault: Callable[[T], R]) -> Callable[[T], R]:
        def remembered(send: T) -> R:
            with self.files.around():
                return fault(send)

        return remembered

    def write(self) -> SnapshotInfo:
        return self.engine.write(self.table, self.case.data, **self.case.options, write_id="doubtful")

    def forget_the_budget(self) -> None:
        """Make the table one that Floe did not create."""
        table = self.tables.load_table(self.table)
        with table.transaction() as transaction:
            transaction.remove_properties(*(name for name in table.properties if name.startswith("commit.retry.")))
        self.files.look()

    def assert_written_once(
        self, made: SnapshotInfo, *, others: int = 0, rows: pa.Table | None = None, cleaned: bool = False
    ) -> None:
        """The right rows once, in a table that is whole.

        Args:
            others: The snapshots that somebody else made.
            rows: What is there with theirs.
            cleaned: Whether files of attempts that were refused for certain may be gone.
        """
        expected = rows_of(self.case.after if rows is None else rows)
        for reader in self._readers:
            assert rows_of(reader.read(self.table)) == expected, reader.name
        table = self.tables.load_table(self.table)
        snapshots = [snapshot_info(one) for one in ancestors_of(table.current_snapshot(), table.metadata)]
        mine = [one.snapshot_id for one in snapshots if one.summary.get("floe.write-id") == "doubtful"]
        assert mine == [made.snapshot_id]
        assert len(snapshots) == 1 + others + (self.case.before is not None)
        assert {path for path in files_reached(table) if not path.is_file()} == set()
        assert cleaned or self.files.gone == set()
