"""Damage done to the files of a table."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.avro.file import AvroFile
from pyiceberg.table import Table
from pyiceberg.typedef import Record

__all__ = ["TABLE_FILES", "damage", "file_of", "header_only"]

TABLE_FILES = ("metadata", "manifest list", "manifest", "data")
_SYNC = 16


def file_of(table: Table, kind: str) -> Path:
    """The newest file of a kind that the head needs."""
    if kind == "metadata":
        location = table.metadata_location
    else:
        head = table.current_snapshot()
        assert head is not None
        newest = max(head.manifests(table.io), key=lambda one: one.sequence_number)
        location = {
            "manifest list": head.manifest_list,
            "manifest": newest.manifest_path,
            "data": newest.fetch_manifest_entry(table.io)[0].data_file.file_path,
        }[kind]
    return Path(location.removeprefix("file://").removeprefix("file:"))


def damage(table: Table, kind: str, how: str) -> Path:
    """Damage a file as a crash, a full disk or a wrong copy does, and return its path."""
    path = file_of(table, kind)
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
        return path
    path.write_bytes(
        {
            "half": content[: len(content) // 2],
            "empty": b"",
            "garbage": b"\xff\x00garbage" * 50,
            "zeros": b"\x00" * len(content),
        }[how]
    )
    return path


def header_only(table: Table, kind: str) -> Path:
    """Cut an Avro file off after its header: a valid file with no entries."""
    path = file_of(table, kind)
    content = path.read_bytes()
    file: AvroFile[Record] = AvroFile(table.io.new_input(f"file://{path}"))
    with file:
        end = content.index(file.header.sync) + _SYNC
    path.write_bytes(content[:end])
    return path
