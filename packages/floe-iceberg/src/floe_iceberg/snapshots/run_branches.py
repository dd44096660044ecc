"""The branches to which an atomic run writes, and the mark of a table that is not published yet."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from floe_core.errors import TableNotFoundError
from floe_core.identifiers import TableIdentifier

__all__ = [
    "UNPUBLISHED",
    "refuse_unpublished",
    "run_branch",
    "runs_of_branches",
    "undone_mark",
    "unpublished_by",
]

# The table property that names the run which created the table and has not published it.
UNPUBLISHED = "floe.unpublished"
_PREFIX = "floe-run-"
# Begins the mark of a table whose run was undone: it has the rows still, below a tag.
_UNDONE = "undone:"


def run_branch(run_id: str) -> str:
    """The branch of an atomic run, in each table that it writes."""
    return f"{_PREFIX}{run_id}"


def runs_of_branches(table: Table) -> dict[str, int]:
    """The runs that have a branch of this table, with its head."""
    return {
        name.removeprefix(_PREFIX): ref.snapshot_id
        for name, ref in table.metadata.refs.items()
        if name.startswith(_PREFIX) and ref.snapshot_ref_type is SnapshotRefType.BRANCH
    }


def undone_mark(run_id: str) -> str:
    """The mark of a table whose run created it and was undone."""
    return f"{_UNDONE}{run_id}"


def unpublished_by(properties: Mapping[str, str]) -> str | None:
    """The run that created the table and has not published it; None for a published table."""
    return properties.get(UNPUBLISHED) or None


def refuse_unpublished(table: Table, identifier: TableIdentifier) -> None:
    """Refuse to read main of a table that its run has not published."""
    run_id = unpublished_by(table.properties)
    if run_id is not None and run_id.startswith(_UNDONE):
        run_id = run_id.removeprefix(_UNDONE)
        raise TableNotFoundError(
            f"'{identifier}' counts as absent: run {run_id}, which created it, was undone. To bring it back: "
            f"floe undo {run_id} --restore"
        )
    if run_id is not None:
        raise TableNotFoundError(
            f"'{identifier}' is not published yet: run {run_id} created it. What it wrote is on its branch, "
            f"ref={run_branch(run_id)!r}"
        )
