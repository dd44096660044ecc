"""One table of a lake that moved: its metadata and what it references, read from where the files are now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from floe_iceberg.files.former_folders import local_address
from floe_iceberg.relocation.contents import Contents, FilesElsewhere, contents_of, file_size
from floe_iceberg.relocation.delete_files import FORMATS
from floe_iceberg.relocation.metadata_files import read_document
from floe_iceberg.relocation.paths import MovedPaths

__all__ = ["MovedTable", "load_moved"]


@dataclass(frozen=True)
class MovedTable:
    """A table as the catalog recorded it, and where its files are now."""

    recorded: str
    paths: MovedPaths
    document: dict[str, Any]
    metadata: TableMetadata
    contents: Contents

    def written_again(self) -> list[str]:
        """The files that hold addresses, where they are now; the log may name files that are gone."""
        log = [entry.metadata_file for entry in self.metadata.metadata_log]
        contents = self.contents
        every = (*contents.position_deletes, *contents.manifests, *contents.manifest_lists, *log, self.recorded)
        now = [self.paths.new(address) for address in every]
        return [address for address in now if file_size(address) is not None]

    def outside(self) -> list[str]:
        """The referenced files that did not move."""
        return [address for address in self.contents.addresses() if not self.paths.is_old(address)]

    def problems(self, *, is_copy: bool) -> Iterator[str]:
        """Why its paths cannot be rewritten.

        Args:
            is_copy: The original lake still exists, and may share no file with this one.
        """
        yield from self.contents.problems
        for address, file_format in self.contents.position_deletes.items():
            if file_format not in FORMATS:
                yield (
                    f"{self.paths.new(address)} is a position delete file in {file_format}, whose paths Floe does not "
                    f"rewrite: move the lake back, compact the table with floe maintain run, and move it again"
                )
        for address in self.outside() if is_copy else ():
            if self.paths.is_in_old_project(address):
                yield f"{address} is a file of the original lake, and is not in the copy"


def load_moved(recorded: str, paths: MovedPaths) -> MovedTable:
    """Read a table.

    Args:
        recorded: The address of its metadata file, as the catalog has it.
        paths: Where its files are now.
    """
    path = paths.new(recorded)
    metadata = FromInputFile.table_metadata(FilesElsewhere(paths.new).new_input(recorded))
    document = read_document(local_address(path) or path)
    return MovedTable(recorded, paths, document, metadata, contents_of(metadata, paths.new))
