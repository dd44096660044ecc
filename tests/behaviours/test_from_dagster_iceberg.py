"""Projects of dagster-iceberg: their assets under Floe's IO manager, and their tables under both."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from benchmarks.peer_environment import peer_python
from dagster import DagsterInstance, DailyPartitionsDefinition, Definitions, HourlyPartitionsDefinition, asset
from tests.projects import bookshop

from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_dagster import IcebergIOManager, LakeResource, create_definitions
from floe_iceberg import IcebergTableManager

# As docs/guides/from-dagster-iceberg.md has it.
FLOE_YAML = """\
name: books
catalog: {type: sql, name: books, uri: "sqlite:///catalog.db"}
storage: {type: local, path: warehouse}
tables: {default_namespace: books, ignore_key_prefix: true}
"""
FIRST = (
    "authors", "visits", "stock", "orders@2026-01-01", "orders@2026-01-02", "returns@2026-01-01", "returns@2026-01-02",
    "staff@Oslo", "staff@Rome", "+harbour", "tills@harbour", "sales@Oslo|2026-01-01", "sales@Rome|2026-01-01",
)  # fmt: skip
SECOND = (
    "authors", "visits", "stock", "orders@2026-01-02", "orders@2026-01-03", "returns@2026-01-02", "staff@Rome",
    "+harbour", "+station", "tills@harbour", "tills@station", "sales@Rome|2026-01-01", "sales@Rome|2026-01-02",
    "day_before@2026-01-03", "all_orders", "seen",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "floe.yaml").write_text(FLOE_YAML, encoding="utf-8")
    return tmp_path


def rounds(tables: IcebergTableManager, name: str, *by: str) -> dict[Any, list[int]]:
    """In which round the rows of each key were written."""
    found: dict[Any, list[int]] = {}
    for row in tables.scan(TableIdentifier.from_string(f"books.{name}")).to_arrow().to_pylist():
        key = tuple(str(row[column])[:10] for column in by)
        found.setdefault(key[0] if len(key) == 1 else key, []).append(row["round"])
    return {key: sorted(values) for key, values in sorted(found.items())}


def check_both_rounds(tables: IcebergTableManager) -> None:
    """What the tables hold after both rounds, whichever IO manager wrote the first."""
    assert rounds(tables, "authors", "name") == {"Eco": [2], "Hamsun": [2]}
    assert rounds(tables, "visits", "page") == {"/": [1, 2], "/search": [1, 2]}
    assert rounds(tables, "stock", "title") == {"Il nome, e": [1, 2], "Sult": [2]}
    assert rounds(tables, "orders", "at") == {"2026-01-01": [1, 1], "2026-01-02": [2, 2], "2026-01-03": [2, 2]}
    assert rounds(tables, "returns", "day") == {"2026-01-01": [1, 1], "2026-01-02": [2, 2]}
    assert rounds(tables, "staff", "city") == {"Oslo": [1, 1], "Rome": [2, 2]}
    assert rounds(tables, "tills", "shop") == {"harbour": [2, 2], "station": [2, 2]}
    assert rounds(tables, "sales", "city", "at") == {
        ("Oslo", "2026-01-01"): [1, 1],
        ("Rome", "2026-01-01"): [2, 2],
        ("Rome", "2026-01-02"): [2, 2],
    }
    (before,) = tables.scan(TableIdentifier.from_string("books.day_before")).to_arrow().to_pylist()
    assert (before["orders"], before["first"].day) == (2, 2)
    (projected,) = tables.scan(TableIdentifier.from_string("books.all_orders")).to_arrow().to_pylist()
    assert projected == {"columns": "id, round", "rows": 6}


def opened(folder: Path) -> IcebergTableManager:
    return IcebergTableManager.open(compile_project(folder).artifacts)


def test_assets_written_for_dagster_iceberg_do_the_same_under_floe(folder: Path, instance: DagsterInstance) -> None:
    manager = bookshop.floe(folder)
    for number, orders in (("1", FIRST), ("2", SECOND)):
        for order in orders:
            bookshop.materialize(manager, instance, order, round=number)
    check_both_rounds(opened(folder))


@pytest.mark.full
def test_a_project_of_dagster_iceberg_moves_to_floe_and_stays_readable_by_both(
    folder: Path, instance: DagsterInstance
) -> None:
    def peer(*orders: str) -> None:
        command = [str(peer_python()), str(Path(bookshop.__file__)), "dagster-iceberg", str(folder), *orders]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]

    peer(*FIRST)
    specs = {name: str(opened(folder).load_table(_named(name)).spec()) for name in ("orders", "staff", "sales")}
    manager = bookshop.floe(folder)
    for order in SECOND:
        bookshop.materialize(manager, instance, order, round="2")
    tables = opened(folder)
    check_both_rounds(tables)
    assert {name: str(tables.load_table(_named(name)).spec()) for name in specs} == specs, "nothing repartitioned"
    by_floe = seen(tables)

    peer(
        "+harbour", "+station", "seen"
    )  # dagster-iceberg reads every table that Floe wrote to, and replaces what it saw
    assert seen(opened(folder)) == by_floe
    peer("orders@2026-01-01", "stock")
    bookshop.materialize(manager, instance, "seen", round="3")
    assert Counter(name for name, *_ in seen(opened(folder))) == Counter(name for name, *_ in by_floe)


def _named(name: str) -> TableIdentifier:
    return TableIdentifier.from_string(f"books.{name}")


def seen(tables: IcebergTableManager) -> list[tuple[Any, ...]]:
    rows = tables.scan(_named("seen")).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in rows)


# What dagster-iceberg does on request --------------------------------------------------------------------------------


def at(day: str, hour: int = 0) -> pa.Table:
    from datetime import datetime

    return pa.table({"at": pa.array([datetime.fromisoformat(f"{day}T{hour:02}:00:00")], pa.timestamp("us"))})


@pytest.mark.parametrize(
    "said", [{"floe/evolve_partitions": True}, {"partition_spec_update_mode": "update"}], ids=["floe", "peer"]
)
def test_the_partitioning_of_a_table_follows_the_asset_on_request(
    folder: Path, instance: DagsterInstance, said: dict[str, Any]
) -> None:
    manager = bookshop.floe(folder)

    def write(partitions: Any, key: str | None, data: pa.Table, **metadata: Any) -> list[str]:
        expr = {"partition_expr": "at"} if partitions is not None else {}

        @asset(name="events", partitions_def=partitions, metadata={**expr, **metadata})
        def events() -> pa.Table:
            return data

        job = Definitions(assets=[events], resources={"io_manager": manager}).resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance, partition_key=key).success
        return [str(field.transform) for field in opened(folder).load_table(_named("events")).spec().fields]

    days, hours = DailyPartitionsDefinition("2026-01-01"), HourlyPartitionsDefinition("2026-01-01-00:00")
    assert write(days, "2026-01-01", at("2026-01-01", 5)) == ["day"]
    assert write(hours, "2026-01-02-07:00", at("2026-01-02", 7)) == ["day"], "only on request"
    assert write(hours, "2026-01-02-08:00", at("2026-01-02", 8), **said) == ["hour"]
    assert write(hours, "2026-01-01-05:00", at("2026-01-01", 5), **said) == ["hour"]
    assert write(None, None, at("2026-01-03"), write_mode="append", **said) == []
    assert opened(folder).scan(_named("events")).to_arrow().num_rows == 4


def test_the_write_that_changes_the_partitioning_is_laid_out_by_the_new_one(
    folder: Path, instance: DagsterInstance
) -> None:
    """The table that the IO manager loaded before is not the one that is written to."""
    manager = bookshop.floe(folder)

    def write(partitions: Any, key: str, data: pa.Table, **metadata: Any) -> None:
        @asset(name="events", partitions_def=partitions, metadata={"partition_expr": "at", **metadata})
        def events() -> pa.Table:
            return data

        job = Definitions(assets=[events], resources={"io_manager": manager}).resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance, partition_key=key).success

    write(DailyPartitionsDefinition("2026-01-01"), "2026-01-01", at("2026-01-01", 5))
    hours = HourlyPartitionsDefinition("2026-01-01-00:00")
    write(hours, "2026-01-02-08:00", at("2026-01-02", 8), **{"floe/evolve_partitions": True})
    table = opened(folder).load_table(_named("events"))
    assert sorted(task.file.spec_id for task in table.scan().plan_files()) == [0, table.spec().spec_id]
    assert table.spec().spec_id != 0


def test_a_table_of_another_asset_is_not_repartitioned(folder: Path) -> None:
    """The owner is checked before the partitioning is changed."""
    manager = bookshop.floe(folder)
    days = DailyPartitionsDefinition("2026-01-01")

    @asset(partitions_def=days, metadata={"partition_expr": "at"})
    def events() -> pa.Table:
        return at("2026-01-01")

    @asset(metadata={"floe/table": "events", "floe/evolve_partitions": True, "write_mode": "overwrite"})
    def others() -> pa.Table:
        return at("2026-01-02")

    def materialize(one: Any, **arguments: Any) -> None:
        job = Definitions(assets=[one], resources={"io_manager": manager}).resolve_implicit_global_asset_job_def()
        job.execute_in_process(**arguments)

    materialize(events, partition_key="2026-01-01")
    with pytest.raises(Exception, match="belongs to asset"):
        materialize(others)
    assert [str(field.transform) for field in opened(folder).load_table(_named("events")).spec().fields] == ["day"]


def test_assets_whose_keys_end_alike_are_refused_where_prefixes_are_ignored(folder: Path) -> None:
    compile_project(folder).artifacts.write()

    @asset(key=["a", "orders"], metadata={"write_mode": "overwrite"})
    def first() -> pa.Table:
        return at("2026-01-01")

    @asset(key=["b", "orders"], metadata={"write_mode": "overwrite"})
    def second() -> pa.Table:
        return at("2026-01-01")

    with pytest.raises(ConfigurationError, match=r"a/orders and b/orders .*books\.orders"):
        create_definitions([first, second], project=folder)


def test_an_io_manager_may_keep_the_prefixes_that_the_project_ignores(folder: Path) -> None:
    compile_project(folder).artifacts.write()
    manager = IcebergIOManager(lake=LakeResource(project=str(folder)), ignore_key_prefix=False)

    @asset(key=["raw", "web", "orders"], metadata={"write_mode": "overwrite"})
    def orders() -> pa.Table:
        return at("2026-01-01")

    job = Definitions(assets=[orders], resources={"io_manager": manager}).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process().success
    assert opened(folder).table_exists(TableIdentifier.from_string("raw.web_orders"))
