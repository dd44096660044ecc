"""floe dev."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from floe_runtime.cli.common import (
    branch_option,
    compile_here,
    environment_option,
    fail,
    print_warning,
    project_option,
    tells_errors,
)

__all__ = ["dev"]


@click.command()
@project_option
@environment_option
@branch_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=3000, show_default=True, help="Where to listen; 0: any free port."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; beyond this machine every request needs the token in the printed address.",
)
@tells_errors
def dev(project: Path | None, environment: str | None, branch: str | None, port: int, host: str) -> None:
    """Open Dagster's web UI on the project, with the history of floe run; Ctrl-C ends it.

    The printed address opens the graph of the assets; the second one, the recent runs. With --branch, runs write to a
    branch of the lake, which has a history of its own.
    """
    from floe_core.java import java_problem
    from floe_core.security import is_loopback
    from floe_runtime.dev.server import open_web_ui

    artifacts = compile_here(project, environment, branch=branch)
    problem = None if artifacts.spark.remote else java_problem()
    if problem:
        fail(problem, as_json=False)
    if artifacts.lake_branch is not None:
        from floe_iceberg import Lake

        with Lake(artifacts) as lake:
            _ = lake.tables  # the branch begins now, not with the first run
    try:
        with open_web_ui(artifacts, host=host, port=port) as ui:
            if ui.access.token and not is_loopback(host):
                print_warning(
                    "other machines can reach this server, and what they send is not encrypted; "
                    "safer: leave --host out and forward the port with ssh -L"
                )
            secret = f"?token={quote(ui.access.token)}" if ui.access.token else ""
            root = f"/{secret}" if secret else ""
            at = f" at branch {artifacts.lake_branch}" if artifacts.lake_branch else ""
            click.echo(f"{artifacts.name}{at} in Dagster's web UI: {ui.address}{root}")
            if ui.access.origin:
                click.echo(f"behind the proxy: {ui.access.origin}{root}")
            click.echo(f"recent runs: {ui.access.origin or ui.address}/runs{secret}")
            ui.wait()
    except KeyboardInterrupt:
        click.echo("stopped; a run that was under way has failed, and its writes are complete or absent", err=True)
        raise click.exceptions.Exit(130) from None
