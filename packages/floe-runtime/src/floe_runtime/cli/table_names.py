"""Completion of table names in a shell, from the SQLite file of the embedded catalog.

It reads the file itself: importing PyIceberg takes longer than a shell may wait.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click

__all__ = ["complete_table"]

# The shell inserts a completion as it is: a name with other characters could run as a command.
_PLAIN = re.compile(r"[\w.-]+")
_SECONDS = 0.3  # the wait for the lock of another process


def complete_table(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The tables that begin with the typed text; none where a catalog server or a database would have to be asked."""
    del param
    try:
        names = sorted(_names(ctx.params.get("project"), ctx.params.get("environment")))
    except Exception:  # noqa: BLE001 - a shell that completes a line shows no errors
        return []
    return [name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)]


def _names(project: Path | None, environment: str | None) -> Iterator[str]:
    from floe_core.compiler import compile_project, find_project
    from floe_core.config import SqlCatalogConfig, is_postgres, resolve_model
    from floe_core.disk import usable_path

    artifacts = compile_project(find_project(project), environment or None).artifacts
    if not isinstance(artifacts.catalog, SqlCatalogConfig):
        return
    catalog = resolve_model(artifacts.catalog, root=artifacts.root)
    if is_postgres(catalog.uri):
        return
    file = usable_path(artifacts.root / catalog.uri.removeprefix("sqlite:///"))
    # A reader leaves the files of the write-ahead log behind, unless it expects no writer.
    option = "mode=ro" if file.with_name(f"{file.name}-wal").exists() else "immutable=1"
    with closing(sqlite3.connect(f"{file.as_uri()}?{option}", uri=True, timeout=_SECONDS)) as database:
        database.row_factory = sqlite3.Row
        for row in database.execute("SELECT * FROM iceberg_tables WHERE catalog_name = ?", (catalog.name,)):
            # Views are rows too, in a database with the column `iceberg_type`.
            if "iceberg_type" not in row.keys() or row["iceberg_type"] in (None, "TABLE"):  # noqa: SIM118 - no mapping
                yield f"{row['table_namespace']}.{row['table_name']}"
