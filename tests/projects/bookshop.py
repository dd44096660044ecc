"""A project as users of dagster-iceberg write it: the same assets under either IO manager.

python bookshop.py dagster-iceberg|floe FOLDER ORDER...

It also runs in the environment of dagster-iceberg, where Floe is not installed. An order is ASSET, ASSET@PARTITION,
or +SHOP, which adds a dynamic partition.
"""

# No postponed annotations here: Dagster looks at those of assets.
import datetime as dt
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetsDefinition,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    DynamicPartitionsDefinition,
    MultiPartitionsDefinition,
    StaticPartitionsDefinition,
    TimeWindowPartitionMapping,
    asset,
)

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-06")
CITIES = StaticPartitionsDefinition(["Oslo", "Rome"])
SHOPS = DynamicPartitionsDefinition(name="shops")
NAMESPACE = "books"


def _round(context: AssetExecutionContext) -> int:
    """The round, which the rows carry."""
    return int(context.run.tags["round"])


def _of(n: int, **columns: list[Any]) -> pa.Table:
    return pa.table({"id": pa.array(range(len(next(iter(columns.values())))), pa.int64()), **columns, "round": [n] * 2})


@asset
def authors(context: AssetExecutionContext) -> pa.Table:
    """No write mode: dagster-iceberg replaces the table."""
    return _of(_round(context), name=["Hamsun", "Eco"])


@asset(key_prefix=["raw", "web"], metadata={"write_mode": "append"})
def visits(context: AssetExecutionContext) -> pa.Table:
    return _of(_round(context), page=["/", "/search"])


@asset(
    metadata={
        "write_mode": "upsert",
        "upsert_options": {
            "join_cols": ["city", "title"],
            "when_matched_update_all": True,
            "when_not_matched_insert_all": True,
        },
    }
)
def stock(context: AssetExecutionContext) -> pa.Table:
    n = _round(context)
    return _of(n, city=["Oslo", "Rome"], title=["Sult", f"Il nome, edition {n}"])


@asset(partitions_def=DAYS, metadata={"partition_expr": "at"})
def orders(context: AssetExecutionContext) -> pa.Table:
    day = dt.datetime.fromisoformat(context.partition_key)
    return _of(_round(context), at=[day, day + dt.timedelta(hours=23)])


@asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def returns(context: AssetExecutionContext) -> pa.Table:
    return _of(_round(context), day=[dt.date.fromisoformat(context.partition_key)] * 2)


@asset(partitions_def=CITIES, metadata={"partition_expr": "city"})
def staff(context: AssetExecutionContext) -> pa.Table:
    return _of(_round(context), city=[context.partition_key] * 2)


@asset(partitions_def=SHOPS, metadata={"partition_expr": "shop"})
def tills(context: AssetExecutionContext) -> pa.Table:
    return _of(_round(context), shop=[context.partition_key] * 2)


@asset(
    partitions_def=MultiPartitionsDefinition({"day": DAYS, "city": CITIES}),
    metadata={"partition_expr": {"day": "at", "city": "city"}},
)
def sales(context: AssetExecutionContext) -> pa.Table:
    key = context.partition_key.keys_by_dimension
    return _of(_round(context), at=[dt.datetime.fromisoformat(key["day"])] * 2, city=[key["city"]] * 2)


@asset(
    partitions_def=DAYS,
    metadata={"partition_expr": "at"},
    ins={"orders": AssetIn(partition_mapping=TimeWindowPartitionMapping(start_offset=-1, end_offset=-1))},
)
def day_before(context: AssetExecutionContext, orders: pa.Table) -> pa.Table:
    at = dt.datetime.fromisoformat(context.partition_key)
    return pa.table({"at": [at], "orders": [orders.num_rows], "first": [min(orders["at"].to_pylist(), default=None)]})


@asset(ins={"orders": AssetIn(metadata={"columns": ["id", "round"]})})
def all_orders(orders: pa.Table) -> pa.Table:
    return pa.table({"columns": [", ".join(orders.column_names)], "rows": [orders.num_rows]})


@asset
def seen(
    authors: pa.Table, stock: pa.Table, orders: pa.Table, returns: pa.Table, staff: pa.Table, tills: pa.Table,
    sales: pa.Table,
) -> pa.Table:  # fmt: skip
    """What this IO manager reads of each table."""
    tables = {"authors": authors, "stock": stock, "orders": orders, "returns": returns, "staff": staff, "tills": tills}
    tables["sales"] = sales
    return pa.table(
        {
            "name": list(tables),
            "rows": [one.num_rows for one in tables.values()],
            "rounds": [",".join(map(str, sorted(one["round"].to_pylist()))) for one in tables.values()],
        }
    )


ASSETS: list[AssetsDefinition] = [
    authors, visits, stock, orders, returns, staff, tills, sales, day_before, all_orders, seen,
]  # fmt: skip


def dagster_iceberg(folder: Path) -> Any:
    """The IO manager of dagster-iceberg; its namespace must exist."""
    from dagster_iceberg.config import IcebergCatalogConfig  # type: ignore[import-not-found]  # of the peer's environment
    from dagster_iceberg.io_manager.arrow import PyArrowIcebergIOManager  # type: ignore[import-not-found]
    from pyiceberg.catalog import load_catalog

    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    load_catalog("books", **properties).create_namespace_if_not_exists(NAMESPACE)
    return PyArrowIcebergIOManager(
        name="books", config=IcebergCatalogConfig(properties=properties), namespace=NAMESPACE
    )


def floe(folder: Path) -> Any:
    """The IO manager of Floe; the namespace and the write mode are those of the guide."""
    from floe_core.compiler import compile_project
    from floe_dagster import IcebergIOManager, LakeResource

    compile_project(folder).artifacts.write()
    return IcebergIOManager(lake=LakeResource(project=str(folder)), default_write_mode="overwrite")


def materialize(manager: Any, instance: DagsterInstance, order: str, **tags: str) -> None:
    """Run one order."""
    name, _, partition = order.partition("@")
    if name.startswith("+"):
        instance.add_dynamic_partitions("shops", [name[1:]])
        return
    definitions = Definitions(assets=ASSETS, resources={"io_manager": manager})
    chosen = next(one for one in ASSETS if one.key.path[-1] == name)
    job = definitions.resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(
        instance=instance,
        asset_selection=[chosen.key],
        partition_key=partition or None,
        tags=tags,
        run_config={"loggers": {"console": {"config": {"log_level": "ERROR"}}}},
    )
    assert done.success


def main(kind: str, folder: str, *orders: str) -> None:
    warnings.simplefilter("ignore")
    manager = {"dagster-iceberg": dagster_iceberg, "floe": floe}[kind](Path(folder))
    with DagsterInstance.ephemeral() as instance:
        for order in orders:
            materialize(manager, instance, order, round="1")


if __name__ == "__main__":
    main(*sys.argv[1:])
