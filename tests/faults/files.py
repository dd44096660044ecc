"""The files of a table: those on disk, and those its metadata leads to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.table import Table

from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager

__all__ = ["KeptFiles", "files_on_disk", "files_reached"]


def files_on_disk(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()} if folder.is_dir() else set()


def files_reached(table: Table) -> set[Path]:
    """Every file that some snapshot of the table needs, and the metadata file itself."""
    found = {table.metadata_location}
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return {_path(location) for location in found}


class KeptFiles:
    """Remembers every file that ever was, to see that none of them went."""

    def __init__(self, tables: IcebergTableManager, identifier: TableIdentifier) -> None:
        self.folder = _path(f"{tables.storage_plugin.get_warehouse_uri('.'.join(identifier.namespace))}")
        self._seen: set[Path] = set()
        self.look()

    def look(self) -> set[Path]:
        """Remember what is there now, and return it."""
        now = files_on_disk(self.folder)
        self._seen |= now
        return now

    @contextmanager
    def around(self) -> Iterator[None]:
        """Remember what is there before and after something happens."""
        self.look()
        try:
            yield
        finally:
            self.look()

    @property
    def gone(self) -> set[Path]:
        return self._seen - files_on_disk(self.folder)


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://").removeprefix("file:"))
