"""The `floe` command, and `connect()`: the only place that knows every part of Floe."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floe_runtime.project import Project
    from floe_runtime.runs.runner import RunFailedError

__all__ = ["Project", "RunFailedError", "connect"]

# Imported when they are first used, because `floe` starts without Dagster and PyIceberg.
_MODULES = {"Project": "floe_runtime.project", "RunFailedError": "floe_runtime.runs.runner"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def connect(project: Path | str | None = None, *, environment: str | None = None, branch: str | None = None) -> Project:
    """Compile a project and open its lake, with the verbs of the terminal.

    Logs and traces go where floe.yaml says. Operations outside of a span belong to one trace: that of the environment
    variable TRACEPARENT, or a new one for this process.

    Args:
        project: The folder that holds floe.yaml. By default the current one, or the nearest parent that holds one.
        environment: The environment whose overlay is applied. By default none.
        branch: The branch of the lake to read and write; it is created if it does not exist. By default that of
            floe.yaml, or of the environment variable FLOE_BRANCH.

    Example:
        >>> from pathlib import Path
        >>> from floe_runtime import connect
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> with connect() as lake:
        ...     _ = lake.tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
        ...     lake.tables.scan("bronze.orders").to_arrow().num_rows
        2
    """
    from floe_core.compiler import compile_project, find_project
    from floe_core.config import BRANCH_VARIABLE
    from floe_core.observability import observe, program_trace
    from floe_runtime.project import Project

    root = find_project(Path(project) if project is not None else None)
    artifacts = compile_project(root, environment).artifacts.on_branch(branch or os.environ.get(BRANCH_VARIABLE))
    observe(artifacts)
    program_trace()
    return Project(artifacts)
