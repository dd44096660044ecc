"""`floe tables diff --rows`: what it prints for people, for pull requests and for programs."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console
from tests.commands import floe

from floe_core import compile_project
from floe_core.models import PartitionTransform
from floe_iceberg import AddColumn, Lake
from floe_iceberg.comparison import TableComparison
from floe_runtime.cli.branches.diff_markdown import markdown_lines
from floe_runtime.console.row_differences import print_differences

T = "silver.orders"
BY_CITY = [PartitionTransform(source_column="city", transform_type="identity")]
DEFINITIONS = """\
import pyarrow as pa
from dagster import asset
from floe_dagster import create_definitions


@asset(key_prefix="silver", metadata={"floe/sensitive_columns": ["Note"]})
def orders() -> pa.Table:
    print("the definitions were loaded")
    return pa.table({"id": [1]})


print("imported")
defs = create_definitions([orders])
"""


def table(*rows: tuple[object, ...]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table(dict(zip(("id", "city", "note"), map(list, columns), strict=True)))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A table whose head and tag v1 differ in one row of each kind."""
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    with Lake(compile_project(tmp_path).artifacts) as opened:
        tables = opened.tables
        first = table((1, "Oslo", "a"), (2, "Rome", "b"), (3, "Rome", "c"))
        tables.write_data(T, first, mode="append", partition_by=BY_CITY)
        tables.create_tag(T, "v1")
        tables.evolve_schema(T, AddColumn("size", pa.int64()))
        tables.write_data(T, table((2, "Rome", "B"), (3, "Rome", "c"), (4, "Oslo", None)), mode="overwrite")
        yield opened


@pytest.fixture
def shop(lake: Lake) -> Path:
    return lake.artifacts.root


def printed(found: list[TableComparison], width: int) -> list[str]:
    out = StringIO()
    print_differences(Console(file=out, width=width, highlight=False), found)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def cells(line: str) -> list[str]:
    """The cells of a row of a Markdown table, as GitHub shows them."""
    return [html.unescape(re.sub("</?code>|<br>", "", cell)).strip() for cell in line.strip("|").split("|")]


def test_rows_are_compared_in_the_terminal(shop: Path) -> None:
    ran = floe("tables", "diff", T, "--from", "v1", "--rows", "--key", "id", cwd=shop)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [line.rstrip() for line in ran.stdout.splitlines()] == [
        "silver.orders  +1 -1 ~1 rows",
        "  3 rows before, 3 after",
        "  column added size (long optional)",
        "  city=Oslo  +1 -1 ~0",
        "  city=Rome  +0 -0 ~1",
        "  + id=4, city=Oslo, note=NULL, size=NULL",
        "  - id=1, city=Oslo, note=a, size=NULL",
        "  ~ id=2: note b -> B",
        "  2 data files added, 2 data files removed",
        "  compared: all 6 rows of the files that differ",
    ]


def test_the_document_has_every_number(shop: Path) -> None:
    ran = floe("tables", "diff", T, "--from", "v1", "--rows", "--json", cwd=shop)
    document = json.loads(ran.stdout)
    assert (document["ok"], document["rows_added"], document["rows_removed"]) == (True, 2, 2)
    assert (document["rows_changed"], document["keys"], document["sampled"]) == (None, [], False)
    assert document["examples"]["removed"][0] == {"id": 1, "city": "Oslo", "note": "a", "size": None}


def test_a_sample_is_chosen_by_max_rows(shop: Path) -> None:
    ran = floe("tables", "diff", T, "--from", "v1", "--rows", "--max-rows", "1", cwd=shop)
    assert ran.returncode == 0
    assert "rows  in a sample" in ran.stdout
    assert "of the 6 rows in the files that differ, one of 6 by a hash of the whole row" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--key", "id"], "--key is for comparing rows: add --rows."),
        (["--markdown"], "--markdown is for comparing rows: add --rows."),
        (["--max-rows", "5"], "--max-rows is for comparing rows: add --rows."),
        (["--rows", "--limit", "5"], "--limit is for partitions of files; --rows shows a few examples."),
        (["--rows", "--markdown", "--json"], "--markdown and --json are mutually exclusive."),
    ],
)
def test_options_that_do_not_fit_together_are_refused(shop: Path, arguments: list[str], message: str) -> None:
    ran = floe("tables", "diff", T, "--from", "v1", *arguments, cwd=shop)
    assert (ran.returncode, message in ran.stdout + ran.stderr) == (2, True)


def test_a_mistyped_key_is_an_error_with_the_nearest(shop: Path) -> None:
    ran = floe("tables", "diff", T, "--from", "v1", "--rows", "--key", "ID", cwd=shop)
    assert ran.returncode == 1
    assert "no column 'ID'; did you mean 'id'?" in ran.stderr


