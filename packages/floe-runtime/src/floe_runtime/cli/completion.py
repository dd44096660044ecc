"""floe completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from floe_runtime.cli.common import SuggestingChoice

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=SuggestingChoice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, their choices and names of tables in a shell.

    \b
    To install it:
      bash  echo 'eval "$(floe completion bash)"' >> ~/.bashrc
      zsh   echo 'eval "$(floe completion zsh)"' >> ~/.zshrc   (after compinit)
      fish  floe completion fish > ~/.config/fish/completions/floe.fish

    Then start a new shell. Names of tables are read from the SQLite file of the default catalog; a catalog server or a
    PostgreSQL database is not asked.
    """
    complete = get_completion_class(shell)
    assert complete is not None  # noqa: S101 - Click knows the three
    click.echo(complete(ctx.find_root().command, {}, "floe", "_FLOE_COMPLETE").source())
