"""The metadata of a materialization in Dagster: what was written, where, and a preview."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from dagster import MetadataValue, TableColumn, TableColumnConstraints, TableSchema
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table

from floe_core.formatting import markdown_table
from floe_core.models import MaterializationMetadata, SnapshotInfo, WriteMode
from floe_core.observability import warn
from floe_dagster.assets.declared_schema import declared_columns
from floe_dagster.assets.options import OutputOptions
from floe_dagster.runs.steps import partition_label
from floe_iceberg.expressions import slice_filter
from floe_iceberg.reading import scan
from floe_iceberg.snapshots import DATA_ROWS, INPUTS, WRITE_ID
from floe_iceberg.writing import WriteRequest, WriteResult

__all__ = ["STORAGE_KIND", "describe", "sensitive_columns"]

STORAGE_KIND = "iceberg"

_SCHEMA = "dagster/column_schema"
_SENSITIVE = "sensitive"


def describe(
    request: WriteRequest,
    result: WriteResult,
    *,
    options: OutputOptions,
    declared: Mapping[str, Any],
    keys: Sequence[str],
) -> dict[str, Any]:
    """The metadata of one materialization, under Dagster's own keys where it has one."""
    began = time.perf_counter()
    snapshot, identifier, table = result.snapshot, request.identifier, result.table
    inside = slice_filter(request.slice, table.schema()) if request.slice is not None else None
    rows, rewritten = _rows(table, request, snapshot, inside)
    facts = MaterializationMetadata(
        table=str(identifier),
        num_rows=rows,
        snapshot_id=snapshot.snapshot_id,
        write_mode=request.mode,
        partition_key=partition_label(keys),
        schema_evolved=bool(result.schema_change),
    )
    known = declared_columns(declared)
    hidden = sensitive_columns(options, declared)
    shown = [field.name for field in table.schema().fields if field.name.lower() not in hidden]
    preview = markdown_table(_first_rows(table, request, result, inside, shown), shown)
    described: dict[str, Any] = {
        **_row_count(table, request, snapshot, inside, keys),
        "dagster/table_name": facts.table,
        "dagster/storage_kind": STORAGE_KIND,
        "dagster/uri": table.location(),
        _SCHEMA: TableSchema(
            columns=[
                _column(field.name, str(field.field_type), field.required, known) for field in table.schema().fields
            ]
        ),
        # As text: snapshot ids exceed the precision of JavaScript numbers.
        "floe/snapshot_id": MetadataValue.text(str(facts.snapshot_id)),
        "floe/parent_snapshot_id": MetadataValue.text(str(snapshot.parent_snapshot_id or "none")),
        "floe/committed_at": MetadataValue.timestamp(snapshot.timestamp_ms / 1000),
        "floe/table_uuid": str(table.metadata.table_uuid),
        "floe/branch": request.branch,
        "floe/operation": snapshot.operation,
        "floe/write_mode": facts.write_mode.value,
        "floe/write_id": snapshot.summary.get(WRITE_ID, ""),
        "floe/rows_added": facts.num_rows,
        "floe/rows_rewritten": rewritten,
        "floe/rows_removed": max(0, snapshot.count("deleted-records") - rewritten),
        "floe/files_added": snapshot.count("added-data-files"),
        "floe/files_removed": snapshot.count("deleted-data-files"),
        "floe/bytes_added": snapshot.count("added-files-size"),
        "floe/bytes_removed": snapshot.count("removed-files-size"),
        "floe/schema_evolved": facts.schema_evolved,
        "floe/deduplicated": result.deduplicated,
    }
    described |= {
        key: value
        for key, value in (
            ("floe/schema_change", str(result.schema_change)),
            ("floe/partitions", facts.partition_key),
            ("floe/input_snapshots", snapshot.summary.get(INPUTS)),
            ("floe/preview", MetadataValue.md(preview) if preview else None),
        )
        if value
    }
    seconds = {**result.seconds, "describing": time.perf_counter() - began}
    for moment in ("pending", "committed"):  # they mark the start and the end
        seconds.pop(moment, None)
    described["floe/seconds"] = MetadataValue.json({name: round(duration, 3) for name, duration in seconds.items()})
    return described


def _rows(
    table: Table, request: WriteRequest, snapshot: SnapshotInfo, inside: BooleanExpression | None
) -> tuple[int, int]:
    """The number of rows in the data, and of other rows that the commit rewrote because they shared files."""
    added = snapshot.count("added-records")
    if DATA_ROWS in snapshot.summary:
        rows = snapshot.count(DATA_ROWS)
    elif inside is not None and request.mode is WriteMode.OVERWRITE and snapshot.count("deleted-records"):
        rows = _count_inside(table, request, snapshot, inside)  # the slice holds exactly the rows of the data
    else:
        rows = added
    return rows, max(0, added - rows)


def _count_inside(table: Table, request: WriteRequest, snapshot: SnapshotInfo, inside: BooleanExpression) -> int:
    columns = request.slice.columns if request.slice is not None else None
    return scan(table, request.identifier, columns=columns, row_filter=inside, snapshot_id=snapshot.snapshot_id).count()


def sensitive_columns(options: OutputOptions, declared: Mapping[str, Any]) -> set[str]:
    """The columns that are never shown, in lower case: those in the options, and those tagged as sensitive."""
    tagged = [
        name
        for name, column in declared_columns(declared).items()
        if _SENSITIVE in {tag.lower() for tag in column.tags}
    ]
    named = [name.lower() for name in (*options.sensitive_columns, *tagged)]
    return {*named, *(name.partition(".")[0] for name in named)}  # a struct with a sensitive field is hidden as a whole


def _column(name: str, kind: str, required: bool, known: Mapping[str, TableColumn]) -> TableColumn:
    declared = known.get(name.lower())
    return TableColumn(
        name,
        kind,
        description=declared.description if declared else None,
        constraints=TableColumnConstraints(nullable=not required),
        tags=declared.tags if declared else None,
    )


def _row_count(
    table: Table,
    request: WriteRequest,
    snapshot: SnapshotInfo,
    inside: BooleanExpression | None,
    keys: Sequence[str],
) -> dict[str, int]:
    """Dagster's own key for the number of rows; omitted for several partitions, where only the sum is known.

    Counted in the table: the rows added by a commit may include rewritten rows of other partitions.
    """
    if inside is None:
        return {"dagster/row_count": snapshot.count("total-records")}
    if len(keys) > 1:
        return {}
    return {"dagster/partition_row_count": _count_inside(table, request, snapshot, inside)}


def _first_rows(
    table: Table,
    request: WriteRequest,
    result: WriteResult,
    inside: BooleanExpression | None,
    shown: Sequence[str],
) -> list[dict[str, Any]]:
    """The first rows written: sampled during the write, or read from the table."""
    rows = request.sample_rows
    if not rows or not shown:
        return []
    if result.sample is not None:
        present = [name for name in shown if name in result.sample.column_names]
        sampled: list[dict[str, Any]] = result.sample.select(present).slice(0, rows).to_pylist()
        return sampled
    try:
        # Not traced: the asset itself read nothing, and all entry points emit the same spans.
        preview = scan(
            table,
            request.identifier,
            columns=shown,
            row_filter=inside,
            snapshot_id=result.snapshot.snapshot_id,
            limit=rows,
            traced=False,
        )
        read: list[dict[str, Any]] = preview.to_arrow().to_pylist()
    except Exception as exc:  # noqa: BLE001 - the rows are committed: a failed preview must not fail the step
        warn("no preview", table=str(request.identifier), reason=str(exc))
        return []
    return read
