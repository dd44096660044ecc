"""What a table holds, by its metadata: schema, history, files, partitions, and how two snapshots differ."""

from floe_iceberg.inspection.comparison import ColumnChange, PartitionChange, SnapshotDiff, column_changes
from floe_iceberg.inspection.description import (
    Column,
    PartitionField,
    Ref,
    SortedColumn,
    TableDescription,
    TableSummary,
)
from floe_iceberg.inspection.facts import facts_of, partition_text, ref_text, rows_text, size_text
from floe_iceberg.inspection.files import FileEntry, FileListing, Partition
from floe_iceberg.inspection.history import Commit
from floe_iceberg.inspection.listing import summarize_each
from floe_iceberg.inspection.names import similar
from floe_iceberg.inspection.replacement import ReplacedRows, replaced_rows
from floe_iceberg.inspection.rollback import RollbackPlan

__all__ = [
    "Column",
    "ColumnChange",
    "Commit",
    "FileEntry",
    "FileListing",
    "Partition",
    "PartitionChange",
    "PartitionField",
    "Ref",
    "ReplacedRows",
    "RollbackPlan",
    "SnapshotDiff",
    "SortedColumn",
    "TableDescription",
    "TableSummary",
    "column_changes",
    "facts_of",
    "partition_text",
    "ref_text",
    "replaced_rows",
    "rows_text",
    "similar",
    "size_text",
    "summarize_each",
]
