"""floe namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    RefusedError,
    Verbs,
    compile_here,
    consent,
    console,
    environment_option,
    json_option,
    observe,
    print_json,
    project_option,
    tells_errors,
)

if TYPE_CHECKING:
    from floe_core.config import CompiledArtifacts
    from floe_core.identifiers import Namespace
    from floe_iceberg import IcebergTableManager

__all__ = ["namespaces"]


@click.group(cls=Verbs)
def namespaces() -> None:
    """List, create, show, change and drop namespaces.

    A NAME has one level or more: bronze, or bronze.raw.events.
    """


@namespaces.command("list")
@click.argument("parent", required=False)
@click.option("--recursive", is_flag=True, help="All levels, not only the next.")
@project_option
@environment_option
@json_option
@tells_errors
def list_(parent: str | None, recursive: bool, project: Path | None, environment: str | None, as_json: bool) -> None:
    """List the namespaces of the catalog, or those in PARENT."""
    within = _name(parent) if parent is not None else None
    listed = _tables(compile_here(project, environment)).list_namespaces(within, recursive=recursive)
    names = [str(namespace) for namespace in listed]
    if as_json:
        print_json({"ok": True, "namespaces": names})
    elif names:
        _print_columns({"namespace": names})
    else:
        click.echo(f"no namespaces in {within}" if within else "no namespaces yet")


@namespaces.command()
@click.argument("name")
@click.option("--property", "pairs", multiple=True, metavar="KEY=VALUE", help="A property; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Leave an existing namespace unchanged.")
@project_option
@environment_option
@json_option
@tells_errors
def create(
    name: str,
    pairs: tuple[str, ...],
    if_not_exists: bool,
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """Create a namespace, and its parents where they are missing."""
    from floe_core.errors import NamespaceAlreadyExistsError

    properties, namespace = _properties(pairs), _name(name)
    tables = _tables(compile_here(project, environment))
    try:
        created = tables.create_namespace(namespace, properties, if_not_exists=if_not_exists)
    except NamespaceAlreadyExistsError as exc:
        raise RefusedError(str(exc)) from exc
    if as_json:
        print_json({"ok": True, "namespace": str(namespace), "created": created})
    else:
        click.echo(f"created namespace {namespace}" if created else f"namespace {namespace} is there already")


@namespaces.command()
@click.argument("name")
@project_option
@environment_option
@json_option
@tells_errors
def show(name: str, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Show the properties of a namespace, and what is in it."""
    from floe_core.formatting import counted

    namespace = _name(name)
    tables = _tables(compile_here(project, environment))
    info = tables.load_namespace(namespace)
    children = [child.levels[-1] for child in tables.list_namespaces(namespace)]
    properties = _shown(info.properties)
    if as_json:
        print_json({"ok": True, **info.model_dump(), "properties": properties, "namespaces": children})
        return
    click.echo(f"{namespace}: {counted(len(info.tables), 'table')}, {counted(len(children), 'namespace')}")
    for column, names in (("table", info.tables), ("namespace", children)):
        if names:
            _print_columns({column: names})
    if properties:
        _print_columns({"property": list(properties), "value": list(properties.values())})


@namespaces.command("set")
@click.argument("name")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--remove", "removals", multiple=True, metavar="KEY", help="Remove a property; may be repeated.")
@project_option
@environment_option
@json_option
@tells_errors
def set_(
    name: str,
    pairs: tuple[str, ...],
    removals: tuple[str, ...],
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """Set and remove properties of a namespace; all others stay.

    On a catalog server, properties are set first, then removed. If removing fails, the error names what was set.
    """
    if not pairs and not removals:
        raise click.UsageError("Say what to set (KEY=VALUE) or to remove (--remove KEY).")
    given, namespace = _properties(pairs), _name(name)
    tables = _tables(compile_here(project, environment))
    properties = _shown(tables.update_namespace(namespace, set=given, remove=removals))
    if as_json:
        print_json({"ok": True, "namespace": str(namespace), "properties": properties})
    elif properties:
        _print_columns({"property": list(properties), "value": list(properties.values())})
    else:
        click.echo(f"namespace {namespace} has no properties")


@namespaces.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Consent where the environment is protected.")
@project_option
@environment_option
@json_option
@tells_errors
def drop(name: str, yes: bool, project: Path | None, environment: str | None, as_json: bool) -> None:
    """Drop a namespace; it must be empty."""
    from floe_core.errors import NamespaceNotEmptyError

    namespace = _name(name)
    artifacts = compile_here(project, environment)
    consent(artifacts, yes, f"to drop namespace '{namespace}'")
    try:
        _tables(artifacts).drop_namespace(namespace)
    except NamespaceNotEmptyError as exc:
        raise RefusedError(str(exc)) from exc
    if as_json:
        print_json({"ok": True, "namespace": str(namespace), "dropped": True})
    else:
        click.echo(f"dropped namespace {namespace}")


def _tables(artifacts: CompiledArtifacts) -> IcebergTableManager:
    from floe_iceberg import IcebergTableManager

    observe(artifacts)
    return IcebergTableManager.open(artifacts)


def _name(text: str) -> Namespace:
    from floe_core.identifiers import Namespace

    return Namespace.from_string(text)


def _properties(pairs: Iterable[str]) -> dict[str, str]:
    split = [pair.partition("=") for pair in pairs]
    wrong = [f"{key}{separator}{value}" for key, separator, value in split if not key or not separator]
    if wrong:
        raise click.UsageError(f"{wrong[0]!r}: write a property as KEY=VALUE.")
    return {key: value for key, _separator, value in split}


def _shown(properties: dict[str, str]) -> dict[str, str]:
    from floe_core.security import masked

    return {key: str(masked(key, properties[key])) for key in sorted(properties)}


def _print_columns(columns: dict[str, Sequence[str]]) -> None:
    from floe_runtime.console import columns_table

    console().print(columns_table(columns))
