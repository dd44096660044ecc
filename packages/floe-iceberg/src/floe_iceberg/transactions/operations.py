"""What a manager does with several tables at once: read one state of them, and publish their branches together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, TableNotFoundError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import SnapshotInfo, WriteMode
from floe_core.observability import operation
from floe_iceberg.arguments import TableName, check_snapshot_id, identifier_of
from floe_iceberg.errors import translated
from floe_iceberg.snapshots import (
    LakeBranch,
    StagingBranch,
    ancestors_of,
    refuse_on_branch,
    snapshot_info,
    unpublished_by,
)
from floe_iceberg.transactions.loading import load_at_once, load_each
from floe_iceberg.transactions.moves import HeadAssertion, HeadMove
from floe_iceberg.transactions.publication import Isolation, publish, recover, refusal
from floe_iceberg.transactions.replay import replay
from floe_iceberg.transactions.run_branches import NewTable, abandon, open_branch
from floe_iceberg.transactions.run_branches import Tables as _Manager
from floe_iceberg.transactions.undo import Tables as Undoing
from floe_iceberg.transactions.undo import plan_restore, restore, undo
from floe_iceberg.transactions.undo_plan import UndoPlan, plan_undo

__all__ = ["TableTransactions"]


class TableTransactions(Protocol):
    """Reads and commits of several tables."""

    at_branch: LakeBranch | None = None

    @property
    def _catalog(self) -> Catalog: ...

    def refuse_moved(self, table: Table, identifier: TableName) -> None:
        """Refuse a table of a local lake that was moved or copied."""

    def load_at_once(
        self,
        identifiers: Collection[TableName],
        *,
        known: Mapping[TableIdentifier, Table] | None = None,
        skip_missing: bool = False,
    ) -> dict[TableIdentifier, Table]:
        """Load several tables as they were at one moment; TableNotFoundError names those that do not exist.

        A catalog database reads them in one statement. From a catalog server they are loaded until two passes agree.

        Args:
            identifiers: The tables.
            known: All of them as the caller has just loaded them; those that are still current are not loaded again.
            skip_missing: Leave out tables that do not exist, instead of an error.

        Example:
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
            >>> _ = tables.write_data("bronze.stores", pa.table({"id": [1]}), mode="append")
            >>> [str(table) for table in tables.load_at_once(["bronze.orders", "bronze.stores"])]
            ['bronze.orders', 'bronze.stores']
        """
        names = [identifier_of(identifier) for identifier in identifiers]
        with operation("iceberg.load_at_once", tables=len(names)):
            loaded = load_at_once(self._catalog, list(dict.fromkeys(names)), known)
        if skip_missing:
            return {name: table for name, table in loaded.items() if table is not None}
        return _present(loaded)

    def publish(
        self,
        branches: Mapping[str, str] | Mapping[TableIdentifier, str] | Mapping[TableName, str],
        *,
        reads: Mapping[str, int | None]
        | Mapping[TableIdentifier, int | None]
        | Iterable[tuple[TableName, int | None]] = (),
        isolation: Isolation = "serializable",
        one_by_one: bool = False,
    ) -> dict[TableIdentifier, SnapshotInfo]:
        """Publish branches of several tables in one commit: main of every table becomes its branch's head, or of none.

        The branches are removed in the same commit. Nothing is published if main of a table has moved since its branch
        began, or if a table of `reads` has moved; the error names all of them.

        Args:
            branches: The branch to publish, of each table.
            reads: The snapshot that was read, of each table that the rows were computed from; None for a table that
                had none. Pairs, if a table was read more than once.
            isolation: `snapshot` publishes although tables of `reads` have moved, and logs a warning that names them.
            one_by_one: On a catalog server that cannot commit several tables at once, commit them one after the other.
                Readers may see some of them before the others; after a failure they are completed or taken back.

        Returns:
            The snapshot that main of each table is at.

        Example:
            >>> for name in ("bronze.orders", "bronze.stores"):
            ...     _ = tables.write_data(name, pa.table({"id": [1]}), mode="append")
            ...     tables.create_branch(name, "july")
            ...     _ = tables.write_data(name, pa.table({"id": [2]}), mode="append", branch="july")
            >>> published = tables.publish({"bronze.orders": "july", "bronze.stores": "july"})
            >>> tables.scan("bronze.stores").to_arrow().num_rows
            2
        """
        refuse_on_branch(self.at_branch, "publish branches of tables")
        wanted = {identifier_of(name): branch for name, branch in branches.items()}
        pairs = reads.items() if isinstance(reads, Mapping) else reads
        asserted = [HeadAssertion(identifier_of(name), snapshot_id) for name, snapshot_id in pairs]
        for read in asserted:
            check_snapshot_id(read.snapshot_id, "reads")
        with translated("publish", _listed(wanted)):
            loaded = _present(load_each(self._catalog, list(wanted)))
            for name, table in loaded.items():
                self.refuse_moved(table, name)
            moves = [_move(name, table, wanted[name]) for name, table in loaded.items()]
            published = publish(
                self._catalog, moves, asserted, isolation=isolation, one_by_one=one_by_one, known=loaded
            )
        heads = {name: table.current_snapshot() for name, table in published.items()}
        return {name: snapshot_info(head) for name, head in heads.items() if head is not None}

    def moves_of(self, tables: Mapping[TableIdentifier, Table], branch: str) -> list[HeadMove]:
        """The moves of main that publish a branch of these tables, as loaded; a conflict if a local lake was moved.

        Args:
            tables: The tables.
            branch: The branch.
        """
        for name, table in tables.items():
            self.refuse_moved(table, name)
        return [_move(name, table, branch) for name, table in tables.items()]

    @property
    def refuses_many_tables(self) -> str | None:
        """Why this catalog cannot commit several tables at once; None if it can."""
        return refusal(self._catalog)

    def open_branch(
        self: _Manager,
        identifier: TableName,
        staging: StagingBranch,
        new: NewTable,
        *,
        max_age: timedelta | None = None,
    ) -> Table:
        """The table with a staging branch, which begins at main's head unless it says otherwise.

        A table that does not exist is created with one empty snapshot, and marked as unpublished until the branch is
        published: Floe treats it as absent, other engines see an empty table.

        Args:
            identifier: The table.
            staging: The branch.
            new: What the table is created with.
            max_age: The age at which expiry removes the branch. By default as set for the table, or never.
        """
        return open_branch(self, identifier_of(identifier), staging, new, max_age=max_age)

    def replay_branch(
        self: _Undoing,
        identifier: TableName,
        branch: str,
        *,
        mode: WriteMode | None = None,
        within: TableSlice | None = None,
    ) -> Table:
        """Repeat the commits of a branch on top of main, which has moved since the branch began.

        The rows are not computed again. It is a conflict if other writers have changed rows that the branch replaces,
        columns or partitions.

        Args:
            identifier: The table.
            branch: The branch.
            mode: How its rows were written; appends meet no conflict. By default as its snapshots say.
            within: With `mode`: the rows that they replace. By default the whole table.

        Example:
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [1]}), mode="append")
            >>> tables.create_branch("bronze.orders", "july")
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [2]}), mode="append", branch="july")
            >>> _ = tables.write_data("bronze.orders", pa.table({"id": [3]}), mode="append")
            >>> from floe_core import WriteMode
            >>> _ = tables.replay_branch("bronze.orders", "july", mode=WriteMode.APPEND)
            >>> _ = tables.publish({"bronze.orders": "july"})
            >>> sorted(tables.scan("bronze.orders").to_arrow()["id"].to_pylist())
            [1, 2, 3]
        """
        return replay(self, identifier_of(identifier), branch, mode=mode, within=within)

    def abandon_branch(self: _Manager, identifier: TableName, staging: StagingBranch, *, at: int | None = None) -> bool:
        """Remove a staging branch, and drop the table if it was created for it and has nothing else.

        Returns whether there was anything to remove.

        Args:
            identifier: The table.
            staging: The branch.
            at: The snapshot that the branch must be at; a conflict if another process has written to it. By default
                any.
        """
        return abandon(self, identifier_of(identifier), staging, at=at)

    def plan_undo(
        self: _Undoing,
        run_id: str,
        *,
        with_later: bool = False,
        written: Mapping[TableIdentifier, int] | None = None,
    ) -> UndoPlan:
        """What undoing a run would do: the tables it restores, and the later writes that stop it.

        Args:
            run_id: The Dagster run.
            with_later: Take back later writes that depend on the run, too.
            written: Snapshots that the run is known to have written; one that has expired is an error.
        """
        with translated("undo", "the catalog"):
            found = _every_table(self, self._catalog)
            return plan_undo(found, run_id, with_later=with_later, written=written)[0]

    def undo(
        self: _Undoing,
        run_id: str,
        *,
        with_later: bool = False,
        one_by_one: bool = False,
        written: Mapping[TableIdentifier, int] | None = None,
    ) -> UndoPlan:
        """Restore every table that a run wrote, in one commit; returns what was done.

        Later writes to other slices of the same tables stay. Later writes to the same slices, and tables that were
        computed from what the run wrote, stop it. A tag keeps the heads for 30 days, so that `restore_undone` works.

        Args:
            run_id: The Dagster run.
            with_later: Take back later writes that depend on the run, too.
            one_by_one: On a catalog server that cannot commit several tables at once, commit them one after the other.
            written: Snapshots that the run is known to have written; one that has expired is an error.
        """
        refuse_on_branch(self.at_branch, "undo a run")
        with translated("undo", "the catalog"):
            found = _every_table(self, self._catalog)
            plan, undos = plan_undo(found, run_id, with_later=with_later, written=written)
            if plan.refusal is not None:
                raise ConcurrencyConflictError(
                    f"{plan.refusal}. Nothing was undone: undo these first, or take them back too with --with-later"
                )
            undo(self, self._catalog, undos, run_id, one_by_one=one_by_one)
        return plan

    def plan_restore(self: _Undoing, run_id: str) -> UndoPlan:
        """What `restore_undone` would do: the tables, with the rows before and after; refused as that is.

        Args:
            run_id: The Dagster run.
        """
        with translated("undo", "the catalog"):
            return plan_restore(_every_table(self, self._catalog), run_id)

    def restore_undone(self: _Undoing, run_id: str, *, one_by_one: bool = False) -> list[TableIdentifier]:
        """Undo the undoing of a run, in one commit; refused for tables that have commits since.

        Args:
            run_id: The Dagster run.
            one_by_one: On a catalog server that cannot commit several tables at once, commit them one after the other.
        """
        refuse_on_branch(self.at_branch, "undo a run")
        with translated("undo", "the catalog"):
            return restore(self, self._catalog, _every_table(self, self._catalog), run_id, one_by_one=one_by_one)

    def finish_publications(self) -> int:
        """Complete, or take back, publications whose process ended before they were; returns how many.

        Every publication does this first. A catalog database has none: its transactions are atomic.
        """
        with translated("publish", "the catalog"):
            return len(recover(self._catalog))


class _Undoing(Undoing, Protocol):
    """The part of a manager that undoes runs."""

    at_branch: LakeBranch | None

    @property
    def _catalog(self) -> Catalog: ...

    def find_tables(self) -> list[TableIdentifier]: ...


def _every_table(tables: _Undoing, catalog: Catalog) -> dict[TableIdentifier, Table]:
    loaded = load_each(catalog, tables.find_tables())
    return {name: table for name, table in loaded.items() if table is not None}


def _move(identifier: TableIdentifier, table: Table, branch: str) -> HeadMove:
    """The move of main to a branch that began at main's head, or before it was written for the first time."""
    metadata, ref = table.metadata, table.metadata.refs.get(branch)
    if branch == MAIN_BRANCH or ref is None or ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        there = sorted(
            name
            for name, known in metadata.refs.items()
            if known.snapshot_ref_type is SnapshotRefType.BRANCH and name != MAIN_BRANCH
        )
        raise ConfigurationError(
            f"table '{identifier}' has no branch {branch!r} to publish (there: {', '.join(there) or 'none'}); nothing "
            f"was published"
        )
    mains = {snapshot.snapshot_id for snapshot in ancestors_of(table.current_snapshot(), metadata)}
    history = [snapshot.snapshot_id for snapshot in ancestors_of(table.snapshot_by_id(ref.snapshot_id), metadata)]
    if ref.snapshot_id not in mains:
        # The newest snapshot below the branch's own that main was ever at: if main has moved since, or was rolled back,
        # the publication is refused, with the names of all such tables.
        mains |= {entry.snapshot_id for entry in metadata.snapshot_log}
        history = history[1:]
    start = next((snapshot_id for snapshot_id in history if snapshot_id in mains), None)
    return HeadMove(
        identifier, metadata.table_uuid, branch, start, ref.snapshot_id, unpublished_by(metadata.properties)
    )


def _present(loaded: Mapping[TableIdentifier, Table | None]) -> dict[TableIdentifier, Table]:
    missing = [name for name, table in loaded.items() if table is None]
    if missing:
        raise TableNotFoundError(
            f"{_listed(missing)} not found in the catalog; list what is there with: floe tables list"
        )
    return {name: table for name, table in loaded.items() if table is not None}


def _listed(names: Collection[TableIdentifier]) -> str:
    return ", ".join(f"'{name}'" for name in names)
