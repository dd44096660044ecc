"""Maintenance without a JVM: health, retention, the plan, leases, expiry and orphans."""

from floe_iceberg.maintenance.expiry import delete_own, expire_metadata, foreign_files
from floe_iceberg.maintenance.health import Finding, Light, TableFacts, findings, look
from floe_iceberg.maintenance.orphans import Orphans, find_orphans
from floe_iceberg.maintenance.plan import TablePlan, table_policy
from floe_iceberg.maintenance.retention import Expiring, expiring, held_by_cursor, of_ms, refuse_short_branches, to_ms
from floe_iceberg.maintenance.run import Maintenance, Outcome, Progress, TableOutcome

__all__ = [
    "Expiring",
    "Finding",
    "Light",
    "Maintenance",
    "Orphans",
    "Outcome",
    "Progress",
    "TableFacts",
    "TableOutcome",
    "TablePlan",
    "delete_own",
    "expire_metadata",
    "expiring",
    "find_orphans",
    "findings",
    "foreign_files",
    "held_by_cursor",
    "look",
    "of_ms",
    "refuse_short_branches",
    "table_policy",
    "to_ms",
]
