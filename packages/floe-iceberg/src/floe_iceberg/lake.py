"""A project's lake: its tables, and its Spark where one is needed. Nothing here imports PySpark."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from floe_core.config import CompiledArtifacts, TableCheck
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.plugins import ComputePlugin
from floe_iceberg.arguments import TableName, identifier_of
from floe_iceberg.manager import IcebergTableManager
from floe_iceberg.query import QueryResult, Sessions, run
from floe_iceberg.snapshots import Revision, find_snapshot, refuse_unpublished

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self

    from floe_iceberg.audit import Draft
    from floe_iceberg.branches import Branches
    from floe_iceberg.checks import CheckedRows, CheckOutcome
    from floe_iceberg.comparison import TableComparison
    from floe_iceberg.heads import Heads
    from floe_iceberg.writing.request import Target, WriteRequest, WriteResult

__all__ = ["Lake", "Reading"]


@dataclass(frozen=True)
class Reading:
    """A table as a lazy DataFrame, and the snapshot that it reads."""

    frame: DataFrame
    snapshot_id: int | None


class Lake:
    """The tables of one project and environment, with both engines on one catalog.

    `tables` is the control plane, without a JVM; `read` and `write` take and return Spark DataFrames. The lake connects
    to the catalog when `tables` is first used, and starts Spark when a DataFrame is first needed. Use it as a context
    manager, or call `close`.

    Args:
        artifacts: The compiled project.

    Example:
        >>> from pathlib import Path
        >>> from floe_core import compile_project
        >>> from floe_iceberg import Lake
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> with Lake(compile_project(Path()).artifacts) as lake:
        ...     snapshot = lake.tables.write_data("bronze.orders", pa.table({"id": [1, 2]}), mode="append")
        >>> snapshot.count("added-records")
        2
    """

    def __init__(self, artifacts: CompiledArtifacts) -> None:
        self.artifacts = artifacts
        self._sessions = Sessions()

    @classmethod
    def of_tables(cls, artifacts: CompiledArtifacts, tables: IcebergTableManager) -> Lake:
        """Create a lake on an open manager, instead of a second connection to the catalog.

        Args:
            artifacts: The compiled project.
            tables: The open manager of its tables.
        """
        lake = cls(artifacts)
        lake.__dict__["tables"] = tables
        return lake

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut down the plugins of catalog and storage. The Spark session, which others may share, keeps running."""
        self._sessions.close()
        opened = self.__dict__.get("tables")
        if isinstance(opened, IcebergTableManager):
            opened.close()

    @property
    def default_namespace(self) -> str:
        """The namespace of the tables of assets whose key has no prefix."""
        return self.artifacts.tables.default_namespace

    @property
    def ignore_key_prefix(self) -> bool:
        """Whether all assets are stored in the default namespace, regardless of the prefix of their key."""
        return self.artifacts.tables.ignore_key_prefix

    @cached_property
    def tables(self) -> IcebergTableManager:
        """The control plane: the manager of the tables, without a JVM. It is opened on first use."""
        tables = IcebergTableManager.open(self.artifacts)
        tables.lake = self
        self._open_branch(tables)
        return tables

    def _open_branch(self, tables: IcebergTableManager) -> None:
        name = self.artifacts.lake_branch
        if name is not None:
            from floe_iceberg.branches import Branches

            tables.at_branch = Branches(tables, self.artifacts.maintenance.branches).open(name)

    def reopen_branch(self) -> None:
        """Read the branch of the lake again: it may have been updated, or discarded and created again."""
        if "tables" in self.__dict__:  # otherwise it is read when they are opened
            self._open_branch(self.tables)

    @property
    def branches(self) -> Branches:
        """The branches of the lake: several tables written aside, and published together."""
        from floe_iceberg.branches import Branches

        return Branches(self.tables, self.artifacts.maintenance.branches)

    @property
    def compute(self) -> ComputePlugin:
        """The data plane: the compute plugin, by default that of floe-spark."""
        tables = self.tables
        if tables.lake is None:  # the tables were opened without a lake
            tables.lake = self
        return tables.require_compute()

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this project. It is started on first use."""
        session: SparkSession = self.compute.session()
        return session

    def read(self, identifier: TableName, **options: Any) -> DataFrame:
        """Read a table as a lazy DataFrame.

        Args:
            identifier: The table.
            options: The options of `floe_spark.read`, such as `columns`, `row_filter` and `slice`.

        Example:
            >>> _ = lake.write(lake.spark.range(3), "bronze.numbers", mode="append")
            >>> lake.read("bronze.numbers", row_filter="id > 0").count()
            2
        """
        return self.reading(identifier, **options).frame

    def reading(self, identifier: TableName, **options: Any) -> Reading:
        """Read a table as a lazy DataFrame, and return the id of the snapshot with it.

        Args:
            identifier: The table.
            options: The options of `floe_spark.read`.

        Example:
            >>> written = lake.write(lake.spark.range(3), "bronze.numbers", mode="append")
            >>> lake.reading("bronze.numbers").snapshot_id == written.snapshot.snapshot_id
            True
        """
        reading: Reading = self.compute.reading(identifier_of(identifier), **options)
        return reading

    def at_once(self, identifiers: Collection[TableName]) -> Heads:
        """The heads of several tables as they were at one moment: a publication is in all of them or in none.

        Args:
            identifiers: The tables.

        Example:
            >>> _ = lake.write(lake.spark.range(3), "bronze.numbers", mode="append")
            >>> _ = lake.write(lake.spark.range(2), "bronze.pairs", mode="append")
            >>> heads = lake.at_once(["bronze.numbers", "bronze.pairs"])
            >>> heads["bronze.numbers"].scan().to_arrow().num_rows, heads["bronze.pairs"].frame().count()
            (3, 2)
        """
        from floe_iceberg.heads import Heads, TableHead

        loaded = self.tables.load_at_once(identifiers)
        shown = {name: self.tables.as_shown(table, name) for name, table in loaded.items()}
        return Heads({name: TableHead(name, table, self.read) for name, table in shown.items()})

    def sql(self, query: str, *, engine: Literal["duckdb", "spark"] = "duckdb") -> QueryResult:
        """Run a query on the tables; its rows are computed while the result is read.

        Only tables of the lake are read, and nothing is written. A table may be read as it was: `VERSION AS OF` a
        snapshot id, tag or branch, or `TIMESTAMP AS OF` a time, after its name.

        Args:
            query: The query, in the SQL of the engine.
            engine: `duckdb`, without a JVM, or `spark`.

        Example:
            >>> from pathlib import Path
            >>> from floe_core import compile_project
            >>> from floe_iceberg import Lake
            >>> _ = Path("floe.yaml").write_text("name: shop")
            >>> lake = Lake(compile_project(Path()).artifacts)
            >>> first = lake.tables.write_data("bronze.orders", pa.table({"amount": [10, 20]}), mode="append")
            >>> _ = lake.tables.write_data("bronze.orders", pa.table({"amount": [30]}), mode="append")
            >>> lake.sql("SELECT sum(amount) AS total FROM bronze.orders").to_arrow()["total"].to_pylist()
            [Decimal('60')]
            >>> then = f"SELECT count(*) AS n FROM bronze.orders VERSION AS OF {first.snapshot_id}"
            >>> lake.sql(then).to_arrow()["n"].to_pylist()
            [2]
            >>> lake.close()
        """
        return run(self, query, engine=engine, sessions=self._sessions)

    def check(
        self,
        identifier: TableName,
        checks: Sequence[TableCheck],
        *,
        within: TableSlice | None = None,
        revision: Revision | None = None,
        engine: Literal["duckdb", "spark"] | None = None,
    ) -> list[CheckOutcome]:
        """Check a table, without writing anything. All rules about rows and aggregates share one pass over them.

        Args:
            identifier: The table.
            checks: The checks.
            within: The rows that checks with the scope `slice` look at. By default all.
            revision: The snapshot, tag, branch or time to check. By default the head.
            engine: `duckdb`, without a JVM, or `spark`. By default Spark if its session is running.

        Example:
            >>> from pathlib import Path
            >>> from floe_core import TableCheck, compile_project
            >>> from floe_iceberg import Lake
            >>> _ = Path("floe.yaml").write_text("name: shop")
            >>> with Lake(compile_project(Path()).artifacts) as lake:
            ...     _ = lake.tables.write_data("bronze.orders", pa.table({"id": [1, 1, None]}), mode="append")
            ...     found = lake.check("bronze.orders", [TableCheck(not_null="id"), TableCheck(unique="id")])
            >>> [(one.name, one.message) for one in found]
            [('not_null_id', '1 of 3 rows has no id'), ('unique_id', '1 row repeats the id of another row')]
        """
        from floe_iceberg.checks import run_checks

        rows = replace(self._checked(identifier_of(identifier), revision), within=within)
        return run_checks(self, checks, rows, other=lambda name: self._checked(name, None), engine=engine)

    def compare(
        self,
        identifier: TableName,
        *,
        before: Revision | None,
        after: Revision | None = None,
        keys: Sequence[str] | None = None,
        examples: int = 5,
        max_rows: int = 10_000_000,
        hidden: Collection[str] = (),
    ) -> TableComparison:
        """Compare two snapshots of a table by their rows: added, removed and changed, by partition, with examples.

        Only files in which the snapshots differ are read, in bounded memory, without Spark. A row that was carried over
        to another file, as by a compaction, does not differ.

        Args:
            identifier: The table.
            before: The snapshot, tag, branch or time to compare with. None: the table had no rows.
            after: The snapshot, tag, branch or time that is compared. By default the head.
            keys: The columns that identify a row, so that changed rows are found. By default the identifier fields of
                the table; an empty list for none.
            examples: The maximum number of rows of each kind to show.
            max_rows: If the differing files have more rows, a sample of about this size is compared.
            hidden: Columns whose values are never shown.

        Example:
            >>> from pathlib import Path
            >>> from floe_core import compile_project
            >>> from floe_iceberg import Lake
            >>> _ = Path("floe.yaml").write_text("name: shop")
            >>> with Lake(compile_project(Path()).artifacts) as lake:
            ...     first = lake.tables.write_data("bronze.orders", pa.table({"id": [1, 2, 3]}), mode="append")
            ...     _ = lake.tables.write_data("bronze.orders", pa.table({"id": [3, 4]}), mode="overwrite")
            ...     found = lake.compare("bronze.orders", before=first.snapshot_id)
            >>> found.rows_added, found.rows_removed, found.examples.added
            (1, 2, ({'id': 4},))
        """
        from floe_iceberg.comparison import compare_rows

        return compare_rows(
            self,
            identifier,
            before=before,
            after=after,
            keys=keys,
            examples=examples,
            max_rows=max_rows,
            hidden=hidden,
        )

    def audit(
        self,
        identifier: TableName,
        *,
        early_columns: bool = False,
        keep: timedelta = timedelta(days=7),
        quarantine: Sequence[TableCheck] = (),
        one_by_one: bool = False,
    ) -> AbstractContextManager[Draft]:
        """Write rows, check them, and publish them at the end of the block; if it raises, no reader sees them.

        If main has moved in other slices in the meantime, the rows are put on top of that, checks of the whole table
        run again, and what was checked is published. If the same rows have changed, it is a conflict.

        Args:
            identifier: The table. It is created by the first write if it does not exist.
            early_columns: Let the draft change the columns of the table, which readers see before the publication.
            keep: The age at which expiry removes the branch of a draft that was not published.
            quarantine: Checks with `quarantine`: rows that break them are moved to the quarantine table when they are
                written, and both tables are published by one commit.
            one_by_one: On a catalog server that cannot commit two tables at once, commit them one after the other.

        Example:
            >>> from pathlib import Path
            >>> from floe_core import TableCheck, compile_project
            >>> from floe_iceberg import Lake
            >>> _ = Path("floe.yaml").write_text("name: shop")
            >>> lake = Lake(compile_project(Path()).artifacts)
            >>> with lake.audit("silver.orders") as draft:
            ...     _ = draft.write(pa.table({"id": [1, 2]}), mode="overwrite")
            ...     _ = draft.check([TableCheck(not_null="id"), TableCheck(unique="id")])
            >>> lake.tables.scan("silver.orders").count()
            2
            >>> lake.close()
        """
        from floe_iceberg.audit import audited

        self.tables.refuse_on_branch("publish what is audited")
        return audited(
            self,
            identifier_of(identifier),
            early_columns=early_columns,
            keep=keep,
            quarantine=quarantine,
            one_by_one=one_by_one,
        )

    def _checked(self, identifier: TableIdentifier, revision: Revision | None) -> CheckedRows:
        from floe_iceberg.checks import CheckedRows

        table = self.tables.load_table(identifier)
        if revision is None:
            table = self.tables.as_shown(table, identifier)
            refuse_unpublished(table, identifier)
            head = table.current_snapshot()
            return CheckedRows(identifier, table, None if head is None else head.snapshot_id)
        return CheckedRows(identifier, table, find_snapshot(table, identifier, revision).snapshot_id)

    def write(self, frame: DataFrame, identifier: TableName, **options: Any) -> WriteResult:
        """Write a DataFrame in one commit; a table that does not exist is created by it.

        Args:
            frame: The DataFrame.
            identifier: The table.
            options: The options of `floe_spark.write`, such as `mode`, `slice` and `keys`.

        Example:
            >>> result = lake.write(lake.spark.range(3), "bronze.numbers", mode="append")
            >>> result.created, result.snapshot.count("added-records")
            (True, 3)
        """
        options.setdefault("write_id", uuid.uuid4().hex)
        result: WriteResult = self.compute.write(frame, identifier_of(identifier), **options)
        return result

    def write_request(self, frame: DataFrame, request: WriteRequest, target: Target | None = None) -> WriteResult:
        """Write a DataFrame as a request describes it.

        Args:
            frame: The DataFrame.
            request: The write.
            target: The table as the caller has just loaded it. Only a second attempt loads it again.
        """
        result: WriteResult = self.compute.write_request(frame, request, target)
        return result
