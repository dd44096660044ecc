"""Shared by the verbs on tables: the open tables of the project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from floe_runtime.cli.common import compile_here, known_branch, observe, similar_tables, suggesting

if TYPE_CHECKING:
    from floe_core.config import CompiledArtifacts
    from floe_iceberg import IcebergTableManager

__all__ = ["open_catalog", "open_tables"]


@contextmanager
def open_catalog(
    project: Path | None, environment: str | None, branch: str | None = "main"
) -> Iterator[tuple[CompiledArtifacts, IcebergTableManager]]:
    """The tables of the project, on main or at a branch of the lake; None is the branch of floe.yaml."""
    from floe_iceberg import Lake

    artifacts = known_branch(compile_here(project, environment, branch=branch))
    observe(artifacts)
    with Lake(artifacts) as lake:
        yield artifacts, lake.tables


@contextmanager
def open_tables(
    table: str, project: Path | None, environment: str | None, branch: str | None = "main"
) -> Iterator[tuple[CompiledArtifacts, IcebergTableManager]]:
    """The tables of the project, for a verb on one of them; the error for a mistyped one names the nearest."""
    from floe_core.errors import ConfigurationError

    with open_catalog(project, environment, branch) as (artifacts, tables):
        if "." not in table and (near := similar_tables(tables, table)):
            raise ConfigurationError(f"table {table!r} has no namespace. Did you mean {' or '.join(near)}?")
        with suggesting(tables):
            yield artifacts, tables
