"""Metadata written for dagster-iceberg: honoured where it means the same in Floe, otherwise refused.

`schema` and `table` are also common keys for descriptions of one's own: only text is read as a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from dagster import MetadataValue, TextMetadataValue
from pydantic import BaseModel

from floe_core.errors import ConfigurationError
from floe_core.identifiers import Namespace, check_name

__all__ = ["PEER_INPUT", "PEER_OUTPUT", "PEER_RUN", "peer_option"]

_PLACES = {"schema": "namespace", "table": "table"}
_NAMED = {"schema": "namespace of the table", "table": "table"}
_REFUSED = {
    "table_properties": "would replace the properties of a table that exists, which Floe never does on a write; for "
    "the properties of a new table say 'floe/table_properties'",
    "schema_update_mode": "would also drop columns, which Floe never does on a write; whether a table gains the "
    "columns of the data is 'floe/schema_evolution_enabled'",
    "partition_field_name_prefix": "is not read: Floe names the fields of new tables itself; for names of your own, "
    "create the table first with create_table(partition_by=[PartitionTransform(…, name=…)])",
}
_SPEC = "partition_spec_update_mode"
_FLAGS = ("when_matched_update_all", "when_not_matched_insert_all")

# The keys read in the metadata of an asset, of an input, and of an output at run time, as dagster-iceberg does.
PEER_OUTPUT = {*_PLACES, *_REFUSED, _SPEC, "upsert_options"}
PEER_INPUT = {*_PLACES}
PEER_RUN = {"upsert_options"}


def peer_option(key: str, value: Any, who: str) -> tuple[str, Any] | None:
    """The Floe option for a dagster-iceberg key; None if the value is a description of the user's own."""
    if key in _REFUSED:
        raise ConfigurationError(f"{who}: metadata {key!r} of dagster-iceberg {_REFUSED[key]}")
    if key == _SPEC:
        return _spec(value.value if isinstance(value, MetadataValue) else value, who)
    if key in _PLACES:
        return _place(key, value, who)
    return _keys(value.value if isinstance(value, MetadataValue) else value, who)


def _place(key: str, value: Any, who: str) -> tuple[str, Any] | None:
    text = value.text if isinstance(value, TextMetadataValue) else value
    if not isinstance(text, str):
        return None
    try:
        Namespace.from_string(text) if key == "schema" else check_name(text)
    except (ValueError, ConfigurationError):
        raise ConfigurationError(
            f"{who}: metadata {key!r} names the {_NAMED[key]}, as in dagster-iceberg, and {text!r} is not a valid "
            f"name; describe columns under dagster/column_schema, and other things under a key of your own"
        ) from None
    return _PLACES[key], text


def _spec(value: Any, who: str) -> tuple[str, Any]:
    mode = value.value if isinstance(value, Enum) else value
    if mode != "update":
        raise ConfigurationError(
            f"{who}: metadata {_SPEC!r} of dagster-iceberg is {mode!r}; leave it out: Floe does not change the "
            f"partitioning of a table unless 'floe/evolve_partitions' is True, and replaces the right rows under any"
        )
    return "evolve_partitions", True


def _keys(value: Any, who: str) -> tuple[str, Any] | None:
    options = value.model_dump() if isinstance(value, BaseModel) else value
    if not isinstance(options, Mapping):
        raise ConfigurationError(f"{who}: upsert_options is {value!r}; say 'upsert_keys' with the columns")
    for name, setting in options.items():
        if name not in ("join_cols", *_FLAGS):
            raise ConfigurationError(f"{who}: upsert_options: {name!r} is none of join_cols, {', '.join(_FLAGS)}")
        if name in _FLAGS and setting is not True:
            raise ConfigurationError(
                f"{who}: upsert_options: {name}={setting!r} is not supported; an upsert updates the rows whose keys it "
                f"finds and inserts the others"
            )
    return ("upsert_keys", options["join_cols"]) if "join_cols" in options else None
