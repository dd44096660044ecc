"""The demo's story holds on real tables, and its check finds what does not hold."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.table import Table
from rich.console import Console

from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager, Lake
from floe_runtime.demo.story import DAYS, DemoFailedError, check_figures, file_change, prepare
from floe_runtime.templates import copy_template
from floe_runtime.templates.retail.retail.source import Source

pytestmark = pytest.mark.full  # the demo itself takes most of a minute

ROWS = 20_000
CORRECTED = date(2026, 1, 5)


@dataclass(frozen=True)
class Demo:
    """What `floe demo` left behind, seen without Spark."""

    output: str
    tables: IcebergTableManager

    def table(self, name: str) -> Table:
        return self.tables.load_table(TableIdentifier.from_string(name))

    def snapshots(self, name: str) -> list[int]:
        return [one.snapshot_id for one in self.tables.list_snapshots(TableIdentifier.from_string(name))]

    def day(self, name: str, day: date, snapshot_id: int | None = None) -> pa.Table:
        start, end = (f"'{one.isoformat()}T00:00:00+00:00'" for one in (day, day + timedelta(days=1)))
        rows = f"ordered_at >= {start} AND ordered_at < {end}"
        return self.table(name).scan(row_filter=rows, snapshot_id=snapshot_id).to_arrow()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo") / "shop"
    command = [str(Path(sys.executable).parent / "floe"), "demo", "--rows", str(ROWS), "--dir", str(folder)]
    # A process of its own: this one may have a Spark session on another catalog.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return Demo(done.stdout, Lake(compile_project(folder).artifacts).tables)


@pytest.fixture
def spoiled(demo: Demo) -> Iterator[Demo]:
    """Tables to write wrong figures to; they are right again after the test."""
    names = ("gold.daily_revenue", "gold.top_products", "silver.rejected_orders")
    right = {name: demo.table(name).metadata.current_snapshot_id for name in names}
    yield demo
    for name, snapshot in right.items():
        demo.table(name).manage_snapshots().set_current_snapshot(snapshot).commit()


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_backfill_is_one_run_and_one_snapshot_a_table(demo: Demo) -> None:
    layers = {layer: demo.tables.catalog_plugin.list_tables(layer) for layer in ("bronze", "silver", "gold")}
    names = [f"{layer}.{name}" for layer, found in layers.items() for name in found]
    first = [demo.table(name).snapshots()[0].summary for name in names]
    assert len(names) == 8
    assert len({one.additional_properties["floe.run-id"] for one in first if one}) == 1
    assert {name: len(demo.snapshots(name)) for name in names if len(demo.snapshots(name)) < 3} == {
        "bronze.customers": 1,
        "bronze.products": 1,
    }


@pytest.mark.parametrize("name", ["bronze.orders", "silver.orders"])
def test_the_correction_keeps_the_files_of_the_other_days(demo: Demo, name: str) -> None:
    first, second, *_ = demo.snapshots(name)
    change = file_change(demo.tables, name, first, second)
    assert change.days == (CORRECTED,)
    assert change.kept >= len(DAYS) - 1
    assert change.removed == change.added == 1


@pytest.mark.parametrize("name", ["bronze.orders", "silver.orders"])
def test_the_new_column_is_null_in_the_days_before_it(demo: Demo, name: str) -> None:
    first, _, third, *_ = (demo.table(name).snapshot_by_id(one) for one in demo.snapshots(name))
    assert first is not None
    assert third is not None
    schemas = demo.table(name).schemas()
    assert "channel" not in schemas[first.schema_id or 0].column_names
    assert "channel" in schemas[third.schema_id or 0].column_names
    assert demo.day(name, DAYS[-2])["channel"].null_count == demo.day(name, DAYS[-2]).num_rows > 0
    assert set(demo.day(name, DAYS[-1])["channel"].to_pylist()) == {"app", "store", "web"}


def test_the_corrected_day_is_told_before_and_after(demo: Demo) -> None:
    first, second, *_ = demo.snapshots("silver.orders")
    before, after = (pc.sum(demo.day("silver.orders", CORRECTED, one)["revenue"]).as_py() for one in (first, second))
    assert after > before
    assert f"{before:,}" in demo.output
    assert f"{after:,}" in demo.output
    assert f"{after - before:+,}" in demo.output


def test_a_bad_delivery_was_stopped_published_and_taken_back(demo: Demo) -> None:
    assert "% of the orders of 2026-01-14 are rejected" in demo.output
    assert "Published in one commit: bronze.orders, silver.orders, silver.rejected_orders." in demo.output
    for name in ("bronze.orders", "silver.orders"):
        table, third = demo.table(name), demo.snapshots(name)[2]
        assert table.metadata.current_snapshot_id == third
        assert [ref for ref in table.metadata.refs if ref.startswith("floe-undone-")]


def test_a_change_of_logic_was_tried_on_a_branch_and_published(demo: Demo) -> None:
    reviewed = demo.output.index("gold.top_products  +0 -10 ~0 rows")
    published = demo.output.index("published branch top-ten: 1 table")
    assert demo.output.index("Main is unchanged, and the branch holds one table.") < reviewed < published
    assert demo.tables.scan("gold.top_products").count() == 10
    assert demo.table("gold.top_products").metadata.refs.keys() == {"main"}


def test_every_order_is_either_counted_or_set_aside(demo: Demo) -> None:
    sent, good, bad = (
        demo.table(name).scan(selected_fields=("order_id",)).to_arrow()["order_id"].to_pylist()
        for name in ("bronze.orders", "silver.orders", "silver.rejected_orders")
    )
    assert len(sent) > len(set(sent)) > len(good) > len(bad) > 0
    assert sorted([*good, *bad]) == sorted(set(sent))


def test_the_figures_pass_the_check(demo: Demo, console: Console) -> None:
    check_figures(demo.tables, console, top=10)
    assert "all the same to the cent" in said(console)
    assert "all the same to the cent" in demo.output


def test_one_cent_too_much_fails_the_check(spoiled: Demo, console: Console) -> None:
    table = spoiled.table("gold.daily_revenue")
    rows = table.scan().to_arrow().sort_by("day")
    right = rows["revenue"].to_pylist()
    wrong = [*right[:3], right[3] + Decimal("0.01"), *right[4:]]
    table.overwrite(rows.set_column(3, "revenue", pa.array(wrong, pa.decimal128(18, 2))))
    with pytest.raises(DemoFailedError) as failure:
        check_figures(spoiled.tables, console, top=10)
    assert f"gold.daily_revenue 2026-01-04 revenue is {wrong[3]}, recomputed {right[3]}" in str(failure.value)
    assert str(failure.value).startswith("1 figure ")


def test_a_bad_order_that_vanished_fails_the_check(spoiled: Demo, console: Console) -> None:
    table = spoiled.table("silver.rejected_orders")
    order = min(table.scan().to_arrow()["order_id"].to_pylist())
    table.delete(f"order_id = {order}")
    with pytest.raises(DemoFailedError, match=r"silver\.rejected_orders 2026-01-01 .* orders is \d+, recomputed \d+"):
        check_figures(spoiled.tables, console, top=10)


def test_figures_that_are_there_twice_fail_the_check(spoiled: Demo, console: Console) -> None:
    table = spoiled.table("gold.top_products")
    table.append(table.scan().to_arrow())
    with pytest.raises(DemoFailedError, match=r"gold\.top_products rows is 20, recomputed 10"):
        check_figures(spoiled.tables, console, top=10)


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path, console: Console) -> None:
    (tmp_path / "thesis.txt").write_text("three years", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="choose another --dir"):
        prepare(tmp_path, rows=ROWS, console=console)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_project_of_another_name_is_left_alone(tmp_path: Path, console: Console) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    (tmp_path / ".floe").mkdir()
    with pytest.raises(ConfigurationError, match="choose another --dir"):
        prepare(tmp_path, rows=ROWS, console=console)
    assert (tmp_path / ".floe").is_dir()


def test_a_demo_moved_to_another_storage_is_left_alone(tmp_path: Path, console: Console) -> None:
    copy_template("retail", tmp_path, {"name: floe-demo": "name: floe-demo\nstorage: {type: local, path: ours}"})
    with pytest.raises(ConfigurationError, match="names another catalog or storage"):
        prepare(tmp_path, rows=ROWS, console=console)
    assert (tmp_path / ".floe").is_dir()


def test_an_earlier_demo_starts_over_and_keeps_the_code(tmp_path: Path, console: Console) -> None:
    prepare(tmp_path, rows=ROWS, console=console)
    (tmp_path / ".floe" / "old").touch()
    (tmp_path / "retail" / "gold.py").write_text("# mine\n", encoding="utf-8")
    prepare(tmp_path, rows=5000, console=console)
    assert not (tmp_path / ".floe" / "old").exists()
    assert (tmp_path / "retail" / "gold.py").read_text(encoding="utf-8") == "# mine\n"
    assert json.loads((tmp_path / "source.json").read_text(encoding="utf-8"))["rows"] == 5000
    assert "earlier demo" in said(console)
    assert "Not as Floe ships it: retail/gold.py" in said(console)


def test_the_source_sends_a_day_as_it_sends_it_in_a_range(lake: Lake) -> None:
    source = Source(rows=1_000, customers=50, products=9, corrected_days=("2026-01-05",), channel_since="2026-01-05")
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    days = [start + timedelta(days=number) for number in range(15)]
    whole = source.send_orders(lake.spark, days[0], days[-1])
    alone = source.send_orders(lake.spark, days[4], days[5])
    in_range = whole.where(whole["ordered_at"].between(days[4], days[5] - timedelta(seconds=1)))
    assert sorted(alone.collect()) == sorted(in_range.collect())
    assert alone.count() > 50


def test_the_commands_that_the_demo_prints_work_as_printed(demo: Demo) -> None:
    """In a shell whose PATH has no floe, as after `make demo`. The last test of this file: it writes to the tables."""
    commands = [line.strip() for line in demo.output.partition("\nNext:\n")[2].splitlines() if line.strip()]
    assert any(command.endswith(" dev") for command in commands)
    script = "\n".join(command for command in commands if not command.endswith(" dev"))  # it serves until Ctrl-C
    environment = {**os.environ, "PATH": "/usr/local/bin:/usr/bin:/bin"}
    ran = subprocess.run(["bash", "-ec", script], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
