"""Which privileges of Polaris an operation needs, so that a refusal can name what to grant."""

from __future__ import annotations

__all__ = ["privileges_for"]

_PRIVILEGES: dict[str, tuple[str, ...]] = {
    "LIST_NAMESPACES": ("NAMESPACE_LIST",),
    "CREATE_NAMESPACE": ("NAMESPACE_CREATE",),
    "NAMESPACE_EXISTS": ("NAMESPACE_LIST",),
    "LOAD_NAMESPACE_METADATA": ("NAMESPACE_READ_PROPERTIES",),
    "UPDATE_NAMESPACE_PROPERTIES": ("NAMESPACE_WRITE_PROPERTIES",),
    "DROP_NAMESPACE": ("NAMESPACE_DROP",),
    "LIST_TABLES": ("TABLE_LIST",),
    "TABLE_EXISTS": ("TABLE_LIST",),
    "CREATE_TABLE_DIRECT": ("TABLE_CREATE",),
    "CREATE_TABLE_DIRECT_WITH_WRITE_DELEGATION": ("TABLE_CREATE", "TABLE_WRITE_DATA"),
    "CREATE_TABLE_STAGED": ("TABLE_CREATE",),
    "CREATE_TABLE_STAGED_WITH_WRITE_DELEGATION": ("TABLE_CREATE", "TABLE_WRITE_DATA"),
    "REGISTER_TABLE": ("TABLE_CREATE",),
    "LOAD_TABLE": ("TABLE_READ_PROPERTIES",),
    "LOAD_TABLE_WITH_READ_DELEGATION": ("TABLE_READ_DATA",),
    "LOAD_TABLE_WITH_WRITE_DELEGATION": ("TABLE_WRITE_DATA",),
    "UPDATE_TABLE": ("TABLE_WRITE_PROPERTIES",),
    "UPDATE_TABLE_FOR_STAGED_CREATE": ("TABLE_CREATE",),
    "DROP_TABLE_WITHOUT_PURGE": ("TABLE_DROP",),
    "DROP_TABLE_WITH_PURGE": ("TABLE_DROP", "TABLE_WRITE_DATA"),
    "RENAME_TABLE": ("TABLE_DROP", "TABLE_LIST", "TABLE_CREATE"),
}


def privileges_for(operation: str) -> tuple[str, ...]:
    """The privileges that this operation needs; empty if it is not known."""
    return _PRIVILEGES.get(operation, ())
