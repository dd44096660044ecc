"""The rows in which two snapshots of a table differ: added, removed and changed, by partition and with examples."""

from floe_iceberg.comparison.compare import compare_rows
from floe_iceberg.comparison.result import (
    ChangedRow,
    FileChanges,
    KeyProblems,
    PartitionRows,
    RowExamples,
    TableComparison,
    ValueChange,
)

__all__ = [
    "ChangedRow",
    "FileChanges",
    "KeyProblems",
    "PartitionRows",
    "RowExamples",
    "TableComparison",
    "ValueChange",
    "compare_rows",
]
