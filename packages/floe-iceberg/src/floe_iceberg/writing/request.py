"""The request of a write, its target and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import CommitStrategy, PartitionTransform, SnapshotInfo, WriteMode
from floe_core.observability import Operation, operation, warn
from floe_iceberg.arguments import property_texts
from floe_iceberg.schema.evolution import SchemaChange
from floe_iceberg.schema.types import places_of
from floe_iceberg.snapshots.snapshots import MODE, SLICE, UPSERTS
from floe_iceberg.writing.file_layout import MERGE_ENABLED, check_properties

__all__ = [
    "Committed",
    "Target",
    "WriteRequest",
    "WriteResult",
    "check_branch",
    "check_table",
    "created_by_another",
    "refuse_strategy",
    "report_missing_columns",
    "unmarked",
    "write_operation",
]


# The length of the longest slice that a summary holds.
_LONGEST_SLICE = 4_000


@dataclass(frozen=True)
class WriteRequest:
    """A write as data: the table, the mode and the options. `IcebergTableManager.write` and Spark both take it.

    At most one of `slice`, `overwrite_filter` and `dynamic_partitions` may be given.

    Args:
        identifier: The table.
        mode: How the write treats the rows that the table already has.
        write_id: The identity of the write. A write whose id is in the history of its branch is not repeated.
        summary: The properties of the snapshot summary, as `floe_iceberg.snapshots.write_summary` makes them.
        slice: The rows that the write may touch. Rows of the data outside of it are refused, and an overwrite replaces
            exactly the slice.
        overwrite_filter: The rows that an overwrite replaces, as a filter.
        dynamic_partitions: An overwrite replaces the partitions that the data has rows for.
        keys: The key columns of an upsert.
        commit_strategy: How an append treats manifests. By default the engine decides.
        branch: The target branch.
        partition_by: The partitioning of the table, if the write creates it.
        properties: The properties of the table, if the write creates it.
        validate_from: The snapshot that the data was computed from. Changes since then to the rows that are replaced
            are a conflict.
        evolve: Add missing columns to the table, and widen types.
        allow_empty: Allow an overwrite of the whole table without rows.
        truncate_nanoseconds: Truncate timestamps to microseconds.
        early_columns: Let a write to a branch of the lake change columns, which readers of main then see.
        check: Called with the table that each attempt commits to; it refuses the table by raising.
        marks: Table properties that the commit of the write sets.
        sample_rows: The maximum number of rows to keep in `WriteResult.sample`.

    Example:
        >>> from floe_core import TableIdentifier, WriteMode
        >>> from floe_iceberg import WriteRequest
        >>> from floe_iceberg.snapshots import write_summary
        >>> request = WriteRequest(
        ...     identifier=TableIdentifier.from_string("bronze.orders"),
        ...     mode=WriteMode.APPEND,
        ...     write_id="load-2026-01-01",
        ...     summary=write_summary("load-2026-01-01"),
        ... )
        >>> tables.write(request, pa.table({"id": [1, 2]})).created
        True
        >>> tables.write(request, pa.table({"id": [1, 2]})).deduplicated
        True
    """

    identifier: TableIdentifier
    mode: WriteMode
    write_id: str
    summary: Mapping[str, str]
    slice: TableSlice | None = None
    overwrite_filter: str | BooleanExpression | None = None
    dynamic_partitions: bool = False
    keys: Sequence[str] = ()
    commit_strategy: CommitStrategy | None = None  # by default the engine's fastest
    branch: str = MAIN_BRANCH
    partition_by: Sequence[PartitionTransform] = ()
    properties: Mapping[str, str] | None = None
    validate_from: int | None = None
    evolve: bool = True
    allow_empty: bool = False
    truncate_nanoseconds: bool = False
    early_columns: bool = False
    check: Callable[[Table], None] | None = None  # called with the table that each attempt commits to
    marks: Mapping[str, str] = field(default_factory=dict)  # table properties, set by the commit of the write itself
    sample_rows: int = 0  # how many of the rows the result shows

    def __post_init__(self) -> None:
        chosen = [
            name
            for name, is_set in (
                ("slice", self.slice is not None),
                ("overwrite_filter", self.overwrite_filter is not None),
                ("dynamic_partitions", self.dynamic_partitions),
            )
            if is_set
        ]
        if self.properties is not None:
            object.__setattr__(self, "properties", property_texts(self.properties, "properties"))
        if len(chosen) > 1:
            raise ConfigurationError(f"{' and '.join(chosen)} are mutually exclusive: set one of them")
        if chosen and chosen != ["slice"] and self.mode is not WriteMode.OVERWRITE:
            raise ConfigurationError(f"{chosen[0]} selects what an overwrite replaces; mode is {self.mode.value}")
        if self.mode is WriteMode.UPSERT and not self.keys:
            raise ConfigurationError("an upsert replaces rows by key: set keys=[…]")
        if self.commit_strategy is not None and self.mode is not WriteMode.APPEND:
            raise ConfigurationError(f"commit_strategy is for appends; mode is {self.mode.value}")
        if self.keys and self.mode is not WriteMode.UPSERT:
            raise ConfigurationError(f"keys are for upserts; mode is {self.mode.value}")
        if self.mode is WriteMode.UPSERT:
            object.__setattr__(self, "summary", {**self.summary, UPSERTS: "true"})
        if self.branch != MAIN_BRANCH:  # its publication on top of other commits asks what it replaces
            others = {key: value for key, value in self.summary.items() if key not in (MODE, SLICE)}
            object.__setattr__(self, "summary", {**others, **self._replaces()})

    def _replaces(self) -> dict[str, str]:
        """What the write replaces, for the summary; without a slice, or if that is long, it is the whole table."""
        within = "" if self.slice is None else self.slice.model_dump_json()
        return {MODE: self.mode.value, **({SLICE: within} if 0 < len(within) <= _LONGEST_SLICE else {})}

    @property
    def new_table_properties(self) -> dict[str, str]:
        """The properties of the table, if the write creates it."""
        return {**(self.properties or {}), **self.marks}

    @property
    def replaces_all(self) -> bool:
        chosen = self.slice is not None or self.overwrite_filter is not None or self.dynamic_partitions
        return self.mode is WriteMode.OVERWRITE and not chosen


@dataclass(frozen=True)
class Target:
    """The table of a write as its caller loaded it just before; None if it does not exist."""

    table: Table | None


@dataclass(frozen=True)
class Committed:
    """The snapshot of a write, and the table as the commit left it."""

    snapshot: SnapshotInfo
    table: Table


@dataclass(frozen=True)
class WriteResult:
    """The result of a write.

    Attributes:
        snapshot: The snapshot that the write committed.
        table: The table as the commit left it.
        schema_change: The columns that were added, widened or made optional.
        created: The write created the table.
        deduplicated: The write id was in the history of the branch, so nothing was written again.
        seconds: The duration of each state of the write, such as `validating` and `writing`.
        sample: The first rows of the data, if the request asks for them and they were in memory.

    Example:
        >>> from floe_core import TableIdentifier, WriteMode
        >>> from floe_iceberg import WriteRequest
        >>> from floe_iceberg.snapshots import write_summary
        >>> orders = TableIdentifier.from_string("bronze.orders")
        >>> request = WriteRequest(orders, WriteMode.APPEND, "first", write_summary("first"))
        >>> result = tables.write(request, pa.table({"id": [1, 2]}))
        >>> result.created, result.snapshot.count("added-records")
        (True, 2)
    """

    snapshot: SnapshotInfo
    table: Table
    schema_change: SchemaChange
    created: bool = False
    deduplicated: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)  # in each state: validating, writing, …
    sample: pa.Table | None = None  # a few of the rows, if they passed through memory


def check_table(request: WriteRequest, table: Table) -> None:
    """Refuse a table whose properties, or the caller's own check, rule this write out."""
    check_properties(table.properties, request.identifier)
    refuse_strategy(request, table.properties)
    if request.check is not None:
        request.check(table)


