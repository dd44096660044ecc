"""The `floe` command. Only Click is imported here; engines are imported inside the commands that need them."""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback
from contextlib import suppress
from difflib import get_close_matches
from typing import NoReturn

import click

__all__ = ["main", "program"]

# command -> its one-line help. The module of a command is imported when it is called.
_COMMANDS = {
    "demo": "Fill a small retailer's lakehouse and tell its story.",
    "init": "Create a project that runs as it is.",
    "compile": "Check floe.yaml and write the contract that everything runs on.",
    "doctor": "Check Java, Spark, the jars, the catalog and the storage, and say what to do.",
    "plan": "Show what floe run would do, and why.",
    "run": "Materialize the assets of the project.",
    "check": "Run the checks of assets and tables, without writing.",
    "dev": "Open Dagster's web UI on the project.",
    "namespaces": "List, create, show, change and drop namespaces.",
    "read": "Print rows of a table, now or as it was.",
    "sql": "Run a query on the tables, without Spark or with it.",
    "tables": "List, show, compare, rename, register and drop tables, and show how healthy they are.",
    "snapshots": "List and tag snapshots of a table, and roll it back.",
    "runs": "Show past runs: what they wrote, and why they failed.",
    "branches": "Work on a branch of the lake, review what it changes, and publish it.",
    "undo": "Restore every table that a run wrote, in one commit.",
    "move": "Rewrite the paths in the tables of a lake whose folder was moved.",
    "maintain": "Compact tables, expire history and remove orphans, or show what would be done.",
    "completion": "Print the script that completes commands, options and names of tables in a shell.",
}


_ELSEWHERE = {"undo": "runs.undo"}  # commands whose modules have another name
_OF_COMMANDS = ("--project", "--env", "--branch", "--json")
_READING = {"check", "compile", "completion", "plan", "read", "runs", "sql"}  # commands that change no table
_LEAVES_AT_ONCE = {"read", "sql"}  # commands that leave nothing behind once their rows are printed
_INTERRUPTED_READING = "interrupted; no table was changed"
_INTERRUPTED = (
    "interrupted; a write that was under way is either complete or absent, never half done: "
    "before you append again, check whether it is there"
)


class _ReaderLeftError(Exception):
    """Nothing reads the output any more. Not an OSError, for which Click would exit with 1."""


class _Commands(click.Group):
    """Commands imported by name, so that `floe --help` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = _ELSEWHERE.get(cmd_name, cmd_name)
        command = getattr(importlib.import_module(f"floe_runtime.cli.{module}"), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101 - each module of this package defines its command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        option = args[0].partition("=")[0] if args else ""
        if option in _OF_COMMANDS and not ctx.resilient_parsing:
            ctx.fail(f"{option} belongs to a command: write it after the command, such as floe run {option}")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ReaderLeftError from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = get_close_matches(args[0], _COMMANDS) if args[0] not in _COMMANDS else []
        if near and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="floe-runtime", prog_name="floe")
def floe() -> None:
    """One floe.yaml becomes a working lakehouse: Dagster, Spark, Iceberg."""


def program() -> NoReturn:
    """The `floe` program: `main` in a process of its own.

    Python takes a quarter of a second to free the modules of a command that reads rows; the system frees them at once.
    """
    try:
        main()
    except SystemExit as exc:
        # Spark's JVM is ended by an exit handler of PySpark.
        if set(sys.argv[1:2]) & _LEAVES_AT_ONCE and "pyspark" not in sys.modules and isinstance(exc.code, int):
            _leave(exc.code)
        raise


def main() -> NoReturn:
    """Run the command line: 0 done, 1 failed, 2 usage, 3 refused, 130 interrupted, 141 the reader of a pipe left."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # characters that the locale lacks are escaped, not an error
            stream.reconfigure(errors="backslashreplace")
    try:
        code = floe(standalone_mode=False, color=_color())  # Click returns the code of an Exit instead of raising it
        sys.stdout.flush()
    except (BrokenPipeError, _ReaderLeftError):  # as in `floe tables list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _leave(141)
    except click.ClickException as exc:
        if exc.exit_code == 130:  # what was written is reported already
            _leave(130)
        if not _print_json_error(exc.format_message()):
            _show(exc)
        sys.exit(exc.exit_code)
    except (KeyboardInterrupt, click.Abort) as exc:
        # A block in which nothing can have been written says so itself.
        message = str(exc) or (_INTERRUPTED_READING if set(sys.argv[1:2]) & _READING else _INTERRUPTED)
        if not _print_json_error(message):
            click.echo(message, err=True)
        _leave(130)
    except Exception as exc:  # noqa: BLE001 - a bug: its traceback is shown, but not the secrets in it
        from floe_core.security import redact

        if not _print_json_error(f"{type(exc).__name__}: {exc}"):
            click.echo(redact(traceback.format_exc()), err=True)
            click.secho(redact(f"error: {type(exc).__name__}: {exc}"), fg="red", err=True, color=_color())
        _leave(1)
    sys.exit(code if isinstance(code, int) else 0)


def _color() -> bool | None:
    """Whether Click prints colours: never with NO_COLOR, which it does not read itself; else on a terminal."""
    return False if os.environ.get("NO_COLOR") else None


def _show(exc: click.ClickException) -> None:
    """Print a usage error in the same form as all others; of a group without a verb its help."""
    if isinstance(exc, click.exceptions.NoArgsIsHelpError):
        click.echo(exc.format_message(), err=True)
        return
    click.secho(f"error: {exc.format_message()}", fg="red", err=True, color=_color())
    if isinstance(exc, click.UsageError) and exc.ctx is not None:
        click.echo(f"see: {exc.ctx.command_path} --help", err=True)


def _print_json_error(message: str) -> bool:
    """With --json, print the error as a document; returns whether it did."""
    if "--json" not in sys.argv:
        return False
    from floe_runtime.cli.common import print_json

    print_json({"ok": False, "error": message, "problems": []})
    return True


def _leave(code: int) -> NoReturn:
    """Exit without clean-up by Python, such as waiting for threads that an interrupted run has left."""
    if "floe_core.observability" in sys.modules:  # otherwise there are no spans to send
        from floe_core.observability import send_remaining

        with suppress(KeyboardInterrupt):
            send_remaining()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)
