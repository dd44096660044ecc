"""The new files of one table: written beside the old ones, which are neither changed nor deleted."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from floe_core.errors import FloeStorageError
from floe_iceberg.files.former_folders import local_address
from floe_iceberg.relocation.contents import Contents
from floe_iceberg.relocation.delete_files import RewrittenDeletes, moved_deletes
from floe_iceberg.relocation.manifests import NewFiles, moved_manifest, moved_manifest_list
from floe_iceberg.relocation.metadata_files import document_bytes, moved_document, new_version_name, read_document
from floe_iceberg.relocation.paths import MovedPaths

__all__ = ["TableRewrite"]


class TableRewrite:
    """Writes the files of one table that hold addresses, each under a new name.

    Args:
        document: The metadata of the table.
        paths: Where its files are now.
    """

    def __init__(self, document: dict[str, Any], paths: MovedPaths) -> None:
        self._document = document
        self._paths = paths
        self._renamed: dict[str, str] = {}  # the addresses of files that were written again
        self._sizes: dict[str, int] = {}
        self._deletes: dict[str, RewrittenDeletes] = {}
        self._uuid = uuid.uuid4()
        self.written: list[Path] = []

    def new(self, address: str) -> str:
        """The new address of a file; any other text stays as it is."""
        return self._renamed.get(address) or self._paths.new(address)

    def write(self, contents: Contents, recorded: str) -> tuple[str, str | None]:
        """Write all files; returns the addresses of the new metadata file and of the version before it.

        Args:
            contents: What the table references.
            recorded: The address of its metadata file, as recorded.
        """
        for number, (address, file_format) in enumerate(contents.position_deletes.items()):
            rewritten = moved_deletes(self._read(address), file_format, self._paths.new)
            if rewritten is not None:
                content, self._deletes[address] = rewritten
                name = f"{number:05d}-0-{self._uuid}-deletes{Path(address).suffix}"
                self._write(address, name, content, among="data")
        files = NewFiles(self.new, self._sizes, self._deletes)
        for number, address in enumerate(contents.manifests):
            manifest = moved_manifest(self._read(address), files)
            if manifest is not None:
                self._sizes[address] = len(manifest)
                self._write(address, f"{self._uuid}-m{number}.avro", manifest)
        for address, snapshot_id in contents.manifest_lists.items():
            manifest_list = moved_manifest_list(self._read(address), files)
            if manifest_list is not None:
                self._write(address, f"snap-{snapshot_id}-0-{self._uuid}.avro", manifest_list)
        previous = self._write_earlier_versions()
        self._write_document(recorded, self._document)
        return self.new(recorded), previous

    def _write_earlier_versions(self) -> str | None:
        """The metadata files of the log that moved; a damaged one is named where it is now, as it is."""
        log = [entry["metadata-file"] for entry in self._document.get("metadata-log") or ()]
        for address in log:
            path = local_address(self._paths.new(address))
            if self._paths.is_old(address) and path is not None and Path(path).is_file():
                try:
                    self._write_document(address, read_document(path))
                except FloeStorageError:
                    continue
        return self.new(log[-1]) if log else None

    def _write_document(self, address: str, document: dict[str, Any]) -> None:
        name = new_version_name(address.rpartition("/")[2])
        self._write(address, name, document_bytes(moved_document(document, self.new), name))

    def _read(self, address: str) -> bytes:
        return self._path(self._paths.new(address)).read_bytes()

    def _write(self, address: str, name: str, content: bytes, *, among: str = "metadata") -> None:
        """Write the successor of a file into its folder, or into the table's own if the file is not in it."""
        place = self._paths.new(address)
        if self._paths.is_old(address) or self._path(place).is_relative_to(self._path(self._paths.warehouse.new)):
            folder = place.rpartition("/")[0]
        else:
            folder = f"{self._paths.new(self._document['location'])}/{among}"
        path = self._path(f"{folder}/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.written.append(path)
        with path.open("xb") as file:
            file.write(content)
        self._renamed[address] = f"{folder}/{name}"

    def _path(self, address: str) -> Path:
        path = local_address(address)
        if path is None:
            raise FloeStorageError(f"{address} is not a file on this machine, so its paths cannot be rewritten")
        return Path(path)

    def discard(self) -> None:
        """Delete what was written; only before the catalog names it."""
        for path in self.written:
            path.unlink(missing_ok=True)
