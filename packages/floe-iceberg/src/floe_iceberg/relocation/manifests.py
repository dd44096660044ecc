"""Manifest lists and manifests with new addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent
from pyiceberg.typedef import Record

from floe_iceberg.relocation.avro_records import Fields, changed_records
from floe_iceberg.relocation.delete_files import FILE_PATH, RewrittenDeletes

__all__ = ["NewFiles", "moved_manifest", "moved_manifest_list"]

# Field ids of Iceberg's specification.
_MANIFEST_PATH, _MANIFEST_LENGTH = 500, 501
_DATA_FILE, _CONTENT, _PATH, _SIZE, _REFERENCED = 2, 134, 100, 104, 143
_COLUMN_SIZES, _SPLIT_OFFSETS, _LOWER, _UPPER = 108, 132, 125, 128


@dataclass(frozen=True)
class NewFiles:
    """The new addresses of one table, and its files that were written again, by their old addresses."""

    new: Callable[[str], str]
    sizes: Mapping[str, int]
    deletes: Mapping[str, RewrittenDeletes]


def moved_manifest_list(content: bytes, files: NewFiles) -> bytes | None:
    """The manifest list with the new addresses and sizes of its manifests; None if nothing changes."""

    def changer(fields: Fields) -> Callable[[Record], bool]:
        def change(manifest: Record) -> bool:
            old = fields.get(manifest, _MANIFEST_PATH)
            if files.new(old) == old:
                return False
            fields.set(manifest, _MANIFEST_PATH, files.new(old))
            fields.set(manifest, _MANIFEST_LENGTH, files.sizes.get(old, fields.get(manifest, _MANIFEST_LENGTH)))
            return True

        return change

    return changed_records(content, changer)


def moved_manifest(content: bytes, files: NewFiles) -> bytes | None:
    """The manifest with the new addresses of its files; None if nothing changes.

    Entries of files that a commit removed are changed as well: they are read by changelogs and by expiry.
    """

    def changer(fields: Fields) -> Callable[[Record], bool]:
        of_file = fields.of(_DATA_FILE)

        def change(entry: Record) -> bool:
            file: Record = fields.get(entry, _DATA_FILE)
            old = _change_path(file, of_file, _PATH, files.new)
            referenced = _change_path(file, of_file, _REFERENCED, files.new)
            if old is not None and of_file.get(file, _CONTENT) == DataFileContent.POSITION_DELETES.value:
                _describe_deletes(file, of_file, files.deletes.get(old))
            return old is not None or referenced is not None

        return change

    return changed_records(content, changer)


def _change_path(file: Record, fields: Fields, place: int, new: Callable[[str], str]) -> str | None:
    """The old address, if the field has one that changes."""
    old = fields.get(file, place)
    if old is None or new(old) == old:
        return None
    fields.set(file, place, new(old))
    return str(old)


def _describe_deletes(file: Record, fields: Fields, rewritten: RewrittenDeletes | None) -> None:
    """Set what differs in a delete file that was written again.

    Without one, the file was removed by a commit, and its paths are not known: their bounds, which are optional, go.
    """
    for place, path in (
        (_LOWER, rewritten.first if rewritten else None),
        (_UPPER, rewritten.last if rewritten else None),
    ):
        bounds = dict(fields.get(file, place) or {})
        if bounds.pop(FILE_PATH, None) is not None:
            fields.set(file, place, bounds if path is None else {**bounds, FILE_PATH: path.encode()})
    if rewritten is None:
        return
    fields.set(file, _SIZE, rewritten.size)
    if rewritten.column_sizes and fields.get(file, _COLUMN_SIZES):
        fields.set(file, _COLUMN_SIZES, {**fields.get(file, _COLUMN_SIZES), **rewritten.column_sizes})
    if rewritten.split_offsets and fields.get(file, _SPLIT_OFFSETS):
        fields.set(file, _SPLIT_OFFSETS, rewritten.split_offsets)
