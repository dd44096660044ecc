"""Rewrite manifests: the same files, listed in fewer manifests."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import Operation

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance import ManifestsReport
from floe_core.observability import operation
from floe_iceberg.catalogs import refuse_commits_by_spark
from floe_iceberg.snapshots import ancestors_of
from floe_spark.maintenance.calls import again_on_conflict, call

if TYPE_CHECKING:
    from floe_iceberg.lake import Lake

__all__ = ["rewrite_manifests"]


def rewrite_manifests(lake: Lake, identifier: TableIdentifier) -> ManifestsReport:
    """List the same files in fewer manifests, for each partition spec of the table."""
    began = time.perf_counter()
    with operation("iceberg.rewrite_manifests", table=str(identifier)) as op:
        report = ManifestsReport(table=str(identifier))
        table = lake.tables.load_table(identifier)
        lake.tables.refuse_moved(table, identifier)
        refuse_commits_by_spark(table, identifier)
        head = table.current_snapshot()
        counted = (
            Counter(file.partition_spec_id for file in head.manifests(table.io)) if head is not None else Counter()
        )
        for spec_id, number in sorted(counted.items()):
            if number > 1:
                report = _rewritten(lake, identifier, spec_id, report)
        op.set(rewritten=report.rewritten, added=report.added)
        return report.model_copy(update={"seconds": time.perf_counter() - began})


def _rewritten(lake: Lake, identifier: TableIdentifier, spec_id: int, report: ManifestsReport) -> ManifestsReport:
    for attempt in again_on_conflict():
        with attempt:
            head = lake.tables.load_table(identifier).current_snapshot()
            (row,) = call(lake, "rewrite_manifests", identifier, {"spec_id": str(spec_id)})
    rewritten, added = row["rewritten_manifests_count"], row["added_manifests_count"]
    if not rewritten:
        return report
    after = lake.tables.load_table(identifier)
    for snapshot in ancestors_of(after.current_snapshot(), after.metadata):
        if head is not None and snapshot.snapshot_id == head.snapshot_id:
            break
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        is_rewrite = snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE
        if is_rewrite and int(summary.get("manifests-replaced", 0)) == rewritten:
            total = {"rewritten": report.rewritten + rewritten, "added": report.added + added}
            return report.model_copy(update={**total, "snapshot_id": snapshot.snapshot_id})
    raise FloeStorageError(
        f"rewrite_manifests reported {rewritten} manifests of '{identifier}' rewritten into {added}, but no snapshot "
        f"of the table shows it; concurrent maintenance may have undone it: run it again"
    )
