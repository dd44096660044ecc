"""The demo's pipeline on a catalog server, with only floe.yaml changed: the same figures."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from tests.catalogs import SideLake, rest_settings, side_lake
from tests.engines import rows_of
from tests.servers.seaweedfs import SeaweedFS, seaweedfs_server

from floe_core.identifiers import Namespace, TableIdentifier
from floe_iceberg import Lake
from floe_runtime.demo.story import check_figures
from floe_runtime.templates import copy_template

pytestmark = pytest.mark.full  # a whole pipeline

TABLES = ("gold.daily_revenue", "gold.top_products", "silver.orders", "silver.rejected_orders")


def filled(folder: Path, settings: str) -> Path:
    """The retailer's project, every asset materialized by the command."""
    copy_template("retail", folder, {})
    source = folder / "source.json"
    source.write_text(json.dumps({**json.loads(source.read_text()), "rows": 20_000}))
    spec = folder / "floe.yaml"
    spec.write_text(f"{spec.read_text()}{settings}")
    command = [str(Path(sys.executable).parent / "floe"), "run", "--missing"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A server with nothing in it, as the demo's names are not a test's."""
    with seaweedfs_server(tmp_path_factory.mktemp("fresh")) as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, lake: Lake, fresh: SeaweedFS) -> SideLake:
    settings = rest_settings(fresh)
    filled(tmp_path_factory.mktemp("demo") / "served", settings)
    return side_lake(lake, tmp_path_factory.mktemp("reader"), settings)


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_are_the_same_for_both_engines(served: SideLake, name: str) -> None:
    table = TableIdentifier.from_string(name)
    expected = rows_of(served.tables.scan(table).to_arrow())
    assert len(expected) > 5
    assert rows_of(served.read(table).toArrow()) == expected


def test_every_figure_holds_when_it_is_computed_again_without_spark(served: SideLake) -> None:
    console = Console(file=io.StringIO(), width=200)
    check_figures(served.tables, console)


def test_the_files_are_in_the_bucket_and_spark_wrote_them(served: SideLake) -> None:
    for table in served.tables.list_tables(Namespace(levels=("gold",))):
        loaded = served.tables.load_table(table)
        assert loaded.location().startswith("s3://lake/gold/")
        assert served.tables.list_snapshots(table)[-1].summary["engine-name"] == "spark"
