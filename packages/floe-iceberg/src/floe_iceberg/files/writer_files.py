"""The names that Iceberg's writers give to their files; a file with any other name is not considered theirs."""

from __future__ import annotations

import re

__all__ = ["has_file_type", "is_metadata_name", "is_statistics_name", "is_writer_name"]

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# Java writes 00000-1-<uuid>-00001.parquet (-deletes for delete files), PyIceberg and Floe 00000-1-<uuid>.parquet; other
# writers put a prefix of their own before the uuid. It is in every name, so that two writers never choose the same.
_DATA = re.compile(rf".*{_UUID}.*\.(parquet|orc|avro|puffin)", re.IGNORECASE | re.DOTALL)
_METADATA_JSON = re.compile(rf"(v\d+|\d+-{_UUID}|{_UUID})(\.gz)?\.metadata\.json(\.gz)?", re.IGNORECASE)
_MANIFEST = re.compile(
    rf"(snap-\d+-(\d+-)?{_UUID}|{_UUID}-m\d+|optimized-m-{_UUID}|{_UUID}[-_a-z0-9]*)\.avro", re.IGNORECASE
)
_STATISTICS = re.compile(rf".*{_UUID}.*\.(stats|puffin)|partition-stats-.*{_UUID}.*\.(parquet|orc|avro)", re.IGNORECASE)
_TYPES = (".parquet", ".orc", ".avro", ".puffin", ".stats")


def is_metadata_name(name: str) -> bool:
    """Is it the name of a table's metadata file, such as 00003-<uuid>.metadata.json?"""
    return _METADATA_JSON.fullmatch(name) is not None


def is_writer_name(name: str, *, in_metadata: bool) -> bool:
    """Is it a name that Iceberg's writers give to a file, in the metadata folder or among the data?"""
    if not in_metadata:
        return _DATA.fullmatch(name) is not None
    return is_metadata_name(name) or any(kind.fullmatch(name) is not None for kind in (_MANIFEST, _STATISTICS))


def is_statistics_name(name: str) -> bool:
    """Can it be a statistics file? Engines name them freely; their types are Iceberg's own."""
    return name.lower().endswith((".stats", ".puffin")) or _STATISTICS.fullmatch(name) is not None


def has_file_type(name: str) -> bool:
    """Does it have the extension of a file that can be part of a table, whatever its name?"""
    return name.lower().endswith(_TYPES) or is_metadata_name(name)
