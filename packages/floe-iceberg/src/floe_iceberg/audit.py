"""Write, audit, publish: rows on a branch of a table, checked there, and published as they were checked."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, Table

from floe_core.config import TableCheck, check_name
from floe_core.errors import CheckFailedError, ConcurrencyConflictError, ConfigurationError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import PartitionTransform, SnapshotInfo, WriteMode
from floe_core.observability import operation
from floe_core.plugins import ComputePlugin
from floe_iceberg.arguments import choice
from floe_iceberg.backoff import ATTEMPTS, delay
from floe_iceberg.checks import CheckedRows, CheckOutcome, run_checks
from floe_iceberg.manager import IcebergTableManager
from floe_iceberg.quarantine import Quarantine, moved_rows, with_moved_rows, write_quarantined
from floe_iceberg.query import QueryResult
from floe_iceberg.schema import refuse_early_columns, to_iceberg_schema, with_optional_columns
from floe_iceberg.snapshots import StagingBranch, run_branch, write_summary
from floe_iceberg.transactions import NewTable
from floe_iceberg.writing import Target, WriteRequest, WriteResult, source_of

__all__ = ["Draft", "audited"]


class _Lake(Protocol):
    @property
    def tables(self) -> IcebergTableManager: ...

    @property
    def compute(self) -> ComputePlugin: ...

    def read(self, identifier: TableIdentifier, **options: Any) -> Any: ...

    def write(self, frame: Any, identifier: TableIdentifier, **options: Any) -> Any: ...

    def write_request(self, frame: Any, request: WriteRequest, target: Target | None = None) -> WriteResult: ...

    def sql(self, query: str, *, engine: Any) -> QueryResult: ...


@dataclass
class Draft:
    """Rows of a table that only this draft shows, until they are published.

    Attributes:
        identifier: The table.
        branch: The branch with the rows.
        published: The snapshot that main is at since the publication; None before it.
    """

    identifier: TableIdentifier
    branch: str
    published: SnapshotInfo | None
    _lake: _Lake
    _run_id: str
    _early_columns: bool
    _keep: timedelta
    _one_by_one: bool = False
    _quarantine: Quarantine | None = None
    _moved: bool = False  # rows were moved to the quarantine table, or replaced there
    _writes: list[tuple[WriteMode, TableSlice | None]] = field(default_factory=list)
    _checks: list[tuple[Sequence[TableCheck], Any]] = field(default_factory=list)
    _checked: int | None = None  # the snapshot that all checks have passed on
    _refused: CheckFailedError | None = None
    _ended: bool = False

    def write(
        self,
        data: Any,
        mode: WriteMode | str,
        *,
        slice: TableSlice | None = None,  # noqa: A002 - Iceberg's noun; the builtin is not needed here
        partition_by: Sequence[PartitionTransform] = (),
        properties: Mapping[str, str] | None = None,
        **options: Any,
    ) -> SnapshotInfo:
        """Write rows to the draft; the table is created if it does not exist, and counts as absent until then.

        Args:
            data: What `IcebergTableManager.write_data` takes, or a Spark DataFrame.
            mode: `append`, `overwrite` or `upsert`.
            slice: The rows that an overwrite replaces.
            partition_by: The partitioning of the table, if it is created.
            properties: The properties of the table, if it is created.
            options: Other options of the write.
        """
        if self._ended:
            raise ConfigurationError(f"the draft of '{self.identifier}' has ended; begin another one with lake.audit")
        if {"branch", "overwrite_filter", "dynamic_partitions"} & options.keys():
            raise ConfigurationError("a draft is written to its own branch, as a whole table or by slice")
        is_spark = type(data).__module__.partition(".")[0] == "pyspark"
        tables, known = self._lake.tables, self._lake.tables.find_table(self.identifier)
        rows = data if is_spark else source_of(data)
        if self._quarantine is not None and not is_spark:
            rows = self._quarantine.without_null(rows)
        if self._writes and (known is None or self.branch not in known.metadata.refs):
            raise ConcurrencyConflictError(
                f"branch {self.branch!r} of '{self.identifier}' was removed with what was written to it; nothing is "
                f"published: run it again"
            )
        schema = self._schema_of(rows, known, is_spark=is_spark)
        if known is not None:
            evolve = bool(options.get("evolve", True))
            refuse_early_columns(
                known, self.identifier, schema, evolve=evolve, allowed=self._early_columns, how="early_columns=True"
            )
        new = NewTable(schema, tuple(partition_by), dict(properties or {}))
        staging = StagingBranch.of_run(self._run_id)
        table = tables.open_branch(self.identifier, staging, new, max_age=self._keep)
        chosen = choice(WriteMode, mode, "mode")
        options = {**options, "mode": chosen, "branch": self.branch, "slice": slice}
        if self._quarantine is not None:
            snapshot: SnapshotInfo = self._write_quarantined(rows, table, self._quarantine, options)
        elif is_spark:
            snapshot = self._lake.write(rows, self.identifier, **options).snapshot
        else:
            snapshot = tables.write_data(self.identifier, rows, **options)
        self._writes.append((chosen, slice))
        return snapshot

    def _write_quarantined(
        self, rows: Any, table: Table, quarantine: Quarantine, options: Mapping[str, Any]
    ) -> SnapshotInfo:
        write_id = options.get("write_id") or uuid.uuid4().hex
        summary = write_summary(write_id, options.get("snapshot_properties"))
        given = {name: value for name, value in options.items() if name not in ("write_id", "snapshot_properties")}
        request = WriteRequest(identifier=self.identifier, write_id=write_id, summary=summary, **given)
        result, moved = write_quarantined(self._lake, request, rows, table, quarantine)
        self._moved = self._moved or moved.snapshot_id is not None
        return result.snapshot

    def _schema_of(self, rows: Any, known: Table | None, *, is_spark: bool) -> Schema:
        if is_spark:
            return with_optional_columns(self._lake.compute.schema_of(rows))
        return to_iceberg_schema(rows.schema_for(known.schema() if known is not None else None))

    def scan(self, **options: Any) -> DataScan:
        """The table as the draft shows it, in Arrow.

        Args:
            options: The options of `IcebergTableManager.scan`.
        """
        return self._lake.tables.scan(self.identifier, ref=self.branch, **options)

    def read(self, **options: Any) -> Any:
        """The table as the draft shows it, as a lazy Spark DataFrame.

        Args:
            options: The options of `Lake.read`.
        """
        return self._lake.read(self.identifier, ref=self.branch, **options)

    def check(self, checks: Sequence[TableCheck], *, engine: str | None = None) -> list[CheckOutcome]:
        """Check the draft; CheckFailedError if a check fails that is not a warning, and nothing is published then.

        Args:
            checks: The checks. Those with the scope `slice` look at the slices that were written.
            engine: `duckdb` or `spark`. By default Spark if its session is running.
        """
        self._checks.append((tuple(checks), engine))
        return self._outcomes(checks, engine)

    def _outcomes(self, checks: Sequence[TableCheck], engine: str | None) -> list[CheckOutcome]:
        table = self._lake.tables.load_table(self.identifier)
        head = table.snapshot_by_name(self.branch)
        if head is None:
            raise ConfigurationError(f"nothing was written to the draft of '{self.identifier}' yet; write to it first")
        rows = CheckedRows(self.identifier, table, head.snapshot_id, within=self._within())
        outcomes = self._with_moved_rows(checks, run_checks(self._lake, checks, rows, other=self._other, engine=engine))
        failed = [f"{one.name}: {one.message}" for one in outcomes if one.stops]
        if failed:
            self._refused = CheckFailedError(
                f"'{self.identifier}' is not published, because {'; '.join(failed)}. What was written is on branch "
                f"{self.branch!r}",
                outcomes,
            )
            raise self._refused
        self._checked = head.snapshot_id
        return outcomes

    def _with_moved_rows(self, checks: Sequence[TableCheck], outcomes: Sequence[CheckOutcome]) -> list[CheckOutcome]:
        """The outcomes, with the rows that writes have moved because of checks with a quarantine."""
        moving = {check_name(check) for check in checks if check.quarantine}
        declared = {check_name(check) for check in self._quarantine.checks} if self._quarantine is not None else set()
        if moving - declared:
            raise ConfigurationError(
                f"{', '.join(sorted(moving - declared))}: rows are moved when they are written, so the draft must know "
                f"the check before: lake.audit('{self.identifier}', quarantine=[...])"
            )
        if self._quarantine is None or not moving:
            return list(outcomes)
        tables = self._lake.tables
        moved = moved_rows(tables, self._quarantine.table, self.branch)
        return [with_moved_rows(tables, one, moved) if one.name in moving else one for one in outcomes]

    def _other(self, identifier: TableIdentifier) -> CheckedRows:
        table = self._lake.tables.load_table(identifier)
        head = table.snapshot_by_name(self.branch) or table.current_snapshot()
        return CheckedRows(identifier, table, None if head is None else head.snapshot_id)

    def _within(self) -> TableSlice | None:
        """The slices that were written; None if a write had none."""
        slices = [None if mode is WriteMode.UPSERT else one for mode, one in self._writes]  # finds keys anywhere
        if not slices or any(one is None for one in slices):
            return None
        return TableSlice.union(part for one in slices if one is not None for part in one.parts)

    def publish(self) -> None:
        """Publish what was checked; if main has moved in other slices only, on top of that, checked again.

        CheckFailedError if a check has failed. Rows that were written after a check are checked first.
        """
        if self._refused is not None:
            raise self._refused
        if not self._writes:
            return
        self._check_all()
        mode = WriteMode.APPEND if all(one is WriteMode.APPEND for one, _ in self._writes) else WriteMode.OVERWRITE
        tables, branches = self._lake.tables, [self.identifier]
        if self._quarantine is not None and self._moved:
            branches.append(self._quarantine.table)
        for number in itertools.count(1):
            try:
                published = tables.publish(dict.fromkeys(branches, self.branch), one_by_one=self._one_by_one)
                self.published = published[self.identifier]
            except ConcurrencyConflictError:
                if number >= ATTEMPTS:
                    raise
            else:
                return
            if number > 1:
                time.sleep(delay(number))
            for table in branches:
                tables.replay_branch(table, self.branch, mode=mode, within=self._within())
            self._check_all()

    def _check_all(self) -> None:
        """Run all checks, unless they have passed on what the branch shows now."""
        head = self._lake.tables.load_table(self.identifier).snapshot_by_name(self.branch)
        if head is not None and head.snapshot_id != self._checked:
            for checks, engine in self._checks:
                self._outcomes(checks, engine)


@contextmanager
def audited(
    lake: _Lake,
    identifier: TableIdentifier,
    *,
    early_columns: bool,
    keep: timedelta,
    quarantine: Sequence[TableCheck] = (),
    one_by_one: bool = False,
) -> Iterator[Draft]:
    """A draft of a table that is published at the end of the block, unless the block raises.

    Args:
        lake: The lake.
        identifier: The table.
        early_columns: Let the draft change the columns of the table before it is published.
        keep: The age at which expiry removes the branch of a draft that was not published.
        quarantine: Checks that move the rows which break them to a table of their own when they are written.
        one_by_one: On a catalog server that cannot commit two tables at once, commit them one after the other.
    """
    run_id = str(uuid.uuid4())
    moving = None
    if quarantine:
        moving = Quarantine.of_draft(lake.tables, identifier, quarantine, run_id, keep, one_by_one=one_by_one)
    draft = Draft(identifier, run_branch(run_id), None, lake, run_id, early_columns, keep, one_by_one, moving)
    with operation("iceberg.audit", table=str(identifier)) as op:
        try:
            yield draft
        finally:
            draft._ended = True  # noqa: SLF001 - of this module
        draft.publish()
        op.set(published=draft.published is not None)
