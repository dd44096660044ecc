"""The doubt protocol: after a commit failed, is it in the table, is it not, or can nobody say?

A lost answer, a 503 or a time-out does not tell, and even a conflict may be reported after the server acted. The write
id tells: a commit carries it in its snapshot's summary. Whoever wants to repeat a commit, report its failure or delete
its files asks here first.

    COMMITTED      the write is in the table: it succeeded, whatever was raised.
    NOT_COMMITTED  it is not in the table as looked at. The first request may still be under way, so a repetition must
                   be pinned to the head of `table`: if it then meets a conflict, ask again.
    UNKNOWN        the table cannot be looked at: raise CommitStateUnknownError, delete nothing.
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
from floe_iceberg.snapshots import find_writes

if TYPE_CHECKING:
    from floe_iceberg.write_request import WriteRequest

__all__ = ["Outcome", "Verdict", "advice", "only_one", "settle", "undecided", "unknown"]

_LOOKS = 5


class Outcome(Enum):
    """What became of a commit."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Verdict:
    """The outcome, the snapshot if there is one, and the table as it was looked at."""

    outcome: Outcome
    snapshot: SnapshotInfo | None = None
    table: Table | None = None


def settle(
    look: Callable[[], Table | None], identifier: TableIdentifier, write_id: str, *, branch: str = MAIN_BRANCH
) -> Verdict:
    """Look the write up. `look` loads the table as it is now, or returns None while it does not exist."""
    try:
        for attempt in Retrying(
            # A table that was dropped does not come back by looking again.
            retry=retry_if_not_exception_type(TableNotFoundError),
            stop=stop_after_attempt(_LOOKS),
            wait=wait_random_exponential(0.1, max=2),
            reraise=True,
        ):
            with attempt:
                table = look()
    except TableNotFoundError:
        raise
    except Exception:  # noqa: BLE001 - whatever it was, nobody can say
        return Verdict(Outcome.UNKNOWN)
    found = find_writes(table, write_id, branch=branch) if table is not None else []
    if found:
        return Verdict(Outcome.COMMITTED, only_one(found, identifier), table)
    return Verdict(Outcome.NOT_COMMITTED, table=table)


def only_one(found: list[SnapshotInfo], identifier: TableIdentifier) -> SnapshotInfo:
    """The snapshot of a write; two of them are an error that only its owner can mend."""
    if len(found) > 1:
        raise CommitStateUnknownError(
            f"two attempts of one write to '{identifier}' ran at the same time and both are there: snapshots "
            f"{', '.join(str(one.snapshot_id) for one in found)}. Look at their rows and take one of them back"
        )
    return found[0]


def unknown(request: WriteRequest) -> CommitStateUnknownError:
    """The error for a commit whose outcome is unknown because the table cannot be loaded."""
    return CommitStateUnknownError(
        f"the commit of write {request.write_id} to '{request.identifier}' may have succeeded, and the table cannot be "
        f"loaded now. Nothing was deleted. When the catalog answers again: {advice(request)}"
    )


def undecided(request: WriteRequest, *, reason: str) -> CommitStateUnknownError:
    """The error for a commit that is not in the table, but may still arrive."""
    return CommitStateUnknownError(
        f"{reason} Write {request.write_id} is not in '{request.identifier}' now; it may still arrive. Nothing was "
        f"deleted. {advice(request, wait=True)}"
    )


def advice(request: WriteRequest, *, wait: bool = False) -> str:
    """How to find out what became of a write, wherever it was started: a new run has another write id."""
    artifacts = request.manager.artifacts
    # The other environments have other tables of the same name, without the write.
    lake = f"environment={artifacts.environment!r}" if artifacts is not None and artifacts.environment else ""
    where = "" if request.branch == MAIN_BRANCH else f", branch={request.branch!r}"
    return (
        f"Before you run it again, {'wait a few minutes and ' if wait else ''}check whether the write is in the table: "
        f"connect({lake}).tables.find_write({str(request.identifier)!r}, {request.write_id!r}{where}) returns its "
        f"snapshot, or None. If it is there, it is done. A write with the same write_id, and a Dagster re-execution "
        f"from failure, check this by themselves; a new run has another id and does not"
    )
