"""Mask known secrets in what Dagster stores: events, and the texts of ticks, backfills and daemons."""

from __future__ import annotations

from typing import Any, TypeVar

from dagster import EventLogEntry

from floe_core.security import knows_secrets, redact
from floe_dagster._dagster.names import pack_value, unpack_value

__all__ = ["redacted", "with_redacted"]

Stored = TypeVar("Stored")

# Fields with free text. Names of runs, steps, assets and partitions are not masked: Dagster looks events up by them.
_FREE_TEXT = frozenset(
    {"description", "error", "error_info", "message", "metadata", "metadata_entries", "user_failure_data"}
    | {"user_message"}
)
_TYPE_NAMES = ("__class__", "__enum__")
_NAMES = {("AssetKey", "path"), ("SerializableErrorInfo", "cls_name")}
_ENTRY = "EventMetadataEntry"
# Floe reads these back to find lost writes. They are never masked: a secret may happen to equal an ordinary word.
_READ_BACK = frozenset(
    {"dagster/table_name", "floe/branch", "floe/partitions", "floe/snapshot_id", "floe/table_uuid", "floe/write_id"}
)
_OWN_LABELS = ("floe/", "dagster/")


def redacted(event: EventLogEntry) -> EventLogEntry:
    """The event with every protected value masked in its messages, errors and metadata."""
    if not knows_secrets():
        return event
    packed = pack_value(event)
    # Value by value: serialized JSON escapes quotes and backslashes, so a secret would not match.
    clean = _without_secrets(packed, free=False)
    return event if clean == packed else unpack_value(clean, as_type=EventLogEntry)


def with_redacted(record: Stored, *fields: str) -> Stored:
    """The record (a named tuple of Dagster) with every protected value masked in these fields."""
    if not knows_secrets():
        return record
    named: Any = record
    given = {name: getattr(named, name) for name in fields}
    replaced: Stored = named._replace(
        **{name: unpack_value(_without_secrets(pack_value(value), free=True)) for name, value in given.items()}
    )
    return replaced


def _without_secrets(value: Any, *, free: bool) -> Any:
    if isinstance(value, str):
        return redact(value) if free else value
    if isinstance(value, list):
        return [_without_secrets(item, free=free) for item in value]
    if isinstance(value, dict):
        return _object_without_secrets(value, free=free)
    return value


def _object_without_secrets(value: dict[str, Any], *, free: bool) -> dict[str, Any]:
    kind = value.get("__class__")
    if kind == _ENTRY and value["label"] in _READ_BACK:
        return value
    is_plain = free and not any(
        key.startswith("__") for key in value
    )  # a user's own mapping, whose keys may be any text
    return {
        redact(key) if is_plain and not key.startswith(_OWN_LABELS) else key: (
            item if _is_name(kind, key, item) else _without_secrets(item, free=free or key in _FREE_TEXT)
        )
        for key, item in value.items()
    }


def _is_name(kind: str | None, key: str, item: Any) -> bool:
    """Whether the value is a name that code looks up."""
    if kind == _ENTRY and key == "label":
        return str(item).startswith(_OWN_LABELS)
    return key in _TYPE_NAMES or (kind, key) in _NAMES
