"""Atomic runs: a group of assets whose tables are published together, when all of them have succeeded."""

from floe_dagster.atomic.groups import AtomicGroup, is_stored_alone, written_by

__all__ = ["AtomicGroup", "is_stored_alone", "written_by"]
