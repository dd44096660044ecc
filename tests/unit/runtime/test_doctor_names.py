"""The doctor beside names that other tools gave."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake
from floe_runtime import doctor


def test_a_namespace_and_a_table_that_floe_cannot_name_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    lake, rows = Lake(compile_project(tmp_path).artifacts), pa.table({"id": [1]})
    lake.tables.write_data(TableIdentifier.from_string("bronze.orders"), rows, mode="append")
    floe = tmp_path / ".floe"
    catalog = SqlCatalog("lake", uri=f"sqlite:///{floe}/catalog.db", warehouse=f"file://{floe}/warehouse")
    catalog.create_namespace(("bronze", "not so good"))
    for odd in (("bronze", "odd table"), ("bronze", "not so good", "orders")):
        catalog.create_table(odd, rows.schema)
    assert doctor._timestamps(lake) == "the timestamps of all tables are in order"
    assert [str(one) for one in doctor._all_tables(lake)] == ["bronze.orders"]
