"""Rewrite manifests: the same files, listed in fewer places."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import Operation, ancestors_of

from floe_core.errors import FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance import ManifestsReport
from floe_core.telemetry import operation
from floe_spark.maintenance.calls import again_on_conflict, call

if TYPE_CHECKING:
    from floe_spark.lake import Lake

__all__ = ["rewrite_manifests"]


def rewrite_manifests(lake: Lake, identifier: TableIdentifier) -> ManifestsReport:
    began = time.perf_counter()
    with operation("iceberg.rewrite_manifests", table=str(identifier)) as op:
        report = ManifestsReport(table=str(identifier))
        for attempt in again_on_conflict():
            with attempt:
                before = lake.tables.load_table(identifier)
                lake.tables.refuse_moved(before, identifier)
                head = before.current_snapshot()
                if head is None:
                    return report
                (row,) = call(lake, "rewrite_manifests", identifier, {})
        rewritten, added = row["rewritten_manifests_count"], row["added_manifests_count"]
        op.set(rewritten=rewritten, added=added)
        if not rewritten:
            return report.model_copy(update={"seconds": time.perf_counter() - began})
        after = lake.tables.load_table(identifier)
        for one in ancestors_of(after.current_snapshot(), after.metadata):
            if head is not None and one.snapshot_id == head.snapshot_id:
                break
            said = one.summary.additional_properties if one.summary else {}
            if (
                one.summary is not None
                and one.summary.operation is Operation.REPLACE
                and int(said.get("manifests-replaced", 0)) == rewritten
            ):
                made = {"snapshot_id": one.snapshot_id, "rewritten": rewritten, "added": added}
                return report.model_copy(update={**made, "seconds": time.perf_counter() - began})
        raise FloeStorageError(
            f"rewrite_manifests says that it put {rewritten} manifests of '{identifier}' into {added}, and no snapshot "
            f"of the table says so; another maintenance at the same time may have undone it: run it again"
        )
