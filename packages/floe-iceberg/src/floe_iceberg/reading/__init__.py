"""Scans: planned, streamed, traced, and what was appended between two snapshots; values for people and programs."""

from floe_iceberg.reading.damage import check_listed
from floe_iceberg.reading.incremental import refuse_past
from floe_iceberg.reading.scans import scan
from floe_iceberg.reading.values import csv_array, json_values, shown_values

__all__ = ["check_listed", "csv_array", "json_values", "refuse_past", "scan", "shown_values"]
