"""Dagster's events as they may be stored: without the secrets that Floe knows."""

from __future__ import annotations

from typing import Any

from dagster._core.events.log import EventLogEntry
from dagster._serdes import pack_value, serialize_value, unpack_value

from floe_core.redaction import redact

__all__ = ["redacted"]

# What people and exceptions write. Names of runs, steps, assets and partitions are kept: Dagster finds events by them.
_FREE_TEXT = frozenset(
    {"description", "error", "error_info", "message", "metadata", "metadata_entries", "user_failure_data"}
    | {"user_message"}
)
_TYPE_NAMES = ("__class__", "__enum__")


def redacted(event: EventLogEntry) -> EventLogEntry:
    """The event with every protected value masked in its messages, errors and metadata."""
    text = serialize_value(event)
    if redact(text) == text:
        return event
    return unpack_value(_without_secrets(pack_value(event), free=False), as_type=EventLogEntry)


def _without_secrets(value: Any, *, free: bool) -> Any:
    if isinstance(value, str):
        return redact(value) if free else value
    if isinstance(value, list):
        return [_without_secrets(one, free=free) for one in value]
    if isinstance(value, dict):
        return {
            key: item if key in _TYPE_NAMES else _without_secrets(item, free=free or key in _FREE_TEXT)
            for key, item in value.items()
        }
    return value
