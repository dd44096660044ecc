"""The `floe` command, and `connect()`: the only place that knows every part of Floe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floe_iceberg import Lake

__all__ = ["connect"]


def connect(project: Path | str | None = None, *, environment: str | None = None) -> Lake:
    """Open the lake of a project from Python: `connect().read("gold.daily_revenue")`.

    Logs and spans go where floe.yaml says. Operations outside of a span of your own belong to one trace: that of the
    environment variable TRACEPARENT, or a new one for this program.
    """
    from floe_core.compiler import compile_project, find_project
    from floe_core.observability import observe, program_trace
    from floe_iceberg import Lake

    root = find_project(Path(project) if project is not None else None)
    artifacts = compile_project(root, environment).artifacts
    observe(artifacts)
    program_trace()
    return Lake(artifacts)
