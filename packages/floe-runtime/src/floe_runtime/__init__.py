"""The `floe` command, and `connect()`: the only place that knows every part of Floe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floe_spark import Lake

__all__ = ["connect"]


def connect(project: Path | str | None = None, *, environment: str | None = None) -> Lake:
    """Open the lake of a project from Python: `connect().read("gold.daily_revenue")`."""
    from floe_core.compiler import compile_project, find_project
    from floe_spark import Lake

    root = find_project(Path(project) if project is not None else None)
    return Lake(compile_project(root, environment).artifacts)