def report_missing_columns(request: WriteRequest, table: Schema, data: Schema) -> None:
    """Log a warning if new rows have NULL in columns of the table that the data does not have.

    Not for an upsert: it changes the columns that it is given.
    """
    if request.mode is WriteMode.UPSERT:
        return
    places = places_of([column.name for column in data.fields], [column.name for column in table.fields])
    missing = [column.name for place, column in zip(places, table.fields, strict=True) if place is None]
    if missing:
        warn("the data lacks columns of the table, which are NULL", table=str(request.identifier), columns=missing)


def unmarked(request: WriteRequest, table: Table) -> dict[str, str]:
    """The marks of the write that the table does not have yet."""
    return {key: value for key, value in request.marks.items() if table.properties.get(key) != value}


def refuse_strategy(request: WriteRequest, properties: Mapping[str, str]) -> None:
    """Refuse to merge manifests of a table whose properties forbid it; both engines obey them."""
    if request.commit_strategy is CommitStrategy.MERGE and properties.get(MERGE_ENABLED, "").lower() == "false":
        raise ConfigurationError(
            f"commit_strategy is merge, and '{request.identifier}' sets {MERGE_ENABLED}=false; change one of them. "
            f"Nothing was written"
        )


def check_branch(table: Table | None, identifier: TableIdentifier, branch: str) -> None:
    """Refuse a branch that does not exist: an engine would create it without the table's rows."""
    if branch == MAIN_BRANCH:
        return
    ref = table.metadata.refs.get(branch) if table is not None else None
    if ref is None:
        raise ConfigurationError(
            f"table '{identifier}' has no branch {branch!r}; create it first with create_branch. Nothing was written"
        )
    if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        raise ConfigurationError(f"{branch!r} is a tag of '{identifier}', not a branch, and cannot be written to")


def created_by_another(identifier: TableIdentifier) -> ConcurrencyConflictError:
    """The error for a first write that would replace rows of a table which another writer has created."""
    return ConcurrencyConflictError(
        f"'{identifier}' was created by another writer during this write; nothing was written: run it again"
    )


@contextmanager
def write_operation(request: WriteRequest, engine: str) -> Iterator[Operation]:
    """The span of a write: event `pending` at its start; `failed`, with the error type, if it does not commit."""
    name, table = f"iceberg.{request.mode.value}", str(request.identifier)
    with operation(name, table=table, engine=engine, slice=request.slice) as op:
        op.event("pending")
        try:
            yield op
        except BaseException as exc:
            op.event("failed", error=type(exc).__name__)
            raise
