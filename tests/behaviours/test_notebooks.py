"""connect() in a notebook: the verbs of the terminal, results as HTML, and code that is edited between two cells."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

from floe_core.errors import ConfigurationError, QueryError
from floe_core.notebooks import Listing
from floe_runtime import Project, RunFailedError, connect

DEFINITIONS = """
import dagster as dg
import pyarrow as pa

from floe_dagster import create_definitions
from numbers_of_the_day import NUMBERS

days = dg.StaticPartitionsDefinition(["mon", "tue"])


@dg.asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
def orders():
    return pa.table({"id": NUMBERS, "<b>": ["<script>alert(1)</script>"] * len(NUMBERS)})


@dg.asset(key_prefix="bronze", partitions_def=days, metadata={"partition_expr": "day", "write_mode": "overwrite"})
def by_day(context):
    return pa.table({"day": [context.partition_key]})


@dg.asset(key_prefix="gold", deps=[orders])
def broken():
    raise ValueError("the till is <empty>")


defs = create_definitions([orders, by_day, broken])
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    (tmp_path / "definitions.py").write_text(DEFINITIONS, encoding="utf-8")
    numbers(tmp_path, 1, 2)
    monkeypatch.chdir(tmp_path)
    with connect() as lake:
        yield lake


def numbers(root: Path, *values: int) -> None:
    """Write a module of the project, a second later than the last time: Python compares times in seconds."""
    file = root / "numbers_of_the_day.py"
    before = file.stat().st_mtime if file.exists() else None
    file.write_text(f"NUMBERS = {list(values)}\n", encoding="utf-8")
    if before is not None:
        os.utime(file, (before + 1, before + 1))