@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
def test_sensitive_columns_of_assets_are_not_shown(shop: Path, form: list[str]) -> None:
    (shop / "definitions.py").write_text(DEFINITIONS, encoding="utf-8")
    ran = floe("tables", "diff", T, "--from", "v1", "--rows", "--key", "id", *form, cwd=shop)
    assert ran.returncode == 0, ran.stderr
    assert "imported" not in ran.stdout
    assert "note" in ran.stdout
    for value in ("B", "a"):
        assert not re.search(rf"\b{value}\b", ran.stdout.replace("in a sample", "")), ran.stdout


def test_no_example_is_shown_if_the_definitions_cannot_be_loaded(shop: Path) -> None:
    (shop / "definitions.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    ran = floe("tables", "diff", T, "--from", "v1", "--rows", "--json", cwd=shop)
    assert "its sensitive columns are unknown: no examples are shown" in ran.stderr
    document = json.loads(ran.stdout)
    assert (document["rows_added"], document["examples"]) == (2, {"added": [], "removed": [], "changed": []})


NASTY = [
    "a|b",
    "a\nb",
    "``` `code` ```",
    "<script>alert(1)</script>",
    "</details>",
    "&amp;",
    "*x* _y_ ~z~ [l](u) ![i](u) \\",
    "@user #12 http://evil.example",
    "\x1b[2J",
    "",
    "NULL",
    "x" * 200,
]


def test_markdown_shows_every_value_as_it_is(lake: Lake) -> None:
    name = "silver.na|sty`<b>"
    rows = pa.table({"id": list(range(len(NASTY))), "v|`<i>": NASTY})
    after = lake.tables.write_data("silver.nasty", rows, mode="append").snapshot_id
    found = lake.compare("silver.nasty", before=None, after=after, examples=len(NASTY))
    lines = list(markdown_lines([found], f"diff of {name}"))
    text = "\n".join(lines)
    shown = [cells(line) for line in lines if line.startswith("| <code>") and line.count("|") == 3]
    assert shown[0] == ["id", "v|`<i>"]
    assert [value for _, value in shown[1:]] == [
        "a|b",
        "a\\nb",
        *NASTY[2:8],
        "\\x1b[2J",
        "''",
        "'NULL'",
        "x" * 59 + "…",
    ]
    markup = re.sub(r"&#\d+;|</?(code|details|summary)>", "", text)
    assert not set("<>`@[]_\\\x1b") & set(markup)
    assert (text.count("<details>"), text.count("</details>")) == (1, 1)


def test_markdown_has_a_table_of_tables_and_folded_examples(lake: Lake) -> None:
    lake.tables.write_data("silver.same", pa.table({"n": [1]}), mode="append")
    same = lake.compare("silver.same", before="main")
    found = lake.compare(T, before="v1", keys=["id"])
    lines = list(markdown_lines([found, same], "floe branches diff july"))
    assert lines[0] == "### floe branches diff july"
    assert [cells(line) for line in lines[4:6]] == [
        ["silver.orders", "1", "1", "1", "added size (long optional)", "all rows"],
        ["silver.same", "0", "0", "", "", "all rows"],
    ]
    assert [line for line in lines if "summary" in line] == [
        "<details><summary><code>silver.orders</code>: +1 -1 ~1 rows</summary>"
    ]
    assert cells(lines[lines.index("Changed, 1:") + 4]) == ["id=2", "note", "b", "B"]
    assert list(markdown_lines([], "x"))[-1] == "No table was compared."


def test_a_narrow_terminal_shows_everything(lake: Lake) -> None:
    wide: dict[str, Any] = {f"column_{number}": ["value of it"] for number in range(20)}
    after = lake.tables.write_data("silver.wide", pa.table(wide), mode="append").snapshot_id
    found = [lake.compare(T, before="v1"), lake.compare("silver.wide", before=None, after=after)]
    lines = printed([*found, lake.compare(T, before="v1", after="v1")], 60)
    assert max(map(len, lines)) <= 60
    text = " ".join(" ".join(lines).split())
    assert "column_11=value of it, and 8 more columns" in text
    assert "note=B, size=NULL" in text
    assert "without keys, a changed row counts as one removed and one added" in text
    assert lines[-1] == "no difference in silver.orders"


def test_a_sample_without_differences_is_not_called_equal(lake: Lake) -> None:
    rows = pa.table({"n": list(range(100))})
    before = lake.tables.write_data("silver.copy", rows, mode="append").snapshot_id
    lake.tables.write_data("silver.copy", rows, mode="overwrite")
    lines = printed([lake.compare("silver.copy", before=before, max_rows=10)], 100)
    assert lines[0] == "silver.copy  +0 -0 rows  in a sample"


def test_what_is_left_out_is_counted(lake: Lake) -> None:
    rows = pa.table({"city": [f"c{number:02}" for number in range(30)], "n": [1] * 30})
    after = lake.tables.write_data("silver.cities", rows, mode="append", partition_by=BY_CITY).snapshot_id
    found = lake.compare("silver.cities", before=None, after=after)
    lines = printed([found], 100)
    assert "  and 10 more partitions; --json lists 30" in lines
    assert "  and 25 more added" in lines
    assert "| 20 more partitions | |" in list(markdown_lines([found], "x"))
