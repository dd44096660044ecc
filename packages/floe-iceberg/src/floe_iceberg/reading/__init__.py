"""Scans: planned, streamed, traced, and what was appended between two snapshots."""

from floe_iceberg.reading.damage import check_listed
from floe_iceberg.reading.incremental import refuse_past
from floe_iceberg.reading.scans import scan

__all__ = ["check_listed", "refuse_past", "scan"]
