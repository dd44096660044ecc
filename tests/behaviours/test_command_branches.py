"""`floe branches` and `--branch` as their users run them: a process, a real lake, real exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.commands import floe

from floe_core import compile_project
from floe_iceberg import Lake
from floe_runtime import connect

ORDERS, STORES, TOTALS = "b.orders", "b.stores", "g.totals"
SETTINGS = """\
name: shop
environments:
  prod: {protected: true}
  pr: {branch: pr-7}
"""
DEFINITIONS = """
import os
import pandas as pd
from dagster import AssetIn, BackfillPolicy, DailyPartitionsDefinition, asset
from floe_dagster import checks, create_definitions

days = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")


@asset(
    key_prefix="b",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    metadata={"partition_expr": "day"},
)
def orders(context) -> pd.DataFrame:
    return pd.DataFrame(
        {"day": pd.to_datetime(list(context.partition_keys)).date, "n": int(os.environ.get("N", "1"))}
    )


@asset(key_prefix="g", ins={"orders": AssetIn(["b", "orders"])}, metadata={"write_mode": "overwrite"})
def totals(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"n": [orders["n"].sum()]})


positive = checks.of(orders, checks.value_range("n", min=0), blocking=True)
defs = create_definitions([orders, totals], asset_checks=[positive])
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "floe.yaml").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / "definitions.py").write_text(DEFINITIONS, encoding="utf-8")
    return tmp_path


@pytest.fixture
def main(shop: Path) -> Iterator[Lake]:
    """Two tables on main."""
    with Lake(compile_project(shop).artifacts) as lake:
        for name in (ORDERS, STORES):
            lake.tables.write_data(name, pa.table({"id": [1]}), mode="append")
        yield lake


def write(main: Lake, branch: str, table: str, *ids: int, mode: str = "append") -> None:
    with Lake(main.artifacts.on_branch(branch)) as lake:
        lake.tables.write_data(table, pa.table({"id": list(ids)}), mode=mode)


def ids(main: Lake, table: str) -> list[int]:
    return sorted(main.tables.scan(table).to_arrow()["id"].to_pylist())


def told(*arguments: str, cwd: Path, code: int = 0, **environment: str) -> dict[str, Any]:
    """The one document that a command prints for programs."""
    ran = floe(*arguments, "--json", cwd=cwd, **environment)
    assert ran.returncode == code, ran.stdout + ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    assert document["ok"] is (code == 0)
    return document


def shown(*arguments: str, cwd: Path, code: int = 0, **environment: str) -> str:
    ran = floe(*arguments, cwd=cwd, **environment)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    return " ".join((ran.stdout + ran.stderr).split())


# Runs -----------------------------------------------------------------------------------------------------------------


def test_a_project_is_run_at_a_branch_reviewed_and_published(shop: Path) -> None:
    shown("run", "--partition-range", "2026-01-01...2026-01-02", "--with-unpartitioned", cwd=shop)
    at_trial = ("--branch", "trial")
    ran = shown("run", *at_trial, "--partition", "2026-01-02", "--with-unpartitioned", cwd=shop, N="5")
    assert "shop at branch trial" in ran
    assert "main is unchanged; review it with: floe branches diff trial" in ran
    query = f"SELECT n FROM {TOTALS}"
    assert told("sql", query, cwd=shop)["rows"] == [{"n": 2}]
    assert told("sql", query, *at_trial, cwd=shop)["rows"] == [{"n": 6}]
    assert told("read", TOTALS, *at_trial, cwd=shop)["rows"] == [{"n": 6}]
    assert len(told("runs", "list", cwd=shop)["runs"]) == len(told("runs", "list", *at_trial, cwd=shop)["runs"])
    plan = told("plan", "--missing", *at_trial, cwd=shop)
    assert [(one["asset"], one["partitions"]) for one in plan["assets"]] == [("b/orders", 1), ("g/totals", 0)]
    assert told("check", "b/orders", *at_trial, cwd=shop)["ok"]
    difference = shown("branches", "diff", "trial", cwd=shop)
    assert "b.orders +1 -1" in difference
    published = shown("branches", "publish", "trial", cwd=shop)
    assert "b.orders: main moved to it, 1 commit" in published
    assert "published branch trial: 2 tables" in published
    assert told("sql", query, cwd=shop)["rows"] == [{"n": 6}]
    assert told("branches", "list", cwd=shop)["branches"] == []
    plan = told("plan", "--missing", cwd=shop)
    assert [(one["asset"], one["partitions"]) for one in plan["assets"]] == [("b/orders", 1), ("g/totals", 0)]
    assert not list((shop / ".floe").glob("*@*")), "the history of the branch is gone with it"


