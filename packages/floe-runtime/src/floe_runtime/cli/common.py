"""Shared by the commands: options, the console, and error output."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from floe_core.config import CompiledArtifacts
    from floe_core.identifiers import Namespace, TableIdentifier
    from floe_iceberg.maintenance import TableFacts

__all__ = [
    "RefusedError",
    "compile_here",
    "consent",
    "console",
    "environment_option",
    "facts_document",
    "fail",
    "json_option",
    "named",
    "namespaces_option",
    "observe",
    "only_json",
    "plain_warnings",
    "print_error",
    "print_json",
    "print_warning",
    "project_option",
    "tables_option",
    "tells_errors",
]

P = ParamSpec("P")
R = TypeVar("R")

_ENGINES = ("dagster", "floe_dagster", "floe_iceberg", "floe_polaris", "floe_spark", "pyarrow", "pyiceberg", "pyspark")

environment_option = click.option(
    "--env", "environment", metavar="NAME", envvar="FLOE_ENV", help="The environment of floe.yaml to use."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document for programs.")
project_option = click.option(
    "--project",
    "project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder of floe.yaml; else this one or the nearest above.",
)
tables_option = click.option(
    "--table", "tables", multiple=True, metavar="NAMESPACE.TABLE", help="Only this table; may be repeated."
)
namespaces_option = click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="Only the tables in this namespace and below; may be repeated.",
)


class RefusedError(click.ClickException):
    """Refused: it needs consent, or is not possible here."""

    exit_code = 3


def console(*, quiet: bool = False) -> Console:
    """The console for people: standard output, or standard error if `quiet` (a program reads standard output)."""
    from rich.console import Console

    stream = sys.stderr if quiet else sys.stdout
    # A file or a pipe has no width: use a fixed one, so that little is cut.
    return Console(file=stream, highlight=False, width=None if stream.isatty() else 140)


def print_json(document: Any) -> None:
    from floe_core.security import redact

    click.echo(redact(json.dumps(document, indent=2, default=str)))


@contextmanager
def only_json(as_json: bool) -> Iterator[None]:
    """Redirect what assets print to standard error, so that standard output holds one JSON document."""
    if not as_json:
        yield
        return
    sys.stdout.flush()
    original = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(original, 1)
        os.close(original)


def facts_document(facts: TableFacts) -> dict[str, Any]:
    """The facts of a table as a JSON document."""
    document = {
        key: value.isoformat() if isinstance(value, datetime) else value
        for key, value in dataclasses.asdict(facts).items()
    }
    expiring = facts.expiring
    held = {"tag": facts.held_by[0], "since": facts.held_by[1].isoformat()} if facts.held_by else None
    return {
        **document,
        "delete_ratio": facts.delete_ratio,
        "expiring": {"snapshots": sorted(expiring.snapshots), "refs": sorted(expiring.refs), "bytes": expiring.bytes},
        "held_by": held,
    }


def named(tables: Sequence[str], namespaces: Sequence[str]) -> tuple[list[TableIdentifier], list[Namespace]]:
    """The identifiers given by `--table` and `--namespace`."""
    from floe_core.identifiers import Namespace, TableIdentifier

    return [TableIdentifier.from_string(name) for name in tables], [Namespace.from_string(name) for name in namespaces]


def compile_here(project: Path | None, environment: str | None) -> CompiledArtifacts:
    """Compile the project, write its contract and the schema that its floe.yaml names, and show warnings."""
    from floe_core.compiler import compile_project, find_project
    from floe_core.config import schema_path, write_spec_schema

    compilation = compile_project(find_project(project), environment or None)
    compilation.artifacts.write()
    if not schema_path(compilation.artifacts.root).exists():  # as after a clone: .floe is not under version control
        write_spec_schema(compilation.artifacts.root)
    for warning in compilation.warnings:
        print_warning(str(warning))
    return compilation.artifacts


def consent(artifacts: CompiledArtifacts, yes: bool, action: str) -> None:
    """Refuse to change a protected environment without `--yes`."""
    if artifacts.protected and not yes:
        where = f"environment {artifacts.environment}" if artifacts.environment else artifacts.name
        raise RefusedError(f"{where} is protected: {action} there, say --yes")


def observe(artifacts: CompiledArtifacts) -> None:
    """Configure logs and traces for the project; a command and all runs it starts are one trace."""
    from floe_core.observability import continued_trace, program_traceparent, telemetry

    telemetry.observe(artifacts, embedded=False)
    click.get_current_context().with_resource(continued_trace(program_traceparent()))


def fail(message: str, *, as_json: bool, problems: list[str] | None = None) -> NoReturn:
    """Print the error, as JSON or as text, and exit with 1."""
    from floe_core.security import redact

    if as_json:
        print_json({"ok": False, "error": redact(message), "problems": [redact(problem) for problem in problems or []]})
    else:
        for problem in problems or [message]:
            print_error(problem)
    raise click.exceptions.Exit(1)


def print_error(message: str) -> None:
    from floe_core.security import redact

    click.secho(f"error: {redact(message)}", fg="red", err=True)


def print_warning(message: str) -> None:
    from floe_core.security import redact

    click.secho(f"warning: {redact(message)}", fg="yellow", err=True)


@contextmanager
def plain_warnings(root: Path) -> Iterator[None]:
    """Print Python warnings as lines of the command, with file and line if they are in the project."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        del category, file, line
        path = Path(filename)
        inside = path.is_absolute() and path.is_relative_to(root) and "site-packages" not in path.parts
        print_warning(f"{path.relative_to(root)}:{lineno}: {message}" if inside else str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show  # restored at the end of the block
        yield


def tells_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn Floe's errors into a message and an exit code; any other error is a bug and keeps its traceback."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        from floe_core.disk import disk_problem
        from floe_core.errors import ConfigurationError, FloeError

        as_json = bool(kwargs.get("as_json", False))
        try:
            return command(*args, **kwargs)
        except ConfigurationError as exc:
            fail(str(exc), as_json=as_json, problems=[str(problem) for problem in exc.problems])
        except FloeError as exc:
            fail(str(exc), as_json=as_json)
        except OSError as exc:
            problem = disk_problem(exc)
            if problem is None:
                raise
            fail(problem, as_json=as_json)
        except ModuleNotFoundError as exc:
            if exc.name is None or exc.name.split(".")[0] not in _ENGINES:
                raise
            fail(
                f"this command needs {exc.name}, which is not installed: pip install 'floe-runtime[all]'",
                as_json=as_json,
            )

    return wrapper
