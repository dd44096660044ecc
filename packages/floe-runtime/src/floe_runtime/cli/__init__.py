"""The `floe` command. Only Click is imported here; engines are imported inside the commands that need them."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

import click

__all__ = ["main"]

# command -> its one-line help. The module of a command is imported when it is called.
_COMMANDS = {
    "demo": "Fill a small retailer's lakehouse and tell its story.",
    "init": "Create a project that runs as it is.",
    "compile": "Check floe.yaml and write the contract that everything runs on.",
    "doctor": "Check Java, Spark, the jars, the catalog and the storage, and say what to do.",
    "run": "Materialize the assets of the project.",
    "dev": "Open Dagster's web UI on the project.",
    "namespaces": "List, create, show, change and drop namespaces.",
    "tables": "Show how healthy tables are.",
    "maintain": "Compact tables, expire history and remove orphans, or show what would be done.",
}


_INTERRUPTED = (
    "interrupted; a write that was under way is either complete or absent, never half done: "
    "before you append again, check whether it is there"
)


class _Commands(click.Group):
    """Commands imported by name, so that `floe --help` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(importlib.import_module(f"floe_runtime.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101 - each module of this package defines its command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="floe-runtime", prog_name="floe")
def floe() -> None:
    """One floe.yaml becomes a working lakehouse: Dagster, Spark, Iceberg."""


def main() -> NoReturn:
    """Run the command line: 0 done, 1 failed, 2 usage, 3 refused, 130 interrupted."""
    try:
        code = floe(standalone_mode=False)  # Click returns the code of an Exit instead of raising it
    except click.ClickException as exc:
        if not _print_json_error(exc.format_message()):
            _show(exc)
        sys.exit(exc.exit_code)
    except (KeyboardInterrupt, click.Abort):
        if not _print_json_error(_INTERRUPTED):
            click.echo(_INTERRUPTED, err=True)
        _leave(130)
    except Exception as exc:  # noqa: BLE001 - a bug: its traceback is shown, but not the secrets in it
        from floe_core.security import redact

        if not _print_json_error(f"{type(exc).__name__}: {exc}"):
            click.echo(redact(traceback.format_exc()), err=True)
            click.secho(redact(f"error: {type(exc).__name__}: {exc}"), fg="red", err=True)
        _leave(1)
    sys.exit(code if isinstance(code, int) else 0)


def _show(exc: click.ClickException) -> None:
    """Print a usage error in the same form as all others."""
    click.secho(f"error: {exc.format_message()}", fg="red", err=True)
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
    """Exit immediately: an interrupted run may have left threads that wait for Spark."""
    from floe_core.observability import send_remaining

    with suppress(KeyboardInterrupt):
        send_remaining()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
