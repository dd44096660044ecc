"""Compute statistics: how many distinct values each column has, for engines that plan joins by it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.types import PrimitiveType

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance import StatisticsReport
from floe_core.observability import operation
from floe_iceberg.catalogs import refuse_commits_by_spark
from floe_iceberg.files import canonical
from floe_iceberg.schema import no_column
from floe_spark.maintenance.calls import call, text_sql

if TYPE_CHECKING:
    from floe_iceberg.lake import Lake

__all__ = ["compute_statistics"]


def compute_statistics(lake: Lake, identifier: TableIdentifier, *, columns: Sequence[str] = ()) -> StatisticsReport:
    """Compute statistics of all columns that support them, or of the given ones."""
    began = time.perf_counter()
    with operation("iceberg.compute_statistics", table=str(identifier), columns=columns) as op:
        before = lake.tables.load_table(identifier)
        lake.tables.refuse_moved(before, identifier)
        refuse_commits_by_spark(before, identifier)
        unknown = no_column(columns, before.schema())
        if unknown:
            raise ConfigurationError(f"columns: '{identifier}' has {unknown}. Nothing was counted")
        report = StatisticsReport(table=str(identifier))
        head = before.current_snapshot()
        if head is None or not any(isinstance(field.field_type, PrimitiveType) for field in before.schema().fields):
            return report
        arguments = {"snapshot_id": f"{head.snapshot_id}L"}
        if columns:
            arguments["columns"] = f"array({', '.join(text_sql(column) for column in columns)})"
        rows = call(lake, "compute_table_stats", identifier, arguments)
        path = rows[0]["statistics_file"] if rows else None
        if path is None:
            return report.model_copy(update={"seconds": time.perf_counter() - began})
        after = lake.tables.load_table(identifier)
        listed = [file for file in after.metadata.statistics if file.snapshot_id == head.snapshot_id]
        if (
            canonical(path) not in {canonical(file.statistics_path) for file in listed}
            or not after.io.new_input(path).exists()
        ):
            raise FloeStorageError(
                f"compute_table_stats reported {path} for '{identifier}', but the table does not list it or the file "
                f"does not exist; run it again"
            )
        op.set(snapshot_id=head.snapshot_id)
        made = {"snapshot_id": head.snapshot_id, "path": path, "seconds": time.perf_counter() - began}
        return report.model_copy(update=made)
