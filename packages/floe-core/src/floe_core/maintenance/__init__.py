"""Maintenance as data: reports, governance and the record."""

from floe_core.maintenance.governance import FloorEnforcer, PolicyEnforcer, validated_retention
from floe_core.maintenance.records import Record, Recorder, read_records, records_path
from floe_core.maintenance.reports import (
    CompactReport,
    ExpireReport,
    KeptFile,
    ManifestsReport,
    MismatchError,
    OrphansReport,
    Report,
    StatisticsReport,
    Step,
)

__all__ = [
    "CompactReport",
    "ExpireReport",
    "FloorEnforcer",
    "KeptFile",
    "ManifestsReport",
    "MismatchError",
    "OrphansReport",
    "PolicyEnforcer",
    "Record",
    "Recorder",
    "Report",
    "StatisticsReport",
    "Step",
    "read_records",
    "records_path",
    "validated_retention",
]
