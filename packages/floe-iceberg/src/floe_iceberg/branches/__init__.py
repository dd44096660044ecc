"""Branches of the lake: several tables written aside, on what main was at one moment, and published together."""

from floe_iceberg.branches.operations import Branches
from floe_iceberg.branches.publication import BranchPublication, PublishedTable, PublishedWrite
from floe_iceberg.branches.status import BranchStatus, BranchTable, TableState

__all__ = [
    "BranchPublication",
    "BranchStatus",
    "BranchTable",
    "Branches",
    "PublishedTable",
    "PublishedWrite",
    "TableState",
]
