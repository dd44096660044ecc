"""Which privileges of Polaris an operation needs, so that a refusal can name what to grant."""

from __future__ import annotations

__all__ = ["privileges_for"]

_READ, _WRITE, _CREATE = "TABLE_READ_DATA", "TABLE_WRITE_DATA", "TABLE_CREATE"
_PRIVILEGES: dict[str, tuple[str, ...]] = {
    "LIST_NAMESPACES": ("NAMESPACE_LIST",),
    "CREATE_NAMESPACE": ("NAMESPACE_CREATE",),
    "NAMESPACE_EXISTS": ("NAMESPACE_LIST",),
    "LOAD_NAMESPACE_METADATA": ("NAMESPACE_READ_PROPERTIES",),
    "UPDATE_NAMESPACE_PROPERTIES": ("NAMESPACE_WRITE_PROPERTIES",),
    "DROP_NAMESPACE": ("NAMESPACE_DROP",),
    "LIST_TABLES": ("TABLE_LIST",),
    "TABLE_EXISTS": ("TABLE_LIST",),
    "CREATE_TABLE_DIRECT": (_CREATE,),
    "CREATE_TABLE_DIRECT_WITH_WRITE_DELEGATION": (_CREATE, _WRITE),
    "CREATE_TABLE_STAGED": (_CREATE,),
    "CREATE_TABLE_STAGED_WITH_WRITE_DELEGATION": (_CREATE, _WRITE),
    "REGISTER_TABLE": (_CREATE,),
    "REGISTER_TABLE_WITH_READ_DELEGATION": (_CREATE, _READ),
    "REGISTER_TABLE_WITH_WRITE_DELEGATION": (_CREATE, _WRITE),
    "LOAD_TABLE": ("TABLE_READ_PROPERTIES",),
    # Polaris tries to let its caller write, then to let it read, and tells of the second only.
    "LOAD_TABLE_WITH_READ_DELEGATION": (f"{_READ} (to write: {_WRITE})",),
    "LOAD_TABLE_WITH_WRITE_DELEGATION": (_WRITE,),
    "UPDATE_TABLE_FOR_STAGED_CREATE": (_CREATE,),
    "DROP_TABLE_WITHOUT_PURGE": ("TABLE_DROP",),
    "DROP_TABLE_WITH_PURGE": ("TABLE_DROP", _WRITE),
    "RENAME_TABLE": ("TABLE_DROP", "TABLE_LIST", _CREATE),
    "COMMIT_TRANSACTION": ("TABLE_WRITE_PROPERTIES", _CREATE),
    "REPORT_READ_METRICS": (_READ,),
    "REPORT_WRITE_METRICS": (_WRITE,),
}
# The parts of a commit have privileges of their own, which TABLE_WRITE_DATA includes.
_PARTS_OF_A_COMMIT = ("UPDATE_TABLE", "ADD_TABLE_", "SET_TABLE_", "REMOVE_TABLE_", "ASSIGN_TABLE_", "UPGRADE_TABLE_")


def privileges_for(operation: str) -> tuple[str, ...]:
    """The privileges that this operation needs; empty if it is not known."""
    if operation in _PRIVILEGES:
        return _PRIVILEGES[operation]
    return (_WRITE,) if operation.startswith(_PARTS_OF_A_COMMIT) else ()
