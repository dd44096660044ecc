"""floe tables."""

from __future__ import annotations

import click

from floe_runtime.cli.common import Verbs
from floe_runtime.cli.tables.catalog import drop, register, rename
from floe_runtime.cli.tables.contents import files, partitions
from floe_runtime.cli.tables.diff import diff
from floe_runtime.cli.tables.health import health
from floe_runtime.cli.tables.history import history
from floe_runtime.cli.tables.listing import list_
from floe_runtime.cli.tables.show import show

__all__ = ["tables"]


@click.group(cls=Verbs)
def tables() -> None:
    """List, show, compare, rename, register and drop tables, and show how healthy they are.

    A SNAPSHOT is the id of a snapshot, a tag or branch, or a time such as 2026-01-31T12:00:00+00:00.
    """


for command in (list_, show, history, files, partitions, diff, health, rename, register, drop):
    tables.add_command(command)
