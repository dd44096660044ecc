"""Quarantine: rows that break rules go to a table of their own, in the write that would have stored them."""

from floe_iceberg.quarantine.division import FAILED_CHECKS
from floe_iceberg.quarantine.moved import MovedRows, moved_rows, with_moved_rows
from floe_iceberg.quarantine.target import Quarantine
from floe_iceberg.quarantine.writes import write_quarantined

__all__ = ["FAILED_CHECKS", "MovedRows", "Quarantine", "moved_rows", "with_moved_rows", "write_quarantined"]
