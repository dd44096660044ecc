"""The metadata of a table after updates, which shares unchanged parts with the metadata before them.

PyIceberg deep-copies every snapshot and every log entry, a dozen times per commit. They are frozen, so that sharing
them is safe.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate, update_table_metadata
from pyiceberg.utils.datetime import datetime_to_millis

from floe_core.engines import private_names

with private_names("pyiceberg", "the cost of a commit does not grow with the number of snapshots"):
    from pyiceberg.table.update import (
        _apply_table_update,
        _TableMetadataUpdateContext,
        _update_table_metadata_log,
    )

__all__ = ["REPLACEMENTS"]

_original_update = update_table_metadata


def _update_sharing(
    base_metadata: TableMetadata,
    updates: tuple[TableUpdate, ...],
    enforce_validation: bool = False,
    metadata_location: str | None = None,
) -> TableMetadata:
    if enforce_validation:
        return _original_update(base_metadata, updates, enforce_validation, metadata_location)
    context, metadata = _TableMetadataUpdateContext(), base_metadata
    for update in updates:
        metadata = _apply_table_update(update, metadata, context)
    if context.has_changes():
        if metadata_location:
            metadata = _update_table_metadata_log(metadata, metadata_location, base_metadata.last_updated_ms)
        if base_metadata.last_updated_ms == metadata.last_updated_ms:
            metadata = metadata.model_copy(update={"last_updated_ms": datetime_to_millis(datetime.now().astimezone())})
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata.model_copy(update=_containers(metadata))


def _containers(metadata: TableMetadata) -> dict[str, Any]:
    """Shallow copies of the lists and dictionaries of the metadata."""
    return {name: value.copy() for name, value in metadata if isinstance(value, list | dict)}


REPLACEMENTS: dict[str, Any] = {"pyiceberg.table.update:update_table_metadata": _update_sharing}
