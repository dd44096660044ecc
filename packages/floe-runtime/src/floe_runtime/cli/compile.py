"""floe compile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    compile_here,
    environment_option,
    json_option,
    observe,
    print_json,
    project_option,
    tells_errors,
)

if TYPE_CHECKING:
    from floe_core.config import CompiledArtifacts

__all__ = ["compile"]


@click.command()
@project_option
@environment_option
@click.option("--check", is_flag=True, help="Also connect to the catalog and list its namespaces.")
@json_option
@tells_errors
def compile(project: Path | None, environment: str | None, check: bool, as_json: bool) -> None:  # noqa: A001 - the command's name
    """Check floe.yaml and write the contract that everything runs on."""
    from floe_core.config import contract_path, write_spec_schema

    artifacts = compile_here(project, environment)
    write_spec_schema(artifacts.root)
    path = contract_path(artifacts.root, artifacts.environment)
    namespaces = _namespaces(artifacts) if check else None
    if as_json:
        print_json({"ok": True, "contract": str(path), "environment": artifacts.environment, "namespaces": namespaces})
        return
    chosen = f" for environment {artifacts.environment}" if artifacts.environment else ""
    click.echo(f"compiled {artifacts.name}{chosen}: {path.relative_to(artifacts.root)}")
    if namespaces is not None:
        listed = ", ".join(namespaces) or "none yet"
        click.echo(f"connected to the {artifacts.catalog.type} catalog; namespaces: {listed}")


def _namespaces(artifacts: CompiledArtifacts) -> list[str]:
    from floe_core.plugins import create_catalog_plugin

    observe(artifacts)
    return create_catalog_plugin(artifacts).list_namespaces()
