"""An SQLite file under the `sql` catalog. Several processes may use it at once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sqlalchemy import Engine, create_engine

from floe_core.jvm import SQLITE_JDBC
from floe_core.security import STATE_FOLDER, create_private, make_folder

__all__ = ["BUSY_SECONDS", "SqliteFile"]

# How long either engine waits for the lock of another process on the file.
BUSY_SECONDS = 60


@dataclass(frozen=True)
class SqliteFile:
    """The file, which both engines open by its path."""

    path: Path
    jdbc_jar: ClassVar[str] = SQLITE_JDBC

    def __str__(self) -> str:
        return str(self.path)

    def open(self) -> Engine:
        make_folder(self.path.parent)
        if STATE_FOLDER in self.path.parts:
            create_private(self.path)
        with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS)) as connection:
            # Readers are not blocked while one process writes; the setting is stored in the file.
            connection.execute("PRAGMA journal_mode=WAL")
        return create_engine(f"sqlite:///{self.path}?timeout={BUSY_SECONDS}")

    def jdbc_settings(self) -> dict[str, str]:
        return {"uri": f"jdbc:sqlite:{self.path}", "jdbc.busy_timeout": str(BUSY_SECONDS * 1000)}
