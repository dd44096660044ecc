"""Branches of the lake: several tables written aside, on what main was at one moment, and published together."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "BranchPublication": "publication",
    "BranchStatus": "status",
    "BranchTable": "status",
    "Branches": "operations",
    "PublishedTable": "publication",
    "PublishedWrite": "publication",
    "TableState": "status",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: a manager on main needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
