"""The branches of a project's lake, with their histories in Dagster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from floe_core.config import MAIN, CompiledArtifacts
from floe_core.errors import ConfigurationError
from floe_iceberg import Lake
from floe_iceberg.branches import Branches, BranchPublication, BranchStatus, TableState

if TYPE_CHECKING:
    from floe_iceberg.comparison import TableComparison

__all__ = ["ProjectBranches"]


class ProjectBranches(Branches):
    """The branches of a lake; a publication is recorded in main's history, and a branch takes its own history along.

    Args:
        lake: The lake.
    """

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.tables, lake.artifacts.maintenance.branches)
        self._lake = lake

    @property
    def _artifacts(self) -> CompiledArtifacts:
        return self._lake.artifacts

    def update(self, name: str, *, restart: bool = False) -> BranchStatus:
        """Let a branch read main as it is now, with its own commits on top; returns its state afterwards.

        Args:
            name: Its name.
            restart: Begin tables again that cannot be put on top, because the same rows have changed on main: what the
                branch wrote to them is removed.
        """
        from floe_runtime.updated import record_update

        before = self.show(name)
        status = super().update(name, restart=restart)
        record_update(self._artifacts, name, before.pinned_at)
        return status

    def publish(
        self,
        name: str,
        *,
        one_by_one: bool = False,
        record: Callable[[BranchPublication], None] | None = None,
    ) -> BranchPublication:
        """Move main of all tables of a branch to it, in one commit, and remove the branch; main's history records it.

        Refused if a blocking check has failed on the branch, or if main has moved in the same rows; the error names the
        tables.

        Args:
            name: Its name.
            one_by_one: On a catalog server that cannot commit several tables at once, commit them one after the other.
            record: Called after the commit, before the branch is removed.
        """
        from floe_runtime.homes import remove_home
        from floe_runtime.published import record_publication, refuse_failed_checks

        def recorded(published: BranchPublication) -> None:
            record_publication(self._artifacts, published)
            if record is not None:
                record(published)

        refuse_failed_checks(self._artifacts, self.show(name))
        published = super().publish(name, one_by_one=one_by_one, record=recorded)
        remove_home(self._artifacts.on_branch(name))
        return published

    def discard(self, name: str) -> int:
        """Remove a branch, the tables that it created, the files that only it references, and its history.

        Args:
            name: Its name.

        Returns:
            The number of files that were deleted, without those of dropped tables.
        """
        from floe_runtime.homes import remove_home

        deleted = super().discard(name)
        remove_home(self._artifacts.on_branch(name))
        return deleted

    def diff(
        self,
        name: str,
        *tables: str,
        keys: Mapping[str, Sequence[str]] | None = None,
        examples: int = 5,
        max_rows: int = 10_000_000,
    ) -> Iterator[TableComparison]:
        """Compare what a branch has with main where the branch began, table by table.

        Sensitive columns of assets are not shown. If the definitions cannot be loaded, they are unknown, and no example
        is shown.

        Args:
            name: Its name.
            tables: Only these tables. By default all that the branch has written to.
            keys: The columns that identify a row, by table. By default the keys of upserts, and the identifier fields.
            examples: The maximum number of rows of each kind to show.
            max_rows: If the files that differ have more rows, a sample of about this size is compared.
        """
        from floe_runtime.declared_tables import DeclaredTable, declared_tables

        status, declared = self.show(name), declared_tables(self._artifacts)
        unknown = sorted(set(tables) - {one.table for one in status.tables})
        if unknown:
            raise ConfigurationError(
                f"branch {name!r} has not written to {', '.join(unknown)}; it has "
                f"{', '.join(one.table for one in status.tables) or 'no table'}"
            )
        lake = Lake.of_tables(self._artifacts.on_branch(MAIN), self._lake.tables.on_main())
        for one in status.tables:
            known = (declared or {}).get(one.table, DeclaredTable())
            if (tables and one.table not in tables) or one.head is None or one.state is TableState.UNCHANGED:
                continue
            yield lake.compare(
                one.table,
                before=None if one.created else one.start,
                after=one.head,
                keys=(keys or {}).get(one.table) or list(known.keys) or None,
                examples=examples if declared is not None else 0,
                max_rows=max_rows,
                hidden=known.hidden,
            )
