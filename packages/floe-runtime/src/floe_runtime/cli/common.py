"""Shared by the commands: options, the console, and error output."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TextIO, TypeVar

import click

from floe_runtime.cli.table_names import complete_table

if TYPE_CHECKING:
    from rich.console import Console

    from floe_core.config import CompiledArtifacts
    from floe_core.identifiers import Namespace, TableIdentifier
    from floe_iceberg import IcebergTableManager
    from floe_iceberg.maintenance import TableFacts

__all__ = [
    "InterruptionError",
    "RefusedError",
    "SuggestingChoice",
    "Verbs",
    "branch_option",
    "compile_here",
    "confirm",
    "consent",
    "console",
    "document",
    "environment_option",
    "facts_document",
    "fail",
    "json_option",
    "known_branch",
    "named",
    "namespaces_option",
    "observe",
    "only_json",
    "options_here",
    "plain_warnings",
    "print_error",
    "print_json",
    "print_warning",
    "project_option",
    "project_options",
    "similar_tables",
    "stops_before",
    "suggesting",
    "table_argument",
    "tables_option",
    "tells_errors",
    "yes_option",
]

P = ParamSpec("P")
R = TypeVar("R")

_ENGINES = (
    "dagster",
    "duckdb",
    "floe_dagster",
    "floe_iceberg",
    "floe_polaris",
    "floe_spark",
    "pyarrow",
    "pyiceberg",
    "pyspark",
    "sqlglot",
)

environment_option = click.option(
    "--env", "environment", metavar="NAME", envvar="FLOE_ENV", help="The environment of floe.yaml to use."
)
branch_option = click.option(
    "--branch",
    metavar="NAME",
    envvar="FLOE_BRANCH",
    help="The branch of the lake to read and write; main is none.",
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
    "--table",
    "tables",
    multiple=True,
    metavar="NAMESPACE.TABLE",
    help="Only this table; may be repeated.",
    shell_complete=complete_table,
)
namespaces_option = click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="Only the tables in this namespace and below; may be repeated.",
)
table_argument = click.argument("table", metavar="NAMESPACE.TABLE", shell_complete=complete_table)
yes_option = click.option("--yes", is_flag=True, help="Do it without asking.")


class RefusedError(click.ClickException):
    """Refused: it needs consent, or is not possible here."""

    exit_code = 3


class InterruptionError(click.ClickException):
    """Ctrl-C, after what was written is reported; the process ends without waiting for what it stopped."""

    exit_code = 130


class SuggestingChoice(click.Choice[str]):
    """A choice whose usage error suggests the nearest value."""

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx)
        near = difflib.get_close_matches(str(value), self.choices, n=1)
        return f"{message} Did you mean {near[0]!r}?" if near else message


class Verbs(click.Group):
    """A command with verbs, which its help lists in the order of their definition, each with its first sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(limit=200)) for name, command in self.commands.items()]
            )


def console(*, quiet: bool = False) -> Console:
    """The console for people: standard output, or standard error if `quiet` (a program reads standard output)."""
    from rich.console import Console

    class PipedConsole(Console):
        """Reports a closed pipe like any other output, instead of ending the process."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    stream = sys.stderr if quiet else sys.stdout
    # A file or a pipe has no width: use a fixed one, so that little is cut.
    return PipedConsole(file=stream, highlight=False, width=None if stream.isatty() else 140)


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


def document(value: Any) -> Any:
    """A value as JSON has it: dataclasses as objects, times in ISO 8601."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: document(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: document(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [document(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


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


def compile_here(
    project: Path | None, environment: str | None, *, branch: str | None = "main", quiet: bool = False
) -> CompiledArtifacts:
    """Compile the project, write its contract and the schema that its floe.yaml names, and show warnings.

    Args:
        branch: The branch of the lake. None is that of floe.yaml; commands without --branch are about main.
    """
    from floe_core.compiler import compile_project, find_project
    from floe_core.config import schema_path, write_spec_schema
    from floe_core.identifiers import check_branch_name

    compilation = compile_project(find_project(project), environment or None)
    compilation.artifacts.write()
    if not schema_path(compilation.artifacts.root).exists():  # as after a clone: .floe is not under version control
        write_spec_schema(compilation.artifacts.root)
    for warning in () if quiet else compilation.warnings:
        print_warning(str(warning))
    if branch is not None and branch != "main":
        try:
            check_branch_name(branch)
        except ValueError as exc:
            raise click.UsageError(f"--branch: {exc}") from None
    return compilation.artifacts.on_branch(branch)


