"""The branches of a lake: created, listed, updated, published and discarded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from typing_extensions import Self

from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_core.identifiers import TableIdentifier, check_branch_name
from floe_core.notebooks import Listing
from floe_core.observability import operation, warn
from floe_iceberg.branches.publication import BranchPublication, publish_branch, unfinished
from floe_iceberg.branches.publication import Tables as Publishing
from floe_iceberg.branches.removal import remove_from
from floe_iceberg.branches.status import BranchStatus, status_of, tables_of
from floe_iceberg.branches.update import Tables as Updating
from floe_iceberg.branches.update import pins_of_main, update_branch
from floe_iceberg.catalogs import BranchRecords
from floe_iceberg.snapshots import LakeBranch, now_ms

__all__ = ["Branches"]


class Tables(Updating, Publishing, Protocol):
    """The part of a manager that branches need."""

    at_branch: LakeBranch | None

    @property
    def _catalog(self) -> Catalog: ...

    @property
    def branch_records(self) -> BranchRecords: ...

    def on_main(self) -> Self: ...

    def finish_publications(self) -> int: ...


class Branches:
    """The branches of a lake.

    A branch has the tables that were written to it, and shows all others as main was when it was created or last
    updated. Nothing is copied. `Lake.branches` has them.

    Args:
        tables: The manager of the tables.
        keep: How long a branch is kept after its last use.

    Example:
        >>> from pathlib import Path
        >>> from floe_core import compile_project
        >>> from floe_iceberg import Lake
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> artifacts = compile_project(Path()).artifacts
        >>> with Lake(artifacts) as lake:
        ...     _ = lake.tables.write_data("bronze.orders", pa.table({"id": [1]}), mode="append")
        >>> with Lake(artifacts.on_branch("trial")) as lake:
        ...     _ = lake.tables.write_data("bronze.orders", pa.table({"id": [2]}), mode="append")
        ...     lake.tables.scan("bronze.orders").count()
        2
        >>> with Lake(artifacts) as lake:
        ...     print(lake.tables.scan("bronze.orders").count())
        ...     _ = lake.branches.publish("trial")
        ...     print(lake.tables.scan("bronze.orders").count())
        1
        2
    """

    def __init__(self, tables: Tables, keep: timedelta) -> None:
        self._tables = tables.on_main()
        self._keep = keep

    @property
    def _records(self) -> BranchRecords:
        return self._tables.branch_records

    @property
    def _catalog(self) -> Catalog:
        return self._tables._catalog  # noqa: SLF001 - of a manager, which this class is a part of

    def create(self, name: str, *, if_not_exists: bool = False) -> BranchStatus:
        """Create a branch that reads main as it is now; refused if there is one.

        Args:
            name: Its name: letters, digits, `_` and `-`.
            if_not_exists: Leave a branch of this name as it is.
        """
        branch, created = self._begun(name)
        if not created and not if_not_exists:
            raise ConfigurationError(
                f"branch {branch.name!r} exists already; show it with: floe branches show {branch.name}"
            )
        return self._status(branch)

    def open(self, name: str) -> LakeBranch:
        """The branch of this name, which is created if it does not exist; it counts as used now.

        Args:
            name: Its name.
        """
        branch, created = self._begun(name)
        if not created:
            self._records.touch(branch.name, now_ms())
        return branch

    def _begun(self, name: str) -> tuple[LakeBranch, bool]:
        _check(name)
        found = self._records.find(name)
        if found is None:
            now = now_ms()
            with operation("iceberg.create_lake_branch", branch=name) as op:
                branch = LakeBranch(name, now, now, now, pins_of_main(self._tables, name))
                op.set(tables=len(branch.pins))
                if self._records.create(branch):
                    return branch, True
            found = self._load(name)  # another process has created it
        if found.name != name:
            raise ConfigurationError(
                f"there is a branch {found.name!r}, whose name differs from {name!r} in case only; use it, or choose "
                f"another name"
            )
        return found, False

    def list(self) -> Listing[BranchStatus]:
        """The branches, by name."""
        return Listing(self._status(branch) for branch in self._records.every())

    def show(self, name: str) -> BranchStatus:
        """The state of a branch: its tables, and what stands against its publication.

        Args:
            name: Its name.
        """
        return self._status(self._load(name))

    def update(self, name: str, *, restart: bool = False) -> BranchStatus:
        """Let a branch read main as it is now, with its own commits on top; returns its state afterwards.

        Args:
            name: Its name.
            restart: Begin tables again that cannot be put on top, because the same rows have changed on main: what the
                branch wrote to them is removed.
        """
        branch = self._load(name)
        if branch.closed:
            self._refuse_published(name)
            self._records.end_publication(name)
        update_branch(self._tables, self._catalog, self._records, branch, restart=restart)
        return self.show(name)

    def publish(
        self,
        name: str,
        *,
        one_by_one: bool = False,
        record: Callable[[BranchPublication], None] | None = None,
    ) -> BranchPublication:
        """Move main of all tables of a branch to it, in one commit, and remove the branch.

        A table whose main has moved in other rows only is put on top of that. Otherwise nothing is published, and the
        error names the tables.

        Args:
            name: Its name.
            one_by_one: On a catalog server that cannot commit several tables at once, commit them one after the other.
                Readers may see some of them before the others; after a failure they are completed or taken back.
            record: Called after the commit, before the branch is removed. If the process ends in between, it is called
                by the next publication of the same name.
        """
        branch = self._load(name)
        self._tables.finish_publications()  # of a process that ended between two tables of this branch
        published = self._unfinished(name) or self._published(branch, one_by_one=one_by_one)
        if record is not None:
            record(published)
        self._records.remove(name)
        return published

    def _refuse_published(self, name: str) -> None:
        """Refuse to lose what the process that has published a branch did not record yet."""
        if self._unfinished(name) is not None:
            raise ConcurrencyConflictError(
                f"branch {name!r} is published, and the process that did it has not removed it yet; nothing was "
                f"changed. If that process has ended: floe branches publish {name}"
            )

    def _unfinished(self, name: str) -> BranchPublication | None:
        return unfinished(self._catalog, self._records, name)

    def _published(self, branch: LakeBranch, *, one_by_one: bool) -> BranchPublication:
        try:
            return publish_branch(self._tables, self._catalog, self._records, branch, one_by_one=one_by_one)
        except (ConcurrencyConflictError, ConfigurationError):
            others = self._unfinished(branch.name)  # another process may have published it
            if others is not None:
                return others
            if self._records.find(branch.name) is not None:
                self._records.end_publication(branch.name)
            raise

    def discard(self, name: str) -> int:
        """Remove a branch, the tables that it created, and the files that only it references.

        Args:
            name: Its name.

        Returns:
            The number of files that were deleted, without those of dropped tables.
        """
        branch = self._load(name)
        if branch.closed:
            self._refuse_published(name)
        with operation("iceberg.discard_branch", branch=name) as op:
            deleted = sum(remove_from(self._tables, identifier, branch) for identifier in branch.tables)
            self._records.remove(name)
            op.set(files=deleted)
        return deleted

    def discard_unused(self, now: datetime) -> Sequence[str]:
        """Discard the branches that were not used for as long as the policy says; returns their names.

        Args:
            now: The time.
        """
        unused = [branch.name for branch in self._records.every() if self._status(branch, {}).expires_at < now]
        return [name for name in unused if self._discarded(name)]

    def _discarded(self, name: str) -> bool:
        try:
            self.discard(name)
        except ConcurrencyConflictError as exc:
            warn("a branch of the lake that was not used for long enough is kept", branch=name, reason=str(exc))
            return False
        return True

    def _status(self, branch: LakeBranch, tables: dict[TableIdentifier, Table | None] | None = None) -> BranchStatus:
        return status_of(branch, tables_of(self._catalog, branch) if tables is None else tables, self._keep)

    def _load(self, name: str) -> LakeBranch:
        _check(name)
        found = self._records.find(name)
        if found is not None:
            return found
        names = [branch.name for branch in self._records.every()]
        near = get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else f" (there: {', '.join(names[:10]) or 'none'})"
        raise ConfigurationError(f"the lake has no branch {name!r}{hint}")


def _check(name: str) -> None:
    try:
        check_branch_name(name)
    except ValueError as exc:
        raise ConfigurationError(f"branch {name!r}: {exc}") from None
