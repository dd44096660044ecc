"""The branches to which an atomic run or a branch of the lake writes, and the mark of a table that is not published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from floe_core.errors import TableNotFoundError
from floe_core.identifiers import TableIdentifier

__all__ = [
    "UNPUBLISHED",
    "StagingBranch",
    "lake_branch_of",
    "refuse_unpublished",
    "run_branch",
    "runs_of_branches",
    "undone_mark",
    "unpublished_by",
]

# The table property that names the run, or the branch of the lake, which created the table and has not published it.
UNPUBLISHED = "floe.unpublished"
_PREFIX = "floe-run-"
# Begins the mark of a table whose run was undone: it has the rows still, below a tag.
_UNDONE = "undone:"
# Begins the mark of a table that a branch of the lake created.
_LAKE = "branch:"


@dataclass(frozen=True)
class StagingBranch:
    """A branch in which tables are written before they are published.

    Args:
        name: The Iceberg branch.
        mark: What a table is marked with that was created for it.
        start: The snapshot at which it begins. By default main's head.
    """

    name: str
    mark: str
    start: int | None = None

    @classmethod
    def of_run(cls, run_id: str) -> StagingBranch:
        """The branch of an atomic run."""
        return cls(run_branch(run_id), run_id)

    @classmethod
    def of_lake(cls, name: str, start: int | None = None) -> StagingBranch:
        """A branch of the lake."""
        return cls(name, f"{_LAKE}{name}", start)


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


def lake_branch_of(mark: str | None) -> str | None:
    """The branch of the lake that a mark of a table names."""
    return mark.removeprefix(_LAKE) if mark is not None and mark.startswith(_LAKE) else None


def unpublished_by(properties: Mapping[str, str]) -> str | None:
    """The mark of what created the table and has not published it; None for a published table."""
    return properties.get(UNPUBLISHED) or None


def refuse_unpublished(table: Table, identifier: TableIdentifier) -> None:
    """Refuse to read main of a table that is not published."""
    mark = unpublished_by(table.properties)
    if mark is None:
        return
    branch = lake_branch_of(mark)
    if branch is not None:
        raise TableNotFoundError(
            f"'{identifier}' is not published yet: branch {branch!r} of the lake created it. To read it there: "
            f"floe read {identifier} --branch {branch}"
        )
    if mark.startswith(_UNDONE):
        run_id = mark.removeprefix(_UNDONE)
        raise TableNotFoundError(
            f"'{identifier}' counts as absent: run {run_id}, which created it, was undone. To bring it back: "
            f"floe undo {run_id} --restore"
        )
    raise TableNotFoundError(
        f"'{identifier}' is not published yet: run {mark} created it. What it wrote is on its branch, "
        f"ref={run_branch(mark)!r}"
    )
