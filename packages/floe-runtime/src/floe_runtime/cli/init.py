"""floe init."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from floe_runtime.cli.common import RefusedError, SuggestingChoice, tells_errors

__all__ = ["init"]

_FOLDER = "lakehouse"
# name -> what it is; the first is the default. Each is a folder of floe_runtime/templates.
_TEMPLATES = {
    "spark": "two assets on Spark; needs Java 17",
    "polars": "the same two on polars; no Java, no Spark",
    "medallion": "bronze, silver and gold, on Spark",
}
# name -> what it is; the first is the default. Each but sql is a file of floe_runtime/templates/catalogs.
_CATALOGS = {
    "sql": "SQLite and files under .floe/; no server",
    "polaris": "an Apache Polaris server and S3",
    "rest": "another Iceberg REST catalog and S3",
}
_OWN_HIDDEN = (".floe", ".gitignore")


def _listed(choices: Mapping[str, str]) -> str:
    return "".join(f"\n  {name:<10} {words}" for name, words in choices.items())


@click.command(
    epilog=f"\b\nTemplates, spark by default:{_listed(_TEMPLATES)}\n\n\b\nCatalogs, sql by default:{_listed(_CATALOGS)}"
)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--template", type=SuggestingChoice(list(_TEMPLATES)), help="The assets to start with.")
@click.option("--catalog", type=SuggestingChoice(list(_CATALOGS)), help="The catalog of the tables.")
@tells_errors
def init(folder: Path | None, template: str | None, catalog: str | None) -> None:
    """Create a project that runs as it is, in DIR: a new or empty folder.

    The project is named after the folder, by default lakehouse. In a terminal, floe init asks for what is not
    given; in a script it uses the defaults.
    """
    from floe_runtime.templates import create_project

    asks = sys.stdin.isatty() and sys.stdout.isatty()
    try:
        if folder is None:
            folder = _ask_folder() if asks else Path(_FOLDER)
        name = _new_project(folder)
        template = template or _choose("template", _TEMPLATES, asks=asks)
        catalog = catalog or _choose("catalog", _CATALOGS, asks=asks)
    except click.Abort:
        click.echo("\ninterrupted; nothing was created", err=True)
        raise click.exceptions.Exit(130) from None
    create_project(template, folder, name=name, catalog=catalog)
    click.echo(_next_steps(folder, name, catalog))


def _ask_folder() -> Path:
    def checked(answer: str) -> Path:
        from floe_core.errors import ConfigurationError

        try:
            _new_project(Path(answer))
        except (ConfigurationError, RefusedError) as exc:
            raise click.BadParameter(str(exc)) from None
        return Path(answer)

    chosen: Path = click.prompt("Folder of the project", default=_FOLDER, value_proc=checked)
    return chosen


def _choose(title: str, choices: Mapping[str, str], *, asks: bool) -> str:
    """The default, or the answer of the user."""
    default = next(iter(choices))
    if not asks:
        return default
    click.echo(f"{title.capitalize()}s:{_listed(choices)}")
    answer: str = click.prompt(
        title.capitalize(), default=default, type=SuggestingChoice(list(choices)), show_choices=False
    )
    return answer


def _new_project(folder: Path) -> str:
    """The name of the project in a folder; refused if the folder is not new or empty, or is no name.

    Hidden entries such as .git and .venv may be there, except those that a project has itself.
    """
    from floe_core.disk import usable_path
    from floe_core.errors import ConfigurationError
    from floe_core.identifiers import check_name

    name = usable_path(folder).name
    try:
        check_name(name)
    except ValueError as exc:
        raise ConfigurationError(f"the project is named after its folder, and {exc}") from None
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise RefusedError(f"{existing} is not a folder; choose another one")
    names = sorted(path.name for path in folder.iterdir()) if existing == folder else []
    held = [entry for entry in names if not entry.startswith(".") or entry in _OWN_HIDDEN]
    if held:
        shown = ", ".join(held[:3]) + (", …" if len(held) > 3 else "")
        raise RefusedError(f"{folder} is not empty (it holds {shown}); choose a new or empty folder")
    return name


def _next_steps(folder: Path, name: str, catalog: str) -> str:
    """What was created, and the commands that come next, as they can be typed in this shell."""
    from floe_runtime.console import command_name

    floe = command_name()
    files = [f"{path.name}/" if path.is_dir() else path.name for path in sorted(folder.glob("[!.]*"))]
    steps = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    if catalog != "sql":
        client = "POLARIS_CLIENT" if catalog == "polaris" else "CATALOG_CLIENT"
        steps += [
            "# edit floe.yaml: change the lines that are marked",
            f"export {client}_ID=… {client}_SECRET=…",
            f"{floe} compile --check",
        ]
    lines = (f"  {step}" for step in (*steps, f"{floe} run"))
    return "\n".join([f"created the project {name}: {', '.join(files)}", "", *lines])
