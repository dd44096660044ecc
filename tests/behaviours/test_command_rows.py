"""floe read and floe sql: rows for people and for programs, of the present and the past, and clear errors."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import FLOE, floe

from floe_core.compiler import compile_project
from floe_iceberg import Lake

REVENUE = "SELECT city, sum(amount) AS revenue FROM bronze.raw.orders GROUP BY city ORDER BY city"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A project with 30,000 orders after a first snapshot of 3, which a tag, an id and a time lead to."""
    root = tmp_path_factory.mktemp("rows")
    (root / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    with Lake(compile_project(root).artifacts) as lake:
        tables = lake.tables
        few = pa.table({"id": [1, 2, 3], "city": ["Oslo", None, "Ærø"], "amount": [1, 2, 3]})
        first = tables.write_data("bronze.raw.orders", few, mode="append")
        tables.create_tag("bronze.raw.orders", "closed")
        many = pa.table({"id": range(4, 30_001), "city": ["Oslo"] * 29_997, "amount": [1] * 29_997})
        second = tables.write_data("bronze.raw.orders", many, mode="append")
    before = (second.timestamp - timedelta(milliseconds=1)).isoformat()
    return root, {"--ref": "closed", "--snapshot": str(first.snapshot_id), "--as-of": before}


def document(printed: str) -> Any:
    return json.loads(printed)


def test_a_table_for_people_shows_a_few_rows_and_what_is_left_out(project: tuple[Path, dict[str, str]]) -> None:
    ran = floe("read", "bronze.raw.orders", "--limit", "2", cwd=project[0])
    assert ran.returncode == 0, ran.stderr
    assert "and 29,998 more rows; --limit shows more" in ran.stdout
    ran = floe("sql", "SELECT * FROM bronze.raw.orders WHERE id <> 7", cwd=project[0])
    assert "and more than 10,000 more rows" in ran.stdout
    assert len(ran.stdout.splitlines()) < 30


@pytest.mark.parametrize("option", ["--ref", "--snapshot", "--as-of"])
def test_the_past_is_read(project: tuple[Path, dict[str, str]], option: str) -> None:
    root, past = project
    ran = floe("read", "bronze.raw.orders", option, past[option], "--json", cwd=root)
    found = document(ran.stdout)
    assert found == {
        "table": "bronze.raw.orders",
        "snapshot_id": int(past["--snapshot"]),
        "columns": [
            {"name": "id", "type": "long"},
            {"name": "city", "type": "string"},
            {"name": "amount", "type": "long"},
        ],
        "rows": found["rows"],
        "ok": True,
    }
    assert sorted(row["id"] for row in found["rows"]) == [1, 2, 3]


def test_columns_rows_and_forms_are_chosen(project: tuple[Path, dict[str, str]]) -> None:
    root, _ = project
    chosen = ("--columns", "city, id", "--where", "id < 4 AND city IS NOT NULL")
    rows = [{"city": "Oslo", "id": 1}, {"city": "Ærø", "id": 3}]
    ran = floe("read", "bronze.raw.orders", *chosen, "--output", "json", cwd=root, PYTHONIOENCODING="ascii")
    assert sorted(document(ran.stdout), key=lambda row: row["id"]) == rows
    ran = floe("read", "bronze.raw.orders", *chosen, "--output", "csv", cwd=root)
    assert sorted(csv.reader(io.StringIO(ran.stdout))) == [["Oslo", "1"], ["city", "id"], ["Ærø", "3"]]
    assert (
        floe("read", "bronze.raw.orders", *chosen, "--to", "rows.parquet", cwd=root).stdout
        == "wrote 2 rows to rows.parquet\n"
    )
    assert sorted(pq.read_table(root / "rows.parquet").to_pylist(), key=lambda row: row["id"]) == rows
    again = floe("read", "bronze.raw.orders", "--to", "rows.parquet", "--json", cwd=root)
    assert again.returncode == 3
    assert "exists already" in document(again.stdout)["error"]
    assert pq.read_table(root / "rows.parquet").num_rows == 2


def test_a_query_comes_as_an_argument_from_a_file_and_from_standard_input(project: tuple[Path, dict[str, str]]) -> None:
    root, _ = project
    (root / "revenue.sql").write_text(f"{REVENUE} -- ø\n;\n", encoding="utf-8")
    printed = [
        floe("sql", REVENUE, "--json", cwd=root),
        floe("sql", "--file", "revenue.sql", "--json", cwd=root),
        floe("sql", "-", "--json", cwd=root, stdin=REVENUE),
    ]
    assert [ran.returncode for ran in printed] == [0, 0, 0], printed[0].stderr
    found = document(printed[0].stdout)
    assert found["rows"] == [
        {"city": None, "revenue": 2},
        {"city": "Oslo", "revenue": 29_998},
        {"city": "Ærø", "revenue": 3},
    ]
    assert found["columns"] == [{"name": "city", "type": "VARCHAR"}, {"name": "revenue", "type": "HUGEINT"}]
    assert (found["ok"], found["engine"], list(found["snapshots"])) == (True, "duckdb", ["bronze.raw.orders"])
    assert {ran.stdout for ran in printed} == {printed[0].stdout}


READ = ("read", "bronze.raw.orders")
MISTAKES: tuple[tuple[tuple[str, ...], int, str], ...] = (
    (("sql", "SELECT amuont FROM bronze.raw.orders"), 1, "line 1, column 8: there is no column 'amuont'; did you mean"),
    (("sql", "SELECT * FROM bronze.raw.ordres"), 1, "did you mean bronze.raw.orders?"),
    (("sql", ""), 1, "the query is empty"),
    (("sql", "DELETE FROM bronze.raw.orders"), 3, "DELETE writes"),
    (("sql", "SELECT * FROM read_csv('/etc/passwd')"), 3, "is refused"),
    (("sql", "SELECT 1 AS a, 2 AS a", "--output", "json"), 1, "two columns are called 'a'"),
    (("sql", "SELECT 1", "--file", "floe.yaml"), 2, "give one query"),
    (("sql", "SELECT 1", "--engine", "duckbd"), 2, "Did you mean 'duckdb'?"),
    (("sql", "SELECT 1", "--limit", "10001"), 2, "at most 10,000 rows"),
    (("read", "bronze.raw.ordres"), 1, "Did you mean bronze.raw.orders?"),
    ((*READ, "--columns", "amuont"), 1, "did you mean 'amount'?"),
    ((*READ, "--where", "id = = 3"), 1, "cannot be read at character"),
    ((*READ, "--ref", "nope"), 1, "no tag or branch 'nope' (there: main, closed)"),
    ((*READ, "--as-of", "2026-01-31"), 1, "has no time zone"),
    ((*READ, "--as-of", "yesterday"), 1, "is not a time"),
    ((*READ, "--ref", "main", "--snapshot", "12"), 2, "exclude each other"),
    ((*READ, "--to", "rows.xlsx"), 2, "say the form with --output"),
    ((*READ, "--to", "out/rows.csv"), 3, "there is no folder out: create it"),
)


def test_a_mistake_is_explained(project: tuple[Path, dict[str, str]]) -> None:
    for arguments, code, said in MISTAKES:
        ran = floe(*arguments, cwd=project[0])
        assert (ran.returncode, said in ran.stderr, ran.stdout) == (code, True, ""), (arguments, ran)
        assert ran.stderr.startswith("error: ")
        assert "Traceback" not in ran.stderr


def test_a_mistake_is_one_document_for_programs(project: tuple[Path, dict[str, str]]) -> None:
    for arguments, code, said in MISTAKES[:4]:
        ran = floe(*arguments, "--json", cwd=project[0])
        found = document(ran.stdout)
        assert (ran.returncode, found["ok"], said in found["error"]) == (code, False, True), (arguments, ran)


def test_a_closed_pipe_ends_the_command(project: tuple[Path, dict[str, str]]) -> None:
    query = "SELECT id, range FROM bronze.raw.orders, range(1000000)"
    command = f'{FLOE} sql "{query}" --output csv | head -1; echo "${{PIPESTATUS[0]}}"'
    ran = subprocess.run(["bash", "-c", command], cwd=project[0], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ('"id","range"\n141\n', "")
