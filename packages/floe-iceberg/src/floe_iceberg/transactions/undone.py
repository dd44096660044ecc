"""Which runs were undone, by what the tables show of them."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.table import Table

from floe_iceberg.snapshots import RUN_ID, ancestors_of, summary_of, undone_in
from floe_iceberg.transactions.undo_plan import UNDONE_RUN, undone_tag

__all__ = ["undone_runs"]


def undone_runs(tables: Iterable[Table]) -> set[str]:
    """The runs of which floe undo took everything back that these tables know of."""
    valid: set[str] = set()
    gone: set[str] = set()
    for table in tables:
        metadata, tags = table.metadata, _tags(table)
        main = list(ancestors_of(table.current_snapshot(), metadata))
        seen, undone = {snapshot.snapshot_id for snapshot in main}, undone_in(main)
        gone |= tags.keys() | {run for one in main if (run := summary_of(one).get(UNDONE_RUN))}
        for head in tags.values():
            undone |= {one.snapshot_id for one in ancestors_of(table.snapshot_by_id(head), metadata)} - seen
        for snapshot in metadata.snapshots:
            run_id = summary_of(snapshot).get(RUN_ID)
            if run_id is not None and snapshot.snapshot_id in undone:
                gone.add(run_id)
            elif run_id is not None and snapshot.snapshot_id in seen:
                valid.add(run_id)
    return gone - valid


def _tags(table: Table) -> dict[str, int]:
    """The head that was kept when a run was undone, by its run."""
    prefix = undone_tag("")
    refs = table.metadata.refs.items()
    return {name.removeprefix(prefix): ref.snapshot_id for name, ref in refs if name.startswith(prefix)}
