"""Changes of several tables in one commit: every change of every table, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate

__all__ = ["MultiTableCatalog", "TableChange"]


@dataclass(frozen=True)
class TableChange:
    """What must hold of a table, as it was loaded, and what then changes in it; a table that is only read changes
    nothing."""

    table: Table
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...] = ()


@runtime_checkable
class MultiTableCatalog(Protocol):
    """A catalog that can commit changes of several tables at once."""

    @property
    def refuses_many_tables(self) -> str | None:
        """Why this catalog cannot commit several tables at once; None if it can."""

    @property
    def is_atomic(self) -> bool:
        """Is a commit of several tables certain to be applied as a whole or not at all, also if the catalog crashes?"""

    def commit_tables(self, changes: Sequence[TableChange]) -> None:
        """Commit every change, or none; sent once: the caller resolves the outcome.

        Raises CommitFailedException if nothing was changed because a requirement is not met, or because a table changed
        in the meantime, and CommitStateUnknownException if the catalog did not answer.
        """
