"""The arguments that say what to run; floe plan and floe run have the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from floe_runtime.runs.planning import RunRequest

__all__ = ["place_options", "publish_options", "request_options", "requested"]

P = ParamSpec("P")
R = TypeVar("R")

_OPTIONS = (
    click.argument("selection", nargs=-1, metavar="[SELECTION]..."),
    click.option("--select", multiple=True, metavar="SELECTION", help="The same as SELECTION; may be repeated."),
    click.option("--partition", multiple=True, metavar="KEY", help="Only this partition; may be repeated."),
    click.option("--partition-range", metavar="START...END", help="These partitions, both ends included."),
    click.option(
        "--with-unpartitioned",
        is_flag=True,
        help="With --partition and --partition-range: also the assets that are not partitioned.",
    ),
    click.option(
        "--missing",
        is_flag=True,
        help="Whatever was never materialized, is not in its table any more or is behind its upstream assets, and what "
        "depends on it.",
    ),
)

_PUBLISH_OPTIONS = (
    click.option(
        "--atomic",
        is_flag=True,
        help="Publish all tables of the run in one commit, when it and its checks have succeeded.",
    ),
    click.option(
        "--one-by-one",
        is_flag=True,
        help="As --atomic; publish one table after the other on a catalog that cannot commit several at once.",
    ),
)


def request_options(command: Callable[P, R]) -> Callable[P, R]:
    """The arguments and options that `requested` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def publish_options(command: Callable[P, R]) -> Callable[P, R]:
    """The options that say when the tables become visible."""
    for option in reversed(_PUBLISH_OPTIONS):
        command = option(command)
    return command


def requested(
    selection: tuple[str, ...],
    select: tuple[str, ...],
    partition: tuple[str, ...],
    partition_range: str | None,
    with_unpartitioned: bool,
    missing: bool,
) -> RunRequest:
    """The request that the arguments make; a usage error if they exclude each other."""
    from floe_runtime.runs.planning import RunRequest

    if sum(map(bool, (partition, partition_range, missing))) > 1:
        raise click.UsageError("--partition, --partition-range and --missing are mutually exclusive.")
    if with_unpartitioned and not (partition or partition_range):
        raise click.UsageError("--with-unpartitioned goes with --partition or --partition-range.")
    return RunRequest((*selection, *select), partition, partition_range, missing, with_unpartitioned)


def place_options(project: Path | None, environment: str | None, branch: str | None = None) -> list[str]:
    """The options with which a printed command finds this project, environment and branch again."""
    given = (("--project", project), ("--env", environment), ("--branch", branch))
    return [argument for option, value in given if value for argument in (option, str(value))]
