"""Data models of tables, snapshots and writes."""

from __future__ import annotations

from datetime import datetime, timezone
from enum import Enum
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import Self

from floe_core.formatting import moment_text
from floe_core.notebooks import facts_html

__all__ = [
    "CommitStrategy",
    "MaterializationMetadata",
    "NamespaceInfo",
    "PartitionTransform",
    "PartitionTransformType",
    "SchemaDrift",
    "SnapshotInfo",
    "SortField",
    "StorageErrorDetail",
    "WriteMode",
]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class WriteMode(str, Enum):
    """How a write treats the rows that the table already has.

    `APPEND` keeps them. `OVERWRITE` replaces all of them, or those that a slice, a filter or the partitions of the
    data select. `UPSERT` replaces the rows whose keys are in the data and adds the other rows of the data.

    Example:
        >>> from floe_core import WriteMode
        >>> WriteMode("upsert") is WriteMode.UPSERT
        True
    """

    APPEND = "append"
    OVERWRITE = "overwrite"
    UPSERT = "upsert"


class CommitStrategy(str, Enum):
    """How an append treats the manifests that the table already has.

    `FAST_APPEND` leaves them as they are: a quick commit. `MERGE` merges small ones: fewer manifests to read later.

    Example:
        >>> from floe_core import CommitStrategy
        >>> snapshot = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), "append", CommitStrategy.MERGE)
        >>> snapshot.count("added-records")
        2
    """

    FAST_APPEND = "fast_append"
    MERGE = "merge"


class PartitionTransformType(str, Enum):
    """The partition transforms of Iceberg's specification.

    Example:
        >>> from floe_core import PartitionTransform, PartitionTransformType
        >>> by_day = PartitionTransform(source_column="ordered_at", transform_type=PartitionTransformType.DAY)
        >>> schema = pa.schema([("ordered_at", pa.timestamp("us", "UTC"))])
        >>> [field.name for field in tables.create_table("bronze.orders", schema, partition_by=[by_day]).spec().fields]
        ['ordered_at_day']
    """

    IDENTITY = "identity"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    BUCKET = "bucket"
    TRUNCATE = "truncate"


class PartitionTransform(_Record):
    """One field of a partition spec: a column, and how its values become partition values.

    Args:
        source_column: The column to partition by.
        transform_type: The transform, as a PartitionTransformType or by its name, such as `day`.
        num_buckets: The number of buckets; required for `bucket`.
        width: The number of characters, or the width of the ranges of numbers; required for `truncate`.
        name: The name of the partition field. By default the name that Spark would give it.

    Example:
        >>> from floe_core import PartitionTransform
        >>> PartitionTransform(source_column="ordered_at", transform_type="day").field_name
        'ordered_at_day'
        >>> PartitionTransform(source_column="id", transform_type="bucket", num_buckets=16).field_name
        'id_bucket'
    """

    source_column: str
    transform_type: PartitionTransformType
    num_buckets: int | None = Field(default=None, ge=1)
    width: int | None = Field(default=None, ge=1)
    name: str | None = None

    @model_validator(mode="after")
    def _check_arguments(self) -> Self:
        if self.transform_type is PartitionTransformType.BUCKET and self.num_buckets is None:
            raise ValueError("a bucket transform needs num_buckets")
        if self.transform_type is PartitionTransformType.TRUNCATE and self.width is None:
            raise ValueError("a truncate transform needs width")
        return self

    @property
    def field_name(self) -> str:
        """The name given, or the one Spark would give: `at_day`, `id_bucket`, `note_trunc`."""
        if self.name is not None:
            return self.name
        suffix = {"identity": "", "truncate": "_trunc"}.get(self.transform_type.value, f"_{self.transform_type.value}")
        return f"{self.source_column}{suffix}"


class SortField(_Record):
    """One column of a sort order."""

    column: str
    descending: bool = False
    nulls_last: bool = False


class NamespaceInfo(_Record):
    """A namespace, its properties and the names of its tables."""

    name: str
    properties: dict[str, str] = Field(default_factory=dict)
    tables: tuple[str, ...] = ()


class SnapshotInfo(_Record):
    """One version of a table."""

    notebook_fields: ClassVar = ("timestamp", "snapshot_id", "operation", "parent_snapshot_id", "summary")

    snapshot_id: int
    timestamp_ms: int
    operation: str
    summary: dict[str, str] = Field(default_factory=dict)
    parent_snapshot_id: int | None = None

    @property
    def timestamp(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp_ms / 1000, tz=timezone.utc)

    def _repr_html_(self) -> str:
        facts = {"committed at": f"{moment_text(self.timestamp)} UTC", "operation": self.operation, **self.summary}
        return facts_html(f"snapshot {self.snapshot_id}", facts.items())

    def count(self, key: str) -> int:
        """A count in the summary, such as `added-records`; 0 if absent."""
        return int(self.summary.get(key, "0"))


class MaterializationMetadata(_Record):
    """What one materialization wrote; `snapshot_id` is None only if nothing was committed."""

    table: str
    num_rows: int = Field(ge=0)
    snapshot_id: int | None
    write_mode: WriteMode
    partition_key: str | None = None
    schema_evolved: bool = False


class SchemaDrift(_Record):
    """How a table differs from its declared schema; empty if it does not."""

    added: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    narrowed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    nullability: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.added, self.missing, self.widened, self.narrowed, self.changed, self.nullability))


class StorageErrorDetail(_Record):
    """A failure as data for the log, separate from the message for users."""

    error_type: str
    operation: str
    table: str | None = None
    namespace: str | None = None
    message: str
    retryable: bool = False
    retry_count: int = Field(default=0, ge=0)
