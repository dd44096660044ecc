"""floe init."""

from __future__ import annotations

from pathlib import Path

import click

from floe_runtime.cli.common import RefusedError, tells_errors

__all__ = ["init"]


@click.command()
@click.argument("name")
@tells_errors
def init(name: str) -> None:
    """Create a project that runs as it is, in a new folder NAME."""
    from floe_core.errors import ConfigurationError
    from floe_core.identifiers import check_name
    from floe_runtime.templates import copy_template

    try:
        check_name(name)
    except ValueError as exc:
        raise ConfigurationError(str(exc)) from None
    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RefusedError(f"{name} exists and is not empty; choose another name")
    copy_template("starter", folder, {"name: starter": f"name: {name}"})
    click.echo(f"created {name}: floe.yaml, definitions.py, README.md\n\n  cd {name}\n  floe run\n")
