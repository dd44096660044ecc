"""floe demo."""

from __future__ import annotations

from pathlib import Path

import click

from floe_runtime.cli.common import console, fail, tells_errors

__all__ = ["demo"]


@click.command()
@click.option("--rows", type=click.IntRange(min=1000), default=1_000_000, show_default=True, help="How many orders.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("floe-demo"),
    show_default=True,
    help="Where the demo project goes.",
)
@tells_errors
def demo(rows: int, folder: Path) -> None:
    """Fill a small retailer's lakehouse and tell its story."""
    from floe_core.java import java_problem

    problem = java_problem()
    if problem:
        fail(problem, as_json=False)
    from floe_runtime.demo.story import run_demo

    run_demo(folder, rows=rows, console=console())