class _Texts(HTMLParser):
    """The texts and the tags of a document."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def html(shown: object) -> _Texts:
    read = _Texts(shown._repr_html_())  # type: ignore[attr-defined]
    assert read.tags <= {"p", "b", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"}
    return read


def test_a_plan_a_run_and_its_history_are_shown(shop: Project) -> None:
    planned = shop.plan("bronze/*", partitions=["mon"], with_unpartitioned=True)
    assert set(planned.created) == {"bronze.orders", "bronze.by_day"}
    assert {"bronze/orders", "creates bronze.orders"} <= set(html(planned).texts)
    report = shop.run("bronze/*", partitions=["mon"], with_unpartitioned=True)
    assert {one.table: one.rows for one in report.materialized} == {"bronze.orders": 2, "bronze.by_day": 1}
    assert "bronze.orders" in html(report).texts
    (run,) = shop.runs()
    assert (run.status, run.partitions) == ("success", "mon")
    assert run.run_id in html(shop.runs()).texts
    assert {"success", "bronze.by_day"} <= set(html(shop.show_run()).texts)
    assert (
        "nothing is missing: everything was materialized before" in html(shop.plan("bronze/orders", missing=True)).texts
    )


def test_a_failure_is_raised_with_what_was_written(shop: Project) -> None:
    with pytest.raises(RunFailedError, match="gold/broken failed: ValueError: the till is <empty>") as raised:
        shop.run("bronze/orders", "gold/broken")
    assert [one.table for one in raised.value.report.materialized] == ["bronze.orders"]
    assert {"failed", "ValueError: the till is <empty>"} <= set(html(raised.value.report).texts)
    assert [run.status for run in shop.runs(status="failure")] == ["failure"]
    assert shop.runs(status="success") == ()


def test_code_that_is_edited_between_two_cells_is_what_runs(shop: Project) -> None:
    root = shop.artifacts.root
    assert shop.run("bronze/orders").materialized[0].rows == 2
    numbers(root, 1, 2, 3)
    assert shop.run("bronze/orders").materialized[0].rows == 3
    (root / "numbers_of_the_day.py").write_text("NUMBERS = [\n", encoding="utf-8")
    with pytest.raises(
        ConfigurationError, match=r"importing definitions failed at numbers_of_the_day.py:1: SyntaxError"
    ):
        shop.run("bronze/orders")
    numbers(root, 1)
    assert shop.run("bronze/orders").materialized[0].rows == 1


def test_a_part_of_the_project_that_was_imported_before_an_error_is_imported_again(shop: Project) -> None:
    definitions = shop.artifacts.root / "definitions.py"
    definitions.write_text(f"{DEFINITIONS}\nraise RuntimeError\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="RuntimeError"):
        shop.plan()
    definitions.write_text(DEFINITIONS, encoding="utf-8")
    numbers(shop.artifacts.root, 1, 2, 3, 4)
    assert shop.run("bronze/orders").materialized[0].rows == 4


def test_tables_snapshots_and_schemas_are_shown(shop: Project) -> None:
    shop.run("bronze/orders")
    numbers(shop.artifacts.root, 7)
    shop.run("bronze/orders")
    tables = shop.tables
    first, second = (snapshot.snapshot_id for snapshot in tables.list_snapshots("bronze.orders"))
    described = html(tables.describe("bronze.orders"))
    assert {"bronze.orders", "rows", "1", "<b>", "long"} <= set(described.texts)
    for shown in (
        tables.summarize_tables(),
        tables.history("bronze.orders"),
        tables.list_snapshots("bronze.orders"),
        tables.current_snapshot("bronze.orders"),
        tables.list_files("bronze.orders"),
        tables.list_partitions("bronze.orders"),
        tables.compare_snapshots("bronze.orders", first),
        tables.plan_rollback("bronze.orders", first),
        tables.describe("bronze.orders").columns,
        tables.describe("bronze.orders").refs,
    ):
        assert html(shown).texts
    assert {str(first), str(second)} <= set(html(tables.history("bronze.orders")).texts)
    assert str(first) in html(tables.plan_rollback("bronze.orders", first)).texts


def test_secrets_in_properties_are_masked(shop: Project) -> None:
    shop.tables.create_table(
        "bronze.secret", pa.schema([("id", pa.int64())]), properties={"s3.secret-access-key": "hunter2"}
    )
    shown = " ".join(html(shop.tables.describe("bronze.secret")).texts)
    assert "s3.secret-access-key" in shown
    assert "hunter2" not in shown


def test_a_shown_query_keeps_its_rows(shop: Project) -> None:
    shop.run("bronze/orders")
    result = shop.sql('SELECT id, "<b>", NULL AS nothing, id AS id FROM bronze.orders ORDER BY id')
    shown = html(result)
    assert shown.texts.count("<script>alert(1)</script>") == 2
    assert {"NULL", "nothing"} <= set(shown.texts)
    assert html(result).texts == shown.texts
    assert [batch.num_rows for batch in result.batches()] == [2]
    assert "its rows were read" in result._repr_html_()
    with pytest.raises(QueryError, match="read already"):
        next(result.batches())


def test_of_a_long_query_only_the_first_rows_are_shown_and_computed(shop: Project) -> None:
    shop.tables.write_data("bronze.long", pa.table({"n": range(5000)}), mode="append")
    result = shop.sql("SELECT n FROM bronze.long ORDER BY n")
    assert "the first 20 rows" in html(result).texts
    assert result.to_arrow()["n"].to_pylist() == list(range(5000))
    assert "the first 20 rows" in html(result).texts
    limited = shop.sql("SELECT n FROM bronze.long ORDER BY n")
    html(limited)
    assert sum(batch.num_rows for batch in limited.batches(7)) == 7


def test_a_long_listing_is_shown_in_part() -> None:
    from floe_iceberg.inspection import Ref

    refs = Listing(Ref(f"t{number}", "tag", number, None) for number in range(250))
    assert "t1" in html(refs[:2]).texts
    assert "and 150 more rows" in html(refs).texts
    assert "t99" in html(refs).texts
    assert "max age days" not in html(refs).texts
    assert html(Listing()).texts == ["none"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"partitions": "mon"}, r"give a list of partitions: \['mon'\]"),
        ({"partitions": ["mon"], "missing": True}, "mutually exclusive"),
        ({"with_unpartitioned": True}, "goes with partitions or partition_range"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(shop: Project, arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        shop.plan(**arguments)  # type: ignore[arg-type]


def test_a_project_without_runs_has_none(shop: Project) -> None:
    assert shop.runs() == ()
    with pytest.raises(ConfigurationError, match="no runs yet"):
        shop.show_run()
    with pytest.raises(ConfigurationError, match="status is 'broken'; it must be one of"):
        shop.runs(status="broken")
    with pytest.raises(ConfigurationError, match="limit is 0"):
        shop.runs(limit=0)