def test_a_failed_blocking_check_on_a_branch_stops_its_publication(shop: Path) -> None:
    shown("run", "b/orders", "--partition", "2026-01-01", cwd=shop)
    failed = shown("run", "b/orders", "--branch", "trial", "--partition", "2026-01-01", cwd=shop, code=1, N="-5")
    assert "range" in failed
    refused = told("branches", "publish", "trial", cwd=shop, code=3)["error"]
    assert "because blocking checks have failed on it" in refused
    assert "b/orders" in refused
    assert told("read", ORDERS, cwd=shop)["rows"][0]["n"] == 1
    shown("run", "b/orders", "--branch", "trial", "--partition", "2026-01-01", cwd=shop, N="7")
    shown("branches", "publish", "trial", cwd=shop)
    assert told("read", ORDERS, cwd=shop)["rows"][0]["n"] == 7


def test_an_environment_and_a_variable_name_the_branch(shop: Path) -> None:
    shown("run", "b/orders", "--partition", "2026-01-01", cwd=shop)
    one = ("b/orders", "--partition", "2026-01-01")
    assert "at branch pr-7" in shown("run", *one, "--env", "pr", cwd=shop, N="2")
    assert "at branch mine" in shown("run", *one, cwd=shop, N="3", FLOE_BRANCH="mine")
    assert "at branch other" in shown("run", *one, "--branch", "other", cwd=shop, N="4", FLOE_BRANCH="mine")
    assert {one["name"] for one in told("branches", "list", cwd=shop)["branches"]} == {"pr-7", "mine", "other"}
    query = f"SELECT n FROM {ORDERS}"
    assert told("sql", query, "--env", "pr", cwd=shop)["rows"] == [{"n": 2}]
    assert told("sql", query, cwd=shop, FLOE_BRANCH="mine")["rows"] == [{"n": 3}]
    assert told("sql", query, "--branch", "other", cwd=shop)["rows"] == [{"n": 4}]
    assert told("sql", query, cwd=shop)["rows"] == [{"n": 1}]
    assert told("sql", query, "--branch", "main", "--env", "pr", cwd=shop)["rows"] == [{"n": 1}]


def test_an_atomic_run_at_a_branch_is_refused(shop: Path) -> None:
    assert "leave --atomic out" in shown("run", "--atomic", "--branch", "trial", cwd=shop, code=1)
    assert told("branches", "list", cwd=shop)["branches"] == []


