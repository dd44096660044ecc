"""What readers, Dagster and incremental consumers would lose if a table were rolled back."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table

from floe_core.identifiers import TableIdentifier
from floe_core.notebooks import Listing, cell_text, facts_html
from floe_iceberg.inspection.history import Commit, commit_of, refs_by_snapshot
from floe_iceberg.snapshots import CURSOR_PREFIX, ancestors_of
from floe_iceberg.snapshots.refs import Revision, check_ancestor, find_snapshot, known_snapshot

__all__ = ["RollbackPlan", "plan_rollback"]


@dataclass(frozen=True)
class RollbackPlan:
    """The effect of a rollback of main.

    Attributes:
        table: The name of the table.
        head: The present head of main.
        to: The snapshot that becomes the head.
        commits: The commits that readers lose, newest first.
        cursors: The tags of assets that have consumed lost commits with `since`; their next run is refused.
    """

    table: str
    head: Commit
    to: Commit
    commits: Listing[Commit]
    cursors: tuple[str, ...]

    def _repr_html_(self) -> str:
        rows = f"{cell_text('rows', self.head.total_rows)} to {cell_text('rows', self.to.total_rows)}"
        facts = [("to snapshot", str(self.to.snapshot_id)), ("rows", rows), ("cursors", self.cursors)]
        return f"{facts_html(f'rollback of {self.table}', facts)}<p>readers lose</p>{self.commits._repr_html_()}"


def plan_rollback(table: Table, identifier: TableIdentifier, to: Revision) -> RollbackPlan:
    """Find the snapshot to roll back to, and what its descendants on main are; refuses one that is not on main."""
    head = known_snapshot(table, identifier, None)
    target = find_snapshot(table, identifier, to)
    check_ancestor(table, identifier, target.snapshot_id)
    refs = refs_by_snapshot(table)
    lost = []
    for snapshot in ancestors_of(head, table.metadata):
        if snapshot.snapshot_id == target.snapshot_id:
            break
        lost.append(snapshot)
    gone = {snapshot.snapshot_id for snapshot in lost}
    cursors = [name for name, ref in table.metadata.refs.items() if ref.snapshot_id in gone]
    return RollbackPlan(
        table=str(identifier),
        head=commit_of(head, refs=refs.get(head.snapshot_id, ())),
        to=commit_of(target, refs=refs.get(target.snapshot_id, ())),
        commits=Listing(commit_of(snapshot, refs=refs.get(snapshot.snapshot_id, ())) for snapshot in lost),
        cursors=tuple(sorted(name for name in cursors if name.startswith(CURSOR_PREFIX))),
    )