def known_branch(artifacts: CompiledArtifacts) -> CompiledArtifacts:
    """The project, if the branch that it is opened at exists: a command that only reads creates none."""
    name = artifacts.lake_branch
    if name is not None:
        from floe_iceberg import Lake

        with Lake(artifacts.on_branch("main")) as lake:
            lake.branches.show(name)
    return artifacts


def consent(artifacts: CompiledArtifacts, yes: bool, action: str) -> None:
    """Refuse to change a protected environment without `--yes`."""
    if artifacts.protected and not yes:
        where = f"environment {artifacts.environment}" if artifacts.environment else artifacts.name
        raise RefusedError(f"{where} is protected: {action} there, say --yes")


def confirm(artifacts: CompiledArtifacts, yes: bool, action: str, *, as_json: bool, typed: str | None = None) -> None:
    """Ask before something is taken away, with no as the default; refuse where there is no terminal to answer.

    Args:
        action: What is about to be done, such as `drop table 'bronze.orders'`.
        typed: What must be typed for a yes. By default `y`.
    """
    consent(artifacts, yes, f"to {action}")
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise RefusedError(f"nothing was changed: to {action} without a terminal, say --yes")
    with stops_before("changed"):
        if typed is None:
            agreed = click.confirm(f"{action[:1].upper()}{action[1:]}?", default=False, err=True)
        else:
            question = f"To {action}, type {typed}"
            agreed = click.prompt(question, default="", show_default=False, err=True).strip() == typed
    if not agreed:
        raise RefusedError("nothing was changed")


@contextmanager
def stops_before(done: str) -> Iterator[None]:
    """Say of Ctrl-C, or of Ctrl-D at a question, that nothing was `done` before."""
    try:
        yield
    except (KeyboardInterrupt, click.Abort) as exc:
        if isinstance(exc, click.Abort):  # the cursor is behind the question
            click.echo(err=True)
        raise click.Abort(f"interrupted; nothing was {done}") from None


@contextmanager
def suggesting(tables: IcebergTableManager) -> Iterator[None]:
    """Add the nearest existing tables to the error for one that does not exist."""
    from floe_core.errors import TableNotFoundError

    try:
        yield
    except TableNotFoundError as exc:
        name = exc.detail.table if exc.detail is not None and exc.detail.table is not None else ""
        near = similar_tables(tables, name)
        hint = f"Did you mean {' or '.join(near)}?" if near else "List what is there with: floe tables list"
        raise TableNotFoundError(f"table '{name}' not found in the catalog. {hint}", detail=exc.detail) from exc


def similar_tables(tables: IcebergTableManager, name: str) -> list[str]:
    """The nearest existing tables; none if the catalog lets this user load tables, but not list them."""
    from floe_core.errors import FloeError

    try:
        return tables.similar_tables(name)
    except FloeError:
        return []


def observe(artifacts: CompiledArtifacts, *, log_format: str | None = None) -> None:
    """Configure logs and traces for the project; a command and all runs it starts are one trace."""
    from floe_core.observability import continued_trace, program_traceparent, telemetry

    telemetry.observe(artifacts, embedded=False, log_format=log_format)
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


def options_here(project: Path | None, environment: str | None, branch: str | None = None) -> str:
    """The options with which a printed command finds this project, environment and branch again."""
    given = (("--project", project), ("--env", environment), ("--branch", branch))
    return "".join(f" {option} {shlex.quote(str(value))}" for option, value in given if value)


def print_error(message: str) -> None:
    from floe_core.formatting import printable
    from floe_core.security import redact

    click.secho(f"error: {printable(redact(message))}", fg="red", err=True)


def print_warning(message: str) -> None:
    from floe_core.formatting import printable
    from floe_core.security import redact

    click.secho(f"warning: {printable(redact(message))}", fg="yellow", err=True)


@contextmanager
def plain_warnings(root: Path, *, quiet: bool = False) -> Iterator[None]:
    """Print Python warnings as lines of the command, with file and line if they are in the project; or none."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        del category, file, line
        if quiet:
            return
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


def project_options(command: Callable[P, R]) -> Callable[P, R]:
    """The options of every command on a project, and its error output."""
    return project_option(environment_option(json_option(tells_errors(command))))