def test_a_program_opens_a_branch(shop: Path, main: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(project=shop, branch="trial") as lake:
        lake.tables.write_data(ORDERS, pa.table({"id": [2]}), mode="append")
        assert lake.sql(f"SELECT count(*) AS n FROM {ORDERS}").to_arrow()["n"].to_pylist() == [2]
    with connect(project=shop, environment="pr") as lake:
        assert lake.tables.at_branch is not None
        assert lake.tables.at_branch.name == "pr-7"
    monkeypatch.setenv("FLOE_BRANCH", "trial")
    with connect(project=shop) as lake:
        assert lake.tables.scan(ORDERS).count() == 2
    with connect(project=shop, branch="main") as lake:
        assert lake.tables.scan(ORDERS).count() == 1
        assert [one.name for one in lake.branches.list()] == ["pr-7", "trial"]
        lake.branches.publish("trial")
    assert ids(main, ORDERS) == [1, 2]


# Verbs ----------------------------------------------------------------------------------------------------------------


def test_branches_are_created_listed_and_shown(shop: Path, main: Lake) -> None:
    assert "no branches; create one with floe run --branch NAME" in shown("branches", "list", cwd=shop)
    assert "branch trial reads main as of" in shown("branches", "create", "trial", cwd=shop)
    assert "no tables yet; write to it with floe run --branch trial" in shown("branches", "show", "trial", cwd=shop)
    write(main, "trial", ORDERS, 2)
    write(main, "trial", TOTALS, 3)
    main.tables.write_data(ORDERS, pa.table({"id": [9]}), mode="append")
    text = shown("branches", "show", "trial", cwd=shop)
    assert "g.totals (new)" in text
    assert "main has moved in other rows" in text
    listed = shown("branches", "list", cwd=shop)
    assert "trial" in listed
    assert "can be published" in listed
    document = told("branches", "show", "trial", cwd=shop)
    assert [(one["table"], one["state"], one["created"]) for one in document["tables"]] == [
        (ORDERS, "behind", False),
        (TOTALS, "ready", True),
    ]
    assert [one["name"] for one in told("branches", "list", cwd=shop)["branches"]] == ["trial"]
    created = told("branches", "create", "second", cwd=shop)
    assert (created["name"], created["tables"]) == ("second", [])


def test_an_update_and_a_publication_say_what_is_put_on_top(shop: Path, main: Lake) -> None:
    write(main, "trial", ORDERS, 2)
    main.tables.write_data(ORDERS, pa.table({"id": [9]}), mode="append")
    assert "put on top of main: b.orders" in shown("branches", "update", "trial", cwd=shop)
    main.tables.write_data(ORDERS, pa.table({"id": [10]}), mode="append")
    text = shown("branches", "publish", "trial", cwd=shop)
    assert "b.orders: on top of what main has gained, 1 commit" in text
    assert ids(main, ORDERS) == [1, 2, 9, 10]


def test_a_conflict_is_refused_by_name_with_exit_code_3(shop: Path, main: Lake) -> None:
    write(main, "trial", ORDERS, 2, mode="overwrite")
    write(main, "trial", STORES, 2)
    main.tables.write_data(ORDERS, pa.table({"id": [9]}), mode="append")
    for verb in ("publish", "update"):
        assert "'b.orders'" in told("branches", verb, "trial", cwd=shop, code=3)["error"]
        refused = shown("branches", verb, "trial", cwd=shop, code=3)
        assert "'b.orders'" in refused
        assert "--restart" in refused
    assert "1 table in conflict" in shown("branches", "list", cwd=shop)
    assert (ids(main, ORDERS), ids(main, STORES)) == ([1, 9], [1])
    assert "--yes" in shown("branches", "update", "trial", "--restart", cwd=shop, code=3)
    again = told("branches", "update", "trial", "--restart", "--yes", cwd=shop)
    assert again["restarted"] == [ORDERS]
    published = told("branches", "publish", "trial", cwd=shop)
    assert [(one["table"], one["created"], one["replayed"]) for one in published["tables"]] == [(STORES, False, False)]
    assert (ids(main, ORDERS), ids(main, STORES)) == ([1, 9], [1, 2])


def test_a_difference_is_shown_for_people_programs_and_pull_requests(shop: Path, main: Lake) -> None:
    write(main, "trial", ORDERS, 2, 3)
    write(main, "trial", STORES, 4)
    document = told("branches", "diff", "trial", cwd=shop)
    assert {one["table"]: one["rows_added"] for one in document["tables"]} == {ORDERS: 2, STORES: 1}
    assert (document["branch"], document["problems"]) == ("trial", [])
    assert "b.orders +2 -0" in shown("branches", "diff", "trial", ORDERS, cwd=shop)
    markdown = shown("branches", "diff", "trial", "--markdown", cwd=shop)
    assert "### Branch trial of shop" in markdown
    assert "b&#46;orders" in markdown or "b.orders" in markdown
    assert "has not written to g.totals" in shown("branches", "diff", "trial", TOTALS, cwd=shop, code=1)
    assert "mutually exclusive" in shown("branches", "diff", "trial", "--markdown", "--json", cwd=shop, code=2)
    assert "--key" in shown("branches", "diff", "trial", "--key", "orders", cwd=shop, code=2)


def test_a_branch_is_discarded_with_consent(shop: Path, main: Lake) -> None:
    write(main, "trial", ORDERS, 2)
    write(main, "trial", TOTALS, 2)
    assert "say --yes" in shown("branches", "discard", "trial", cwd=shop, code=3)
    assert told("branches", "discard", "trial", cwd=shop, code=3)["error"]
    assert [one.name for one in main.branches.list()] == ["trial"]
    discarded = told("branches", "discard", "trial", "--yes", cwd=shop)
    assert discarded["tables"] == [ORDERS, TOTALS]
    assert discarded["files_removed"] >= 1
    assert not main.tables.table_exists(TOTALS)
    assert "the lake has no branch 'trial'" in shown("branches", "discard", "trial", "--yes", cwd=shop, code=1)


def test_a_protected_environment_needs_a_yes(shop: Path, main: Lake) -> None:
    write(main, "trial", ORDERS, 2)
    for verb in ("publish", "discard"):
        refused = told("branches", verb, "trial", "--env", "prod", cwd=shop, code=3)["error"]
        assert "environment prod is protected" in refused
    assert ids(main, ORDERS) == [1]
    told("branches", "publish", "trial", "--env", "prod", "--yes", cwd=shop)
    assert ids(main, ORDERS) == [1, 2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("read", ORDERS),
        ("plan",),
        pytest.param(("sql", "SELECT 1 AS n"), marks=pytest.mark.full),
        pytest.param(("runs", "list"), marks=pytest.mark.full),
        pytest.param(("check",), marks=pytest.mark.full),
    ],
)
def test_a_command_that_only_reads_creates_no_branch(shop: Path, main: Lake, arguments: tuple[str, ...]) -> None:
    main.branches.create("trial")
    error = told(*arguments, "--branch", "trail", cwd=shop, code=1)["error"]
    assert "the lake has no branch 'trail'; did you mean trial?" in error
    assert [one.name for one in main.branches.list()] == ["trial"]


def test_names_that_cannot_be_a_branch_are_refused(shop: Path, main: Lake) -> None:
    main.tables.create_tag(ORDERS, "audited")
    assert "--branch: " in shown("run", "--branch", "a/b", cwd=shop, code=2)
    assert "'b.orders' (tag)" in shown("branches", "create", "audited", cwd=shop, code=1)
    assert "branch" in told("branches", "create", "2026-01-01", cwd=shop, code=1)["error"]
    told("branches", "create", "trial", cwd=shop)
    assert "exists already" in shown("branches", "create", "trial", cwd=shop, code=1)
    assert "differs from 'Trial' in case only" in shown("branches", "create", "Trial", cwd=shop, code=1)
    assert [one.name for one in main.branches.list()] == ["trial"]
