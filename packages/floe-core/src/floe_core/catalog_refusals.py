"""Why a catalog server answers 403, and what to do about it; both engines receive its message as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from floe_core.errors import FloeStorageError, PermissionDeniedError, StorageAuthenticationError

__all__ = ["Refusal", "explain_refusal", "privileges_for", "refused_by_store"]

_ASK = "Ask whoever runs the catalog to grant it"
# How the AWS SDK inside the server reports that the store, or its STS, refused the server itself.
_STORE_REFUSED_SERVER = re.compile(r"\(Service: (S3|Sts), Status Code: 40[13]\b", re.IGNORECASE)
_OVERLAP = re.compile(r"at location '([^']{1,1000})' because it conflicts with existing table or namespace")
# What Polaris forbids for another reason than a missing privilege.
_FORBIDDEN = (
    (
        r"must rotate credentials",
        "Rotate the credentials of the principal first (polaris principals rotate-credentials)",
    ),
    (r"(?i)purge", "Drop it without purge, or have DROP_WITH_PURGE_ENABLED switched on for the catalog"),
    (
        r"(?i)locations?\b",
        (
            "The catalog does not allow this location: leave the location to the catalog, or have it added to the "
            "catalog's allowed locations"
        ),
    ),
)

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
    # Polaris tries write delegation, then read delegation, and reports only the second.
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
    """The privileges that this operation needs; empty if the operation is unknown."""
    if operation in _PRIVILEGES:
        return _PRIVILEGES[operation]
    return (_WRITE,) if operation.startswith(_PARTS_OF_A_COMMIT) else ()


@dataclass(frozen=True)
class Refusal:
    """The error that a 403 means, and its message."""

    error: type[FloeStorageError]
    message: str


def explain_refusal(text: str, *, bearer: str, show: Callable[[str], str]) -> Refusal:
    """The error and message for the message of a 403.

    Args:
        bearer: The caller's name, used if the message does not name a principal.
        show: Redacts and shortens a part of the message.
    """
    overlap = _OVERLAP.search(text)
    if overlap is not None:
        return Refusal(FloeStorageError, _overlap(show(overlap[1])))
    principal = re.search(r"Principal '([^']+)'", text)
    who = show(principal[1]) if principal else bearer
    reason = show(text).rstrip(".") or "it gave no reason"
    if refused_by_store(text):
        return Refusal(StorageAuthenticationError, _store_refused_server(reason, who))
    wanted = re.search(r"not authorized for op (\w{1,80})", text)
    needed = privileges_for(wanted[1]) if wanted else ()
    if needed:
        advice = f"It needs {' and '.join(needed)}: grant that to one of its catalog roles (polaris privileges … grant)"
    else:
        advice = next((remedy for pattern, remedy in _FORBIDDEN if re.search(pattern, text)), _ASK)
    return Refusal(
        PermissionDeniedError,
        f"the catalog knows '{who}' and does not allow {wanted[1] if wanted else 'this'}: {reason}. {advice}",
    )


def refused_by_store(text: str) -> bool:
    """Whether the object store, or its STS, refused the catalog server itself."""
    return _STORE_REFUSED_SERVER.search(text) is not None


def _store_refused_server(reason: str, who: str) -> str:
    return (
        f"the object store refused the catalog server's own key: {reason}. The privileges of '{who}' are not "
        f"the reason: the key or the role that the server uses may not do this in the bucket of the catalog. Ask "
        f"whoever runs the catalog to check that role and the catalog's storage settings (polaris catalogs get)"
    )


def _overlap(location: str) -> str:
    return (
        f"the catalog refuses the location {location}: it holds the files of another table, because a rename leaves "
        f"the files where they are, or because a table was registered from there. Choose another name, or create the "
        f"table with a location of its own: create_table(…, location='{location.rstrip('/')}-2')"
    )
