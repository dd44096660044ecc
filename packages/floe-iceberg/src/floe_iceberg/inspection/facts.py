"""A described table as lines of text, for the terminal and for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from floe_core.formatting import counted, human_bytes, moment_text, printable

if TYPE_CHECKING:
    from floe_iceberg.inspection.description import PartitionField, Ref, SortedColumn, TableDescription, TableSummary

__all__ = ["facts_of", "partition_text", "ref_text", "rows_text", "size_text"]


def facts_of(described: TableDescription) -> Iterator[tuple[str, str]]:
    """What the metadata says about a table: the name of each fact, and its text."""
    summary, head = described.summary, described.current
    deletes = f" ({counted(summary.row_deletes, 'delete')} in delete files)" if summary.row_deletes else ""
    yield "rows", f"{rows_text(summary)}{deletes}"
    extra = f", {counted(summary.delete_files, 'delete file')}" if summary.delete_files else ""
    files = "-" if summary.files is None else counted(summary.files, "data file")
    yield "files", f"{files}{extra}, {size_text(summary.bytes)}"
    by = [_transformed(field) for field in described.partitioned_by if field.transform != "void"]
    earlier = described.earlier_partitionings
    older = f" (older files may have {counted(earlier, 'earlier partitioning')})" if earlier else ""
    yield "partitioned", f"{', '.join(by) or 'no'}{older}"
    yield "sorted", ", ".join(map(_order, described.sorted_by)) or "no"
    if head is None:
        yield "snapshot", "none yet"
    else:
        yield "snapshot", f"{head.snapshot_id}, {head.operation} at {moment_text(head.committed_at)} UTC"
    yield "history", counted(described.snapshots, "snapshot")
    others = [ref for ref in described.refs if ref.name != "main"]
    if others:
        yield "refs", "\n".join(map(ref_text, others))
    yield "changed", f"{moment_text(summary.last_change)} UTC"
    yield "location", described.location
    yield "format", f"Iceberg v{described.format_version}, uuid {described.uuid}"


def rows_text(summary: TableSummary) -> str:
    """The number of rows; an upper bound if delete files take some of them away."""
    if summary.rows is None:
        return "-"
    return f"<= {summary.rows:,}" if summary.row_deletes else f"{summary.rows:,}"


def size_text(size: int | None) -> str:
    """A size in bytes; a hyphen if it is unknown."""
    return "-" if size is None else human_bytes(size)


def ref_text(ref: Ref) -> str:
    """A branch or tag on one line."""
    kept = f", kept for {ref.max_age_days:g} days" if ref.max_age_days is not None else ""
    return f"{ref.type} {printable(ref.name)} at {ref.snapshot_id}{kept}"


def partition_text(partition: dict[str, str | None]) -> str:
    """A partition as one text, such as `day=2026-01-31`."""
    fields = [f"{name}={'null' if value is None else value}" for name, value in partition.items()]
    return "/".join(fields) or "-"


def _order(column: SortedColumn) -> str:
    return f"{_transformed(column)} {column.direction} {column.nulls}"


def _transformed(field: PartitionField | SortedColumn) -> str:
    column = field.column or "a dropped column"
    return column if field.transform == "identity" else f"{field.transform}({column})"
