"""What a write is asked to do, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import CommitStrategy, PartitionTransform, SnapshotInfo, WriteMode
from floe_core.telemetry import Operation, operation
from floe_iceberg.arguments import property_texts
from floe_iceberg.file_layout import MERGE_ENABLED, check_properties
from floe_iceberg.schema import SchemaChange

if TYPE_CHECKING:
    from floe_iceberg.tables import IcebergTableManager

__all__ = [
    "WriteRequest",
    "WriteResult",
    "check_branch",
    "check_table",
    "created_by_another",
    "refuse_strategy",
    "unmarked",
    "write_operation",
]


@dataclass(frozen=True)
class WriteRequest:
    """What is to be written where, and how.

    `slice` says where the rows of the data must lie, and which rows an overwrite replaces.
    """

    manager: IcebergTableManager
    identifier: TableIdentifier
    mode: WriteMode
    write_id: str
    summary: Mapping[str, str]
    slice: TableSlice | None = None
    overwrite_filter: str | BooleanExpression | None = None
    dynamic_partitions: bool = False
    keys: Sequence[str] = ()
    commit_strategy: CommitStrategy | None = None  # by default as quick as the engine has it
    branch: str = MAIN_BRANCH
    partition_by: Sequence[PartitionTransform] = ()
    properties: Mapping[str, str] | None = None
    validate_from: int | None = None
    evolve: bool = True
    allow_empty: bool = False
    truncate_nanoseconds: bool = False
    check: Callable[[Table], None] | None = None  # asked of the table that each attempt is committed to
    marks: Mapping[str, str] = field(default_factory=dict)  # table properties, set by the commit of the write itself
    sample_rows: int = 0  # as many of the rows are kept to be shown

    def __post_init__(self) -> None:
        chosen = [
            name
            for name, said in (
                ("slice", self.slice is not None),
                ("overwrite_filter", self.overwrite_filter is not None),
                ("dynamic_partitions", self.dynamic_partitions),
            )
            if said
        ]
        if self.properties is not None:
            object.__setattr__(self, "properties", property_texts(self.properties, "properties"))
        if len(chosen) > 1:
            raise ConfigurationError(f"{' and '.join(chosen)} exclude each other: say one of them")
        if chosen and chosen != ["slice"] and self.mode is not WriteMode.OVERWRITE:
            raise ConfigurationError(f"{chosen[0]} says what an overwrite replaces; mode is {self.mode.value}")
        if self.mode is WriteMode.UPSERT and not self.keys:
            raise ConfigurationError("an upsert replaces the rows whose keys it brings: say keys=[…]")
        if self.commit_strategy is not None and self.mode is not WriteMode.APPEND:
            raise ConfigurationError(f"commit_strategy is for appends; mode is {self.mode.value}")
        if self.keys and self.mode is not WriteMode.UPSERT:
            raise ConfigurationError(f"keys are for upserts; mode is {self.mode.value}")

    @property
    def new_table_properties(self) -> dict[str, str]:
        """The properties of the table, if the write creates it."""
        return {**(self.properties or {}), **self.marks}

    @property
    def replaces_all(self) -> bool:
        chosen = self.slice is not None or self.overwrite_filter is not None or self.dynamic_partitions
        return self.mode is WriteMode.OVERWRITE and not chosen


@dataclass(frozen=True)
class WriteResult:
    """The snapshot of a write, and what else happened."""

    snapshot: SnapshotInfo
    schema_change: SchemaChange
    created: bool = False
    deduplicated: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)  # in each state: validating, writing, …
    sample: pa.Table | None = None  # a few of the rows, where they came by in memory


def check_table(request: WriteRequest, table: Table) -> None:
    """Is the table still one that this write can go to? Its caller may know better."""
    check_properties(table.properties, request.identifier)
    refuse_strategy(request, table.properties)
    if request.check is not None:
        request.check(table)


def unmarked(request: WriteRequest, table: Table) -> dict[str, str]:
    """The marks of the write that the table does not have yet."""
    return {key: value for key, value in request.marks.items() if table.properties.get(key) != value}


def refuse_strategy(request: WriteRequest, properties: Mapping[str, str]) -> None:
    """A table may say that its manifests are never merged, and both engines obey it."""
    if request.commit_strategy is CommitStrategy.MERGE and properties.get(MERGE_ENABLED, "").lower() == "false":
        raise ConfigurationError(
            f"commit_strategy is merge, and '{request.identifier}' says {MERGE_ENABLED}=false; change one of them. "
            f"Nothing was written"
        )


def check_branch(table: Table | None, identifier: TableIdentifier, branch: str) -> None:
    """A branch is made before it is written to: an engine would begin a new one without the table's rows."""
    if branch == MAIN_BRANCH:
        return
    ref = table.metadata.refs.get(branch) if table is not None else None
    if ref is None:
        raise ConfigurationError(
            f"table '{identifier}' has no branch {branch!r}; make it first with create_branch. Nothing was written"
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
    """The span of a write: pending when it begins; failed, with the kind of error, where it does not commit."""
    name, table = f"iceberg.{request.mode.value}", str(request.identifier)
    with operation(name, table=table, engine=engine, slice=request.slice) as op:
        op.event("pending")
        try:
            yield op
        except BaseException as exc:
            op.event("failed", error=type(exc).__name__)
            raise
