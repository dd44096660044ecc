"""The lake that a copy was made of: whether it still exists, and which tables its catalog has."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from floe_iceberg.files.former_folders import is_below, local_address
from floe_iceberg.relocation.paths import MovedFolder

__all__ = ["original_tables"]


def original_tables(database: Path, catalog: str, warehouse: MovedFolder) -> list[str]:
    """The tables in the old folder that a catalog at the old place of this one still has; empty if there is none.

    The original is not opened but copied: a reader of SQLite may create and remove files beside the database.

    Raises:
        sqlite3.Error: The original cannot be read.
        OSError: The original cannot be read.

    Args:
        database: The catalog database of this lake.
        catalog: The name of its catalog.
        warehouse: The warehouse, which moved.
    """
    before = warehouse.shared_parent().path_before(str(database))
    if before is None or not Path(before).is_file() or Path(before).samefile(database):
        return []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "catalog.db"
        shutil.copyfile(before, copy)
        if Path(f"{before}-wal").is_file():  # commits that are not in the database file yet
            shutil.copyfile(f"{before}-wal", f"{copy}-wal")
        with closing(sqlite3.connect(copy)) as connection:
            rows = connection.execute(
                "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ?",
                (catalog,),
            ).fetchall()
    return sorted(f"{namespace}.{name}" for namespace, name, location in rows if _is_in(location or "", warehouse.old))


def _is_in(address: str, folder: str) -> bool:
    path = local_address(address)
    return path is not None and is_below(path, folder)
