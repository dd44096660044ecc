"""Table metadata files as JSON documents. What Floe does not know in them stays as it is."""

from __future__ import annotations

import gzip
import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from floe_core.errors import FloeStorageError

__all__ = ["document_bytes", "moved_document", "new_version_name", "read_document"]

_GZIP = b"\x1f\x8b"
_VERSION = re.compile(r"v?(\d+)\b")


def read_document(path: str) -> dict[str, Any]:
    """The document in a metadata file, compressed or not; FloeStorageError if it holds none."""
    content = Path(path).read_bytes()
    try:
        document = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
        if isinstance(document, dict) and isinstance(document["location"], str):
            return document
    except (ValueError, KeyError, EOFError, gzip.BadGzipFile) as exc:
        raise FloeStorageError(f"the metadata file {path} is damaged ({type(exc).__name__})") from exc
    raise FloeStorageError(f"the metadata file {path} is not the metadata of a table")


def document_bytes(document: dict[str, Any], name: str) -> bytes:
    """The content of a metadata file of this name, compressed if the name says so."""
    content = json.dumps(document, ensure_ascii=False).encode()
    return gzip.compress(content, mtime=0) if ".gz" in name else content


def new_version_name(name: str) -> str:
    """A new name for a metadata file of the same version: engines take the number of the next one from it."""
    match = _VERSION.match(name)
    suffix = ".gz.metadata.json" if ".gz" in name else ".metadata.json"
    return f"{int(match[1]) if match else 0:05d}-{uuid.uuid4()}{suffix}"


def moved_document(document: dict[str, Any], new: Callable[[str], str]) -> dict[str, Any]:
    """The document with new addresses: of the table, in its properties, and of all files that it names.

    Args:
        document: The document, which is not changed.
        new: The new address of an old one; any other text stays as it is.
    """
    moved = {**document, "location": new(document["location"])}
    moved["properties"] = {key: new(value) for key, value in document.get("properties", {}).items()}
    for key, field in (
        ("snapshots", "manifest-list"),
        ("metadata-log", "metadata-file"),
        ("statistics", "statistics-path"),
        ("partition-statistics", "statistics-path"),
    ):
        if any(field not in entry for entry in document.get(key) or ()):
            raise FloeStorageError("a snapshot has no manifest list, as in the first version of Iceberg")
        if document.get(key):
            moved[key] = [{**entry, field: new(entry[field])} for entry in document[key]]
    return moved
