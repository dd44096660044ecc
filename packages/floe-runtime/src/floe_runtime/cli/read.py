"""floe read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import branch_option, project_options, table_argument
from floe_runtime.cli.rows.options import output_options, wanted_output
from floe_runtime.cli.rows.start import quick_start, skip_pandas
from floe_runtime.cli.tables.opened import open_tables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import DataScan

    from floe_iceberg import IcebergTableManager

__all__ = ["read"]


@click.command()
@table_argument
@click.option("--columns", metavar="A,B", help="Only these columns, in this order.")
@click.option("--where", metavar="FILTER", help="Only rows that match, such as \"city = 'Oslo' AND amount > 10\".")
@click.option("--as-of", metavar="TIME", help="As it was at this time, such as 2026-01-31T12:00:00+00:00.")
@click.option("--ref", metavar="NAME", help="As this tag or branch shows it.")
@click.option("--snapshot", metavar="ID", help="As it was at this snapshot.")
@branch_option
@output_options
@project_options
def read(
    table: str,
    columns: str | None,
    where: str | None,
    as_of: str | None,
    ref: str | None,
    snapshot: str | None,
    branch: str | None,
    limit: int | None,
    output: str | None,
    file: Path | None,
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """Print rows of a table, without Spark. Times are in UTC.

    A table shows 20 rows unless --limit is given; csv, json and parquet have all rows. See also: floe sql.
    """
    if sum(one is not None for one in (as_of, ref, snapshot)) > 1:
        raise click.UsageError("--as-of, --ref and --snapshot exclude each other: give one of them.")
    wanted = wanted_output(output, limit, file, as_json)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    with quick_start() as started, _opened(table, project, environment, branch) as tables:
        import pyarrow as pa
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        from floe_iceberg.arguments import identifier_of
        from floe_iceberg.errors import translated
        from floe_iceberg.snapshots import moment_of
        from floe_runtime.cli.rows.output import Rows, write_rows

        with translated("read", identifier_of(table)):
            if not tables.table_exists(table):  # a load would log what the error says
                raise NoSuchTableError(table)
        scan = tables.scan(
            table,
            columns=names,
            row_filter=where,
            snapshot_id=None if snapshot is None else tables.find_snapshot(table, snapshot).snapshot_id,
            as_of=None if as_of is None else moment_of(as_of),
            ref=ref,
        )
        head, fields = scan.snapshot(), scan.projection().fields
        types = {field.name: str(field.field_type) for field in fields}
        # PyIceberg has the order of the table; parts of structs are in their column.
        order = names if names is not None and sorted(names) == sorted(types) else list(types)
        schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)

        def rows(most: int | None) -> Iterator[pa.RecordBatch]:
            for batch in scan.update(limit=most).to_arrow_batch_reader():
                yield batch.select(order)

        found = Rows(
            pa.schema([schema.field(name) for name in order]),
            [types[name] for name in order],
            rows,
            {"table": table, "snapshot_id": None if head is None else head.snapshot_id},
            "--columns chooses",
            total=_total(scan) if where is None else None,
        )
        started()
        write_rows(found, wanted)


@contextmanager
def _opened(
    table: str, project: Path | None, environment: str | None, branch: str | None
) -> Iterator[IcebergTableManager]:
    skip_pandas()
    with open_tables(table, project, environment, branch) as (_artifacts, tables):
        yield tables


def _total(scan: DataScan) -> int | None:
    """The number of rows by the metadata of the snapshot; None if deletes have to be applied first."""
    head = scan.snapshot()
    if head is None:
        return 0
    summary = head.summary
    if summary is None or summary["total-records"] is None:
        return None
    deletes = [summary[f"total-{kind}-deletes"] for kind in ("position", "equality")]
    return int(summary["total-records"]) if all(count in (None, "0") for count in deletes) else None
