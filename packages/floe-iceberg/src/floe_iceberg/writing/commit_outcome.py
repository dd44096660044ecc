"""The outcome of a commit that failed: committed, not committed, or unknown.

A lost response, a 503 or a timeout leaves it open, and even a conflict may be reported after the server applied the
commit. The write id decides: a commit carries it in its snapshot's summary. Resolve the outcome before a commit is
retried, its failure is reported or its files are deleted.

    COMMITTED      the write is in the table: it succeeded, whatever was raised.
    NOT_COMMITTED  it is not in the table as loaded. The first request may still be in flight, so a retry must be
                   pinned to the head of `table`: if it meets a conflict, resolve the outcome again.
    UNKNOWN        the table cannot be loaded: raise CommitStateUnknownError, delete nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from tenacity import Retrying, retry_if_not_exception_type, stop_after_attempt, wait_random_exponential

from floe_core.errors import CommitStateUnknownError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_core.models import SnapshotInfo
from floe_iceberg.snapshots.snapshots import find_writes

if TYPE_CHECKING:
    from floe_iceberg.manager import IcebergTableManager
    from floe_iceberg.writing.request import WriteRequest

__all__ = ["CommitOutcome", "Outcome", "advice", "resolve_outcome", "single_snapshot", "undecided", "unknown"]

_LOOKS = 5


class Outcome(Enum):
    """The outcome of a commit."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class CommitOutcome:
    """The outcome, the snapshot if there is one, and the table as it was loaded."""

    outcome: Outcome
    snapshot: SnapshotInfo | None = None
    table: Table | None = None

    @property
    def seen(self) -> Table:
        """The table that contains the committed write."""
        if self.table is None:
            raise AssertionError("a write that was found has a table")
        return self.table


def resolve_outcome(
    look: Callable[[], Table | None], identifier: TableIdentifier, write_id: str, *, branch: str = MAIN_BRANCH
) -> CommitOutcome:
    """Search the table for the write. `look` loads the current table, or returns None if it does not exist."""
    try:
        for attempt in Retrying(
            # A retry does not bring back a table that was dropped.
            retry=retry_if_not_exception_type(TableNotFoundError),
            stop=stop_after_attempt(_LOOKS),
            wait=wait_random_exponential(0.1, max=2),
            reraise=True,
        ):
            with attempt:
                table = look()
    except TableNotFoundError:
        raise
    except Exception:  # noqa: BLE001 - on any error the outcome is unknown
        return CommitOutcome(Outcome.UNKNOWN)
    snapshots = find_writes(table, write_id, branch=branch) if table is not None else []
    if snapshots:
        return CommitOutcome(Outcome.COMMITTED, single_snapshot(snapshots, identifier), table)
    return CommitOutcome(Outcome.NOT_COMMITTED, table=table)


def single_snapshot(found: list[SnapshotInfo], identifier: TableIdentifier) -> SnapshotInfo:
    """The snapshot of a write; two of them are an error that only the table's owner can resolve."""
    if len(found) > 1:
        raise CommitStateUnknownError(
            f"two attempts of one write to '{identifier}' ran at the same time and both are committed: snapshots "
            f"{', '.join(str(snapshot.snapshot_id) for snapshot in found)}. Compare their rows and undo one of them"
        )
    return found[0]


def unknown(request: WriteRequest, tables: IcebergTableManager) -> CommitStateUnknownError:
    """The error for a commit whose outcome is unknown because the table cannot be loaded."""
    return CommitStateUnknownError(
        f"the commit of write {request.write_id} to '{request.identifier}' may have succeeded, and the table cannot be "
        f"loaded now. Nothing was deleted. When the catalog answers again: {advice(request, tables)}"
    )


def undecided(request: WriteRequest, tables: IcebergTableManager, *, reason: str) -> CommitStateUnknownError:
    """The error for a commit that is not in the table, but may still arrive."""
    return CommitStateUnknownError(
        f"{reason} Write {request.write_id} is not in '{request.identifier}' now; it may still arrive. Nothing was "
        f"deleted. {advice(request, tables, wait=True)}"
    )


def advice(request: WriteRequest, tables: IcebergTableManager, *, wait: bool = False) -> str:
    """How to resolve the outcome of a write, from any process: a new run has another write id."""
    artifacts = tables.artifacts
    # A table of the same name in another environment does not contain the write.
    lake = f"environment={artifacts.environment!r}" if artifacts is not None and artifacts.environment else ""
    where = "" if request.branch == MAIN_BRANCH else f", branch={request.branch!r}"
    return (
        f"Before you run it again, {'wait a few minutes and ' if wait else ''}check whether the write is in the table: "
        f"connect({lake}).tables.find_write({str(request.identifier)!r}, {request.write_id!r}{where}) returns its "
        f"snapshot, or None. If it is there, it is done. A write with the same write_id, and a Dagster re-execution "
        f"from failure, check this by themselves; a new run has another id and does not"
    )
