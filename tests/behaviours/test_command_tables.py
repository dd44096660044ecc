"""`floe tables` and `floe snapshots` as their users run them: a process, a real lake, real exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.commands import FLOE, floe
from tests.faults.damage import damage
from tests.lakes import open_manager
from tests.terminals import in_a_terminal

from floe_core.models import PartitionTransform
from floe_iceberg import IcebergTableManager
from floe_iceberg.files import reached_files
from floe_iceberg.snapshots import CURSOR_PREFIX

ORDERS = "bronze.raw.orders"
BY_CITY = [PartitionTransform(source_column="city", transform_type="identity")]
ROWS = pa.table({"city": ["Oslo", "Rome\x1b[2J[b]"], "n": [1, 2]})


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    root = tmp_path / "my shop"
    root.mkdir()
    (root / "floe.yaml").write_text("name: shop\nenvironments: {prod: {protected: true}}\n", encoding="utf-8")
    return root


@pytest.fixture
def tables(shop: Path) -> IcebergTableManager:
    """A partitioned table with two snapshots and a tag at the first."""
    opened = open_manager(shop)
    opened.write_data(ORDERS, ROWS, mode="append", partition_by=BY_CITY)
    opened.create_tag(ORDERS, "v1")
    opened.write_data(ORDERS, ROWS.slice(0, 1), mode="append")
    return opened


def ids(tables: IcebergTableManager) -> list[int]:
    return [snapshot.snapshot_id for snapshot in tables.list_snapshots(ORDERS)]


def told(*arguments: str, cwd: Path, code: int = 0) -> dict[str, Any]:
    """The one document that a command prints for programs."""
    ran = floe(*arguments, "--json", cwd=cwd)
    assert ran.returncode == code, ran.stdout + ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    assert document["ok"] is (code == 0)
    return document


def shown(*arguments: str, cwd: Path, code: int = 0) -> str:
    ran = floe(*arguments, cwd=cwd)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stdout + ran.stderr


def test_an_empty_lake_has_nothing_to_list(shop: Path) -> None:
    assert told("tables", "list", cwd=shop)["tables"] == []
    assert "no tables yet: materialize the assets" in shown("tables", "list", cwd=shop)
    assert floe("tables", "list", "--names", cwd=shop).stdout == ""
    missing = shown("tables", "show", "bronze.orders", cwd=shop, code=1)
    assert (
        missing == "error: table 'bronze.orders' not found in the catalog. List what is there with: floe tables list\n"
    )
    assert "no runs yet" in shown("runs", "list", cwd=shop)
    assert told("runs", "list", cwd=shop) == {"ok": True, "runs": [], "more": False}
    assert "no runs yet" in told("runs", "show", cwd=shop, code=1)["error"]


def test_tables_are_listed_with_their_size_and_the_damaged_ones_with_the_reason(
    shop: Path, tables: IcebergTableManager
) -> None:
    for name in ("silver.orders", "silver.empty"):
        tables.create_table(name, ROWS.schema)
    damage(tables.load_table("silver.orders"), "metadata", "half")
    listed = told("tables", "list", cwd=shop, code=1)
    assert [(one["table"], one["rows"], one["files"]) for one in listed["tables"]] == [
        (ORDERS, 3, 3),
        ("silver.empty", 0, 0),
    ]
    assert [one["table"] for one in listed["unread"]] == ["silver.orders"]
    assert listed["error"] == "silver.orders cannot be read"
    text = shown("tables", "list", cwd=shop, code=1)
    assert "2 tables\nerror: silver.orders: " in text
    damage(tables.load_table("silver.empty"), "metadata", "half")
    unread = floe("tables", "list", "--namespace", "silver", cwd=shop)
    assert (unread.returncode, unread.stdout, unread.stderr.count("error: ")) == (1, "", 2)
    assert (
        floe("tables", "list", "--names", "--namespace", "silver", cwd=shop).stdout == "silver.empty\nsilver.orders\n"
    )
    assert "Did you mean silver?" in shown("tables", "list", "--namespace", "silvr", cwd=shop, code=1)


@pytest.mark.parametrize("verb", ["show", "history", "files", "partitions"])
def test_a_mistyped_table_is_an_error_with_the_nearest_names(
    shop: Path, tables: IcebergTableManager, verb: str
) -> None:
    del tables
    assert f"Did you mean {ORDERS}?" in shown("tables", verb, "bronze.raw.ordres", cwd=shop, code=1)
    assert f"Did you mean {ORDERS}?" in told("tables", verb, "orders", cwd=shop, code=1)["error"]
    assert "is not a valid name" in shown("tables", verb, "bronze/raw.x", cwd=shop, code=1)


def test_foreign_text_cannot_control_the_terminal(shop: Path, tables: IcebergTableManager) -> None:
    del tables
    text = shown("tables", "partitions", ORDERS, cwd=shop)
    assert "city=Rome\\x1b[2J[b]" in text
    assert "\x1b" not in text + shown("tables", "files", ORDERS, cwd=shop)
    partition = told("tables", "partitions", ORDERS, cwd=shop)["partitions"][1]["partition"]
    assert partition == {"city": "Rome\x1b[2J[b]"}


def test_people_see_twenty_and_programs_all_unless_they_ask(shop: Path, tables: IcebergTableManager) -> None:
    for number in range(21):
        tables.create_tag(ORDERS, f"t{number}")
    with tables.load_table(ORDERS).transaction() as changes:
        for _ in range(20):
            changes.append(ROWS.slice(0, 1))
    listing = shown("tables", "history", ORDERS, cwd=shop)
    assert listing.count(" append ") == 20
    assert "and 2 more snapshots; --limit sets how many are shown" in listing
    assert "and 3 more files" in shown("tables", "files", ORDERS, cwd=shop)
    assert len(told("tables", "history", ORDERS, cwd=shop)["snapshots"]) == 22
    document = told("snapshots", "list", ORDERS, "--limit", "1", cwd=shop)
    assert (len(document["snapshots"]), document["total"], len(document["refs"])) == (1, 22, 23)
    files = told("tables", "files", ORDERS, "--limit", "2", cwd=shop)
    assert (len(files["files"]), files["total"]) == (2, 23)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["tables", "list"], ["table", "rows"]),
        (["tables", "history", ORDERS], ["snapshot", "time"]),
        (["tables", "partitions", ORDERS], ["partition", "rows"]),
        (["read", ORDERS], ["city", "n"]),
    ],
)
def test_the_first_line_of_a_pipe_is_the_head(
    shop: Path, tables: IcebergTableManager, arguments: list[str], names: list[str]
) -> None:
    del tables
    assert floe(*arguments, cwd=shop).stdout.splitlines()[0].split()[:2] == names


def test_the_head_stands_apart_in_a_terminal(shop: Path, tables: IcebergTableManager) -> None:
    del tables
    code, shown = in_a_terminal("tables", "history", ORDERS, cwd=shop)
    assert (code, shown.splitlines()[0].strip()) == (0, "")


def test_two_snapshots_are_compared(shop: Path, tables: IcebergTableManager) -> None:
    document = told("tables", "diff", ORDERS, "--from", "v1", cwd=shop)
    (change,) = document["partitions"]
    assert (change["partition"], change["rows_added"], change["files_removed"]) == ({"city": "Oslo"}, 1, 0)
    assert (document["commits"], document["total"]) == (1, 1)
    text = shown("tables", "diff", ORDERS, "--from", "v1", cwd=shop)
    assert "no column differs" in text
    assert "1 data file added with 1 row, no data files removed with no rows" in text
    assert "no tag, branch or snapshot 'v2'" in shown("tables", "diff", ORDERS, "--from", "v2", cwd=shop, code=1)
    assert shown("tables", "diff", ORDERS, cwd=shop, code=2).startswith("error: Missing option '--from'")
    assert ids(tables)[0] == document["start"]["snapshot_id"]


def test_a_drop_needs_consent_and_can_be_undone(shop: Path, tables: IcebergTableManager) -> None:
    for code, arguments in ((3, ()), (3, ("--json",)), (3, ("--purge",)), (3, ("--env", "prod"))):
        refused = floe("tables", "drop", ORDERS, *arguments, cwd=shop)
        assert refused.returncode == code
        assert "say --yes" in refused.stdout + refused.stderr
    assert tables.table_exists(ORDERS)
    dropped = shown("tables", "drop", ORDERS, "--yes", cwd=shop)
    assert not tables.table_exists(ORDERS)
    (command,) = (line.strip() for line in dropped.splitlines() if line.startswith("  floe tables register"))
    assert "registered table" in shown(*shlex.split(command)[1:], cwd=shop)
    assert len(ids(tables)) == 2
    purged = told("tables", "drop", ORDERS, "--purge", "--yes", cwd=shop)
    assert (purged["purged"], purged["not_removed"]) == (True, [])
    assert list((shop / ".floe" / "warehouse").rglob("*.parquet")) == []


def test_a_purge_says_how_many_files_it_did_not_delete(shop: Path, tables: IcebergTableManager, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "floe.yaml").write_text("name: other\n", encoding="utf-8")
    register = ("tables", "register", "silver.there", tables.describe(ORDERS).metadata_location)
    shown(*register, cwd=other)
    files = len(reached_files(tables.load_table(ORDERS)))
    question = f"and delete none of its {files} files, type silver.there"
    asked = in_a_terminal("tables", "drop", "silver.there", "--purge", cwd=other, answers={question: "n\n"})
    assert (asked[0], f"no files would be deleted, {files} stay" in asked[1]) == (3, True), asked[1]
    first, second, third = shown("tables", "drop", "silver.there", "--purge", "--yes", cwd=other).splitlines()
    assert first == f"dropped table silver.there and deleted none of its {files} files"
    assert second.startswith(f"not deleted: {files} files, such as file://{shop}/")
    assert "is neither below the warehouse" in second
    assert third == "--json lists every file that was not deleted"
    shown(*register, cwd=other)
    purged = told("tables", "drop", "silver.there", "--purge", "--yes", cwd=other)
    assert len(purged["not_removed"]) == files
    whole = shown("tables", "drop", ORDERS, "--purge", "--yes", cwd=shop)
    assert whole == f"dropped table {ORDERS} and deleted its {files} files\n"


def test_a_drop_in_a_terminal_asks_for_the_name_and_then_drops_only_what_was_shown(
    shop: Path, tables: IcebergTableManager
) -> None:
    wrong = in_a_terminal("tables", "drop", ORDERS, cwd=shop, answers={f"type {ORDERS}": "y\n"})
    assert (wrong[0], "nothing was changed" in wrong[1]) == (3, True)
    assert "rows 3" in wrong[1]
    protected = in_a_terminal("tables", "drop", ORDERS, "--env", "prod", cwd=shop)
    assert protected[0] == 3
    assert "environment prod is protected" in protected[1]
    assert tables.table_exists(ORDERS)
    done = in_a_terminal("tables", "drop", ORDERS, cwd=shop, answers={f"type {ORDERS}": f"{ORDERS}\n"})
    assert done[0] == 0, done[1]
    assert not tables.table_exists(ORDERS)


def test_a_table_whose_metadata_is_damaged_can_be_dropped_but_not_purged(
    shop: Path, tables: IcebergTableManager
) -> None:
    damage(tables.load_table(ORDERS), "metadata", "half")
    assert "metadata" in told("tables", "drop", ORDERS, "--purge", "--yes", cwd=shop, code=1)["error"]
    dropped = shown("tables", "drop", ORDERS, "--yes", cwd=shop)
    assert "warning: " in dropped
    assert "dropped table" in dropped
    assert tables.find_tables() == []


def test_a_rename_keeps_the_history_and_names_what_is_taken(shop: Path, tables: IcebergTableManager) -> None:
    tables.create_table("silver.orders", ROWS.schema)
    assert "exists already" in told("tables", "rename", ORDERS, "silver.orders", cwd=shop, code=1)["error"]
    assert f"is called '{ORDERS}' already" in shown("tables", "rename", ORDERS, ORDERS, cwd=shop, code=1)
    assert "protected" in shown("tables", "rename", ORDERS, "gold.orders", "--env", "prod", cwd=shop, code=3)
    assert "Did you mean" in shown("tables", "rename", "bronze.raw.order", "gold.orders", cwd=shop, code=1)
    assert [str(name) for name in tables.list_namespaces()] == ["bronze", "silver"]
    renamed = told("tables", "rename", ORDERS, "gold.orders", "--yes", "--env", "prod", cwd=shop)
    assert renamed["renamed_to"] == "gold.orders"
    assert len(tables.list_snapshots("gold.orders")) == 2
    assert not tables.table_exists(ORDERS)


def test_a_register_names_what_is_wrong_with_its_file(shop: Path, tables: IcebergTableManager) -> None:
    metadata = tables.describe(ORDERS).metadata_location
    taken = shown("tables", "register", ORDERS, metadata, cwd=shop, code=1)
    assert f"table '{ORDERS}' exists already: drop it with floe tables drop {ORDERS}, or choose another name" in taken
    for path in ("00003-gone.metadata.json", f"{shop}/00003-gone.metadata.json", str(shop)):
        assert f"there is no file {path}" in shown("tables", "register", "silver.x", path, cwd=shop, code=1)
    missing = shown("tables", "register", "silver.x", f"{metadata}.gone", cwd=shop, code=1)
    assert ".gone" in missing
    relative = Path(metadata.removeprefix("file://")).relative_to(shop)
    tables.drop_table(ORDERS)
    assert shown("tables", "register", ORDERS, str(relative), cwd=shop).startswith(
        f"registered table {ORDERS}: rows 3,"
    )
    tables.drop_table(ORDERS)
    earlier = sorted((shop / relative).parent.glob("*.metadata.json"))[1]
    outdated = shown("tables", "register", ORDERS, str(earlier), cwd=shop)
    assert f"warning: {relative.name} is newer than {earlier.name}" in outdated


def test_tags_are_set_and_removed(shop: Path, tables: IcebergTableManager) -> None:
    first, second = ids(tables)
    assert told("snapshots", "tag", ORDERS, "v2", "--keep", "1.5", cwd=shop)["snapshot_id"] == second
    assert told("snapshots", "tag", ORDERS, "v3", "--snapshot", "v1", cwd=shop)["snapshot_id"] == first
    assert "has a tag 'v3' already" in shown("snapshots", "tag", ORDERS, "v3", cwd=shop, code=1)
    assert "is not a valid name" in shown("snapshots", "tag", ORDERS, "a/b", cwd=shop, code=1)
    assert "above 0" in shown("snapshots", "tag", ORDERS, "v4", "--keep", "0", cwd=shop, code=2)
    assert "one millisecond" in shown("snapshots", "tag", ORDERS, "v4", "--keep", "1e-11", cwd=shop, code=1)
    assert "reads like the id of a snapshot" in shown("snapshots", "tag", ORDERS, str(first), cwd=shop, code=1)
    assert "'main' is a branch" in shown("snapshots", "untag", ORDERS, "main", cwd=shop, code=1)
    assert "tag v2 at" in shown("snapshots", "list", ORDERS, cwd=shop)
    assert "(there: v1, v2, v3). Did you mean v1?" in shown("snapshots", "untag", ORDERS, "v11", cwd=shop, code=1)
    assert "protected" in shown("snapshots", "untag", ORDERS, "v1", "--env", "prod", cwd=shop, code=3)
    removed = shown("snapshots", "untag", ORDERS, "v1", cwd=shop)
    assert removed == f"removed tag v1 of {ORDERS}; it was at snapshot {first}\n"
    tables.move_tag(ORDERS, f"{CURSOR_PREFIX}gold", first)
    tables.move_tag(ORDERS, "floe-lease", first)
    assert "asset still has to read" in shown("snapshots", "untag", ORDERS, f"{CURSOR_PREFIX}gold", cwd=shop, code=3)
    assert "floe maintain release" in shown("snapshots", "untag", ORDERS, "floe-lease", "--yes", cwd=shop, code=3)


def test_a_rollback_shows_what_is_lost_and_needs_consent(shop: Path, tables: IcebergTableManager) -> None:
    first, second = ids(tables)
    refused = floe("snapshots", "rollback", ORDERS, "--to", "v1", cwd=shop)
    assert refused.returncode == 3
    assert f"back to {first}" in refused.stdout
    assert "readers lose 1 commit" in refused.stdout
    assert told("snapshots", "rollback", ORDERS, "--to", "v1", cwd=shop, code=3)["error"].endswith("say --yes")
    missing = told("snapshots", "rollback", ORDERS, "--to", "v7", "--yes", cwd=shop, code=1)["error"]
    assert "no tag, branch or snapshot 'v7' (tags: v1; branches: main; snapshots: " in missing
    assert tables.find_snapshot(ORDERS).snapshot_id == second
    done = told("snapshots", "rollback", ORDERS, "--to", "v1", "--yes", cwd=shop)
    assert (done["rolled_back"], done["to"]["snapshot_id"]) == (True, first)
    assert [one["snapshot_id"] for one in done["commits"]] == [second]
    assert tables.find_snapshot(ORDERS).snapshot_id == first
    again = shown("snapshots", "rollback", ORDERS, "--to", str(first), cwd=shop)
    assert again == f"{ORDERS} is at snapshot {first} already; nothing was changed\n"
    assert "not on main" in shown("tables", "history", ORDERS, cwd=shop)
    tables.create_tag(ORDERS, "later", snapshot_id=second)
    for verbs in (("tables", "history"), ("snapshots", "list")):
        assert "later, not on main" in shown(*verbs, ORDERS, cwd=shop)
    ahead = shown("snapshots", "rollback", ORDERS, "--to", str(second), "--yes", cwd=shop, code=1)
    assert f"floe snapshots restore {ORDERS} {second}" in ahead


def test_a_rollback_is_undone_unless_main_has_other_commits(shop: Path, tables: IcebergTableManager) -> None:
    first, second = ids(tables)
    back = ("snapshots", "rollback", ORDERS, "--to", str(first), "--yes")
    assert f"floe snapshots restore {ORDERS} {second}\n" in shown(*back, cwd=shop)
    restore = ("snapshots", "restore", ORDERS)
    assert shown(*restore, str(second), cwd=shop) == f"restored {ORDERS} from snapshot {first} to {second}\n"
    assert tables.find_snapshot(ORDERS).snapshot_id == second
    assert "already; nothing was changed" in shown(*restore, str(second), cwd=shop)
    assert "to go back to it: floe snapshots rollback" in shown(*restore, str(first), cwd=shop, code=1)
    shown(*back, cwd=shop)
    tables.write_data(ORDERS, ROWS, mode="append")
    assert "main has other commits since then" in shown(*restore, str(second), cwd=shop, code=1)
    assert tables.find_snapshot(ORDERS).snapshot_id not in (first, second)


def test_a_snapshot_beside_main_is_reached_by_the_commands_that_are_printed(
    shop: Path, tables: IcebergTableManager
) -> None:
    first, second = ids(tables)
    tables.create_tag(ORDERS, "good")
    tables.rollback_to_snapshot(ORDERS, first)
    tables.write_data(ORDERS, ROWS.slice(1, 1), mode="append")
    beside = shown("snapshots", "rollback", ORDERS, "--to", "good", "--yes", cwd=shop, code=1)
    refused = shown("snapshots", "restore", ORDERS, str(second), cwd=shop, code=1)
    ways = [
        re.findall(r"floe (read \S+ --ref \S+|snapshots .+?)(?:\. |, then |\n)", text) for text in (beside, refused)
    ]
    assert ways[0] == ways[1]
    read, back, again = (shlex.split(command) for command in ways[0])
    assert len(told(*read, cwd=shop)["rows"]) == 3
    assert "without the commit that main has instead" in refused
    shown(*back, "--yes", cwd=shop)
    shown(*again, cwd=shop)
    assert tables.find_snapshot(ORDERS).snapshot_id == second


def test_a_narrow_terminal_without_colours_shows_whole_values(shop: Path, tables: IcebergTableManager) -> None:
    first, second = ids(tables)
    code, text = in_a_terminal(
        "tables",
        "history",
        ORDERS,
        cwd=shop,
        columns=60,
        environment={"NO_COLOR": "1", "PYTHONIOENCODING": "ascii"},
        forked=False,
    )
    assert code == 0
    shown = re.findall(r"^ *(\d+) +[-\d]+ [\d:.]{12}Z  +\d", text, re.MULTILINE)
    assert shown == [str(second), str(first)], text
    assert max(len(re.sub(r"\x1b\[\d*m", "", line)) for line in text.splitlines()) <= 60
    assert text.isascii()
    assert re.findall(r"\x1b\[([^01]m|\d\d)", text) == []  # bold, but no colour


WRITTEN = {"floe.asset": "bronze/orders", "floe.partition": "2026-01-03", "floe.run-id": "26757d9f-6a2d"}


@pytest.mark.parametrize("command", ["tables history", "snapshots list", "snapshots rollback"])
def test_the_columns_that_do_not_fit_are_named_and_the_run_stays_longest(
    shop: Path, tables: IcebergTableManager, command: str
) -> None:
    tables.write_data(ORDERS, ROWS, mode="append", snapshot_properties=WRITTEN)
    rollback = ("--to", "v1", "--yes") if command.endswith("rollback") else ()
    _, wide = in_a_terminal(*command.split(), ORDERS, *rollback, cwd=shop, columns=200)
    if rollback:
        tables.write_data(ORDERS, ROWS, mode="append", snapshot_properties=WRITTEN)
    _, narrow = in_a_terminal(*command.split(), ORDERS, *rollback, cwd=shop, columns=100)
    assert "not shown" not in wide
    assert re.search(r"2026-01-03 +26757d9f", narrow), narrow
    (line,) = re.findall(r"^not shown at this width: (.*) \(--json has them\)$", narrow, re.MULTILINE)
    dropped = line.split(", ")
    assert set(dropped) >= {"added", "removed"}
    assert set(dropped).isdisjoint({"rows", "partition", "run"})


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_reader_that_leaves_ends_the_command_silently(
    shop: Path, tables: IcebergTableManager, options: tuple[str, ...]
) -> None:
    del tables
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run([FLOE, "tables", "files", ORDERS, *options], cwd=shop, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_a_mistyped_verb_is_a_usage_error_with_the_nearest(shop: Path) -> None:
    assert "Did you mean tables?" in shown("tabels", cwd=shop, code=2)
    assert "'history'" in shown("tables", "histroy", "x", cwd=shop, code=2)


@pytest.mark.parametrize("group", ["tables", "snapshots", "runs", "maintain", "namespaces", None])
def test_a_group_without_a_verb_prints_its_help(shop: Path, group: str | None) -> None:
    arguments = [] if group is None else [group]
    helped, bare = floe(*arguments, "--help", cwd=shop), floe(*arguments, cwd=shop)
    assert (bare.returncode, bare.stdout) == (2, "")
    assert bare.stderr == helped.stdout
