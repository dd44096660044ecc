"""Whoever opens a lake closes it, or the end of the process does: its plugins are shut down once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier
from floe_core.plugins.ports import Plugin
from floe_iceberg import IcebergTableManager
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.storage.local import LocalStoragePlugin
from floe_runtime import connect

ORDERS = TableIdentifier.from_string("bronze.orders")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plugins that were shut down, in order."""
    names: list[str] = []

    def recorded(real: Callable[[Plugin], None]) -> Callable[[Plugin], None]:
        def shutdown(plugin: Plugin) -> None:
            names.append(plugin.metadata.name)
            real(plugin)

        return shutdown

    monkeypatch.setattr(SqlCatalogPlugin, "shutdown", recorded(SqlCatalogPlugin.shutdown))  # type: ignore[arg-type]  # of its own class
    monkeypatch.setattr(LocalStoragePlugin, "shutdown", recorded(LocalStoragePlugin.shutdown))
    return names


def test_leaving_a_lake_closes_the_connections_of_its_catalog(project: Path, ended: list[str]) -> None:
    with connect(project) as lake:
        lake.tables.write_data(ORDERS, pa.table({"n": [1]}), mode="append")
        catalog = lake.tables.catalog_plugin.connect()
        assert isinstance(catalog, SqlCatalog)
        assert catalog.engine.pool.checkedin() == 1  # type: ignore[attr-defined]  # of every pool with a queue
    assert catalog.engine.pool.checkedin() == 0  # type: ignore[attr-defined]
    assert ended == ["sql", "local"]
    lake.close()
    assert ended == ["sql", "local"]


def test_a_lake_that_was_never_used_has_nothing_to_close(project: Path, ended: list[str]) -> None:
    connect(project).close()
    assert ended == []
    assert not (project / ".floe").exists()


def test_a_table_outlives_the_lake_it_was_loaded_from(project: Path) -> None:
    with connect(project) as lake:
        lake.tables.write_data(ORDERS, pa.table({"n": [1]}), mode="append")
        table = lake.tables.load_table(ORDERS)
    table.append(pa.table({"n": [2]}))
    assert sorted(connect(project).tables.scan(ORDERS).to_arrow()["n"].to_pylist()) == [1, 2]


def test_a_storage_whose_catalog_does_not_start_is_shut_down(
    project: Path, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: SqlCatalogPlugin) -> None:
        raise RuntimeError("no licence")

    monkeypatch.setattr(SqlCatalogPlugin, "startup", refuse)
    with pytest.raises(RuntimeError, match="no licence"):
        IcebergTableManager.open(compile_project(project).artifacts)
    assert ended == ["local"]


def test_a_lake_that_nobody_closed_is_closed_when_the_process_exits(project: Path) -> None:
    script = (
        "from floe_iceberg.catalogs.sql import SqlCatalogPlugin\n"
        "from floe_runtime import connect\n"
        "SqlCatalogPlugin.shutdown = lambda self: print('shut down')\n"
        "lake = connect()\n"
        "print(lake.tables.list_namespaces())\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=project, check=True, capture_output=True, text=True)
    assert ran.stdout.splitlines() == ["[]", "shut down"]
