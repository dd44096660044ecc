"""The heads of several tables at one moment, as `Lake.at_once` returns them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import DataScan, Table

from floe_core.identifiers import TableIdentifier
from floe_iceberg.arguments import TableName, identifier_of
from floe_iceberg.reading import scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Heads", "TableHead"]


@dataclass(frozen=True)
class TableHead:
    """A table as it was at one moment.

    Args:
        identifier: The table.
        table: The table of PyIceberg; do not refresh it.
        read: Reads a table, as loaded, as a DataFrame.
    """

    identifier: TableIdentifier
    table: Table = field(repr=False)
    read: Callable[..., DataFrame] = field(repr=False, compare=False)

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot; None if the table had none yet."""
        head = self.table.current_snapshot()
        return None if head is None else head.snapshot_id

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        row_filter: str | BooleanExpression | None = None,
        limit: int | None = None,
    ) -> DataScan:
        """Read the rows, without a JVM.

        Args:
            columns: The columns to read. By default all.
            row_filter: The rows to read. By default all.
            limit: The maximum number of rows.
        """
        return scan(self.table, self.identifier, columns=columns, row_filter=row_filter, limit=limit)

    def frame(
        self, *, columns: Sequence[str] | None = None, row_filter: str | BooleanExpression | None = None
    ) -> DataFrame:
        """Read the rows as a lazy DataFrame of Spark.

        Args:
            columns: The columns to read. By default all.
            row_filter: The rows to read. By default all.
        """
        return self.read(self.identifier, table=self.table, columns=columns, row_filter=row_filter)


class Heads(Mapping[TableName, TableHead]):
    """The heads of several tables, by name.

    Args:
        heads: The heads.
    """

    def __init__(self, heads: Mapping[TableIdentifier, TableHead]) -> None:
        self._heads = dict(heads)

    def __getitem__(self, identifier: TableName) -> TableHead:
        return self._heads[identifier_of(identifier)]

    def __iter__(self) -> Iterator[TableName]:
        return iter(self._heads)

    def __len__(self) -> int:
        return len(self._heads)

    def __repr__(self) -> str:
        return f"Heads({list(self._heads.values())})"
