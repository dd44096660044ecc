"""`floe maintain` and `floe tables health` as their users run them: another process, a real lake, real exit codes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.commands import FLOE, floe
from tests.lakes import ORPHAN, began_earlier

from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance.records import Recorder, read_records, records_path
from floe_core.maintenance.reports import ExpireReport, Step
from floe_iceberg import IcebergTableManager
from floe_iceberg.maintenance.leases import leased

# History of a second is old, so that a test need not wait a week.
SETTINGS = """
name: shop
environments: {prod: {protected: true}}
maintenance: {retry_window: 1s, floor: {enterprise: 1s}, expire: {older_than: 1s, keep_last: 1}}
"""


ENFORCED = """
from floe_core.errors import ConfigurationError
from floe_dagster import create_definitions


class Legal:
    def get_snapshot_retention(self, table, asked, **rules):
        raise ConfigurationError(f"legal keeps the history of {table}")


defs = create_definitions([], enforcer=Legal())
"""


def named(name: str) -> TableIdentifier:
    return TableIdentifier.from_string(name)


@dataclass
class Shop:
    """A project and its tables."""

    root: Path

    @property
    def tables(self) -> IcebergTableManager:
        return IcebergTableManager.open(compile_project(self.root).artifacts)

    def write(self, name: str, *, mode: str = "append", times: int = 1, said: dict[str, str] | None = None) -> None:
        for number in range(times):
            rows = pa.table({"id": list(range(100)), "note": [f"v{number}"] * 100})
            self.tables.write_data(named(name), rows, mode=mode, properties=said)

    def folder(self, name: str) -> Path:
        return Path(self.tables.load_table(named(name)).location().removeprefix("file://"))

    def files(self) -> set[str]:
        """Every file of every table; without the checksums that Hadoop lays beside them."""
        found = (path for path in (self.root / ".floe" / "warehouse").rglob("*") if path.is_file())
        return {str(path) for path in found if path.suffix != ".crc"}

    def heads(self) -> dict[str, str]:
        """Where the metadata of each table is: it moves with every change."""
        tables = self.tables
        found = [one for namespace in tables.list_namespaces() for one in tables.list_tables(namespace)]
        return {str(one): tables.load_table(one).metadata_location for one in found}

    def floe(self, *arguments: str, within: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return floe(*arguments, cwd=self.root, **(within or {}))

    def told(self, *arguments: str, code: int = 0, within: dict[str, str] | None = None) -> dict[str, Any]:
        """The document that a command prints for programs; nothing else is on standard output."""
        ran = self.floe(*arguments, "--json", within=within)
        assert ran.returncode == code, ran.stdout + ran.stderr
        document: dict[str, Any] = json.loads(ran.stdout)
        assert document["ok"] is (code == 0)
        return document


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    (tmp_path / "floe.yaml").write_text(SETTINGS, encoding="utf-8")
    return Shop(tmp_path)


@pytest.fixture
def worn(shop: Shop) -> Shop:
    """Small files, old history, an orphan, a shared table, one that is well, and one whose policy is nonsense."""
    shop.write("bronze.orders", times=6)
    shop.write("silver.customers", mode="overwrite", times=4)
    shop.write("silver.calm")
    shop.write("gold.shared", said={"gc.enabled": "false"})
    shop.write("gold.wrong", said={"floe.maintenance.expire.older-than": "nonsense"})
    orphan = shop.folder("silver.customers") / "data" / ORPHAN
    orphan.write_bytes(b"x" * 5000)
    os.utime(orphan, (86_400, 86_400))
    began_earlier(shop.folder("silver.customers"), days=(time.time() - 1) / 86_400)
    time.sleep(1.1)
    return shop


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    """An environment in which Java is too old for Spark, and leaves a trace when somebody starts it."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"""#!/bin/sh\ntouch '{tmp_path / "java" / "started"}'\necho 'java version "1.8.0_402"' >&2\n""")
    java.chmod(0o755)
    return {"JAVA_HOME": str(java.parents[1])}


def was_started(no_java: dict[str, str]) -> bool:
    return (Path(no_java["JAVA_HOME"]) / "started").exists()


def by_table(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["table"]: one for one in document["tables"]}


def steps_of(document: dict[str, Any]) -> dict[str, list[str]]:
    """What is planned, or was done, by table."""
    return {one["table"]: [step["step"] for step in one.get("steps", one.get("reports"))] for one in document["tables"]}


def test_a_plan_tells_what_and_why_and_changes_nothing(worn: Shop, no_java: dict[str, str]) -> None:
    before = worn.files(), worn.heads()
    shown = worn.floe("maintain", "plan", within=no_java)
    assert shown.returncode == 1
    assert "bronze.orders: 6 files of " in shown.stdout
    assert re.search(r"6 snapshots since \d+ s ago", shown.stdout)
    assert re.search(r"  compact +6 of 6 files in 1 of 1 partition .*; rewrites ", shown.stdout)
    assert re.search(r"  expire +3 of 4 snapshots are older than the policy keeps them; frees about", shown.stdout)
    assert re.search(r"  orphans +1 file that nothing refers to, .*; frees about 5.0 kB", shown.stdout)
    assert "gold.shared expire, orphans skipped: the table has gc.enabled=false" in shown.stdout
    assert "gold.wrong failed: properties of table 'gold.wrong'" in shown.stdout
    assert "silver.calm" not in shown.stdout
    assert "2 of 4 tables to be maintained in 4 steps, about" in shown.stdout

    planned = worn.told("maintain", "plan", code=1, within=no_java)
    assert steps_of(planned)["bronze.orders"] == ["compact", "expire"]
    assert steps_of(planned)["silver.customers"] == ["expire", "orphans"]
    assert planned["error"] == "no plan for gold.wrong"
    tables = by_table(planned)
    assert tables["gold.wrong"]["outcome"] == "failed"
    assert tables["silver.calm"]["outcome"] == "nothing to do"
    assert [one["step"] for one in tables["gold.shared"]["skipped"]] == ["expire", "orphans"]
    assert len(tables["silver.customers"]["facts"]["expiring"]["snapshots"]) == 3
    assert tables["silver.customers"]["policy"]["expire"]["older_than"] == "1s"

    chosen = worn.told(
        "maintain", "run", "--dry-run", "--namespace", "silver", "--table", "gold.shared", within=no_java
    )
    assert sorted(steps_of(chosen)) == ["gold.shared", "silver.calm", "silver.customers"]
    alone = worn.told("maintain", "plan", "--only", "orphans, compact", "--namespace", "silver", within=no_java)
    assert steps_of(alone)["silver.customers"] == ["orphans"]
    assert (worn.files(), worn.heads()) == before
    assert not was_started(no_java)


@pytest.mark.full
def test_a_run_does_what_was_planned_and_then_there_is_nothing_to_do(worn: Shop, no_java: dict[str, str]) -> None:
    planned = steps_of(worn.told("maintain", "plan", code=1))
    before, rows = worn.files(), worn.tables.scan(named("bronze.orders")).to_arrow().num_rows
    ran = worn.floe("maintain", "run")
    gone = before - worn.files()

    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    assert re.search(r"✓ bronze.orders +compact +6 files into 1, 600 rows +\d", ran.stdout)
    assert re.search(r" bronze.orders +compact: 6 files into 1, 600 rows +0 +0 B", ran.stdout)
    assert re.search(r" silver.customers +expire: 3 snapshots and \d+ files gone", ran.stdout)
    assert re.search(r"^ +orphans: 1 file removed +1 +5.0 kB", ran.stdout, re.M)
    assert "✗ gold.wrong" in ran.stdout
    assert "gold.wrong failed: properties of table 'gold.wrong'" in ran.stdout
    assert "gold.shared expire, orphans skipped: " in ran.stdout
    assert re.search(rf"5 tables in .*: 2 done, 2 nothing to do, 1 failed; {len(gone)} files removed, ", ran.stdout)
    assert worn.tables.scan(named("bronze.orders")).to_arrow().num_rows == rows

    recorded = worn.told("maintain", "history")["records"]
    done: dict[str, list[str]] = {}
    for one in recorded:
        assert one["status"] == "done"
        done.setdefault(one["table"], []).append(one["step"])
    assert done == {table: steps for table, steps in planned.items() if steps}
    assert {path for one in recorded for path in one["removed"]} == gone
    assert sum(one["files"] for one in recorded) == len(gone)
    assert sum(one["bytes"] for one in recorded) > 5000
    listed = worn.floe("maintain", "history", "--files", "--table", "silver.customers").stdout
    assert set(re.findall(r"- (/.*)", listed)) == {path for path in gone if "/customers/" in path}

    after = worn.floe("maintain", "plan", "--namespace", "bronze", "--namespace", "silver")
    assert (after.returncode, after.stdout) == (0, "nothing to do for 3 tables\n")
    again = worn.told("maintain", "run", "--namespace", "silver", within=no_java)
    assert again["files_removed"] == 0
    assert {one["outcome"] for one in again["tables"]} == {"nothing to do"}
    assert not was_started(no_java), "Spark was started for nothing"
    health = worn.floe("tables", "health", "--namespace", "bronze", "--namespace", "silver").stdout
    assert re.search(r"● green +bronze.orders +1 .* unknown +\d+ (s|min) ago", health), "only its compaction is left"
    assert re.search(r"● green +silver.customers .* (s|min) ago +\d+ (s|min) ago", health)
    assert health.endswith("\n3 green\n")


@pytest.mark.full
def test_a_run_for_programs_is_one_document(worn: Shop) -> None:
    before = worn.files()
    ran = worn.told("maintain", "run", "--only", "expire", "--namespace", "gold", "--table", "silver.customers", code=1)
    assert ran["error"] == "not everything was done: gold.wrong (failed)"
    assert steps_of(ran) == {"silver.customers": ["expire"], "gold.shared": [], "gold.wrong": []}
    expired = by_table(ran)["silver.customers"]["reports"][0]
    assert len(expired["snapshots"]) == 3
    gone = before - worn.files()
    reports = [one for table in ran["tables"] for one in table["reports"]]
    assert {path for one in reports for path in one["files_removed"]} == gone
    assert ran["files_removed"] == len(gone) > 0
    assert ran["bytes_freed"] == sum(one["bytes_freed"] for one in reports) > 0


def test_a_protected_environment_needs_consent(worn: Shop, no_java: dict[str, str]) -> None:
    before = worn.files(), worn.heads()
    refused = worn.told("maintain", "run", "--env", "prod", code=3)
    assert refused["error"] == "environment prod is protected: to maintain tables there, say --yes"
    prod = ("--env", "prod", "--namespace", "silver")
    assert worn.floe("maintain", "run", "--dry-run", *prod).returncode == 0
    agreed = worn.floe("maintain", "run", "--yes", *prod, within=no_java)
    assert agreed.returncode == 1
    assert "Spark needs Java 17 or newer" in agreed.stderr
    assert was_started(no_java)
    assert (worn.files(), worn.heads()) == before
    assert worn.floe("maintain", "history", "--env", "prod").stdout == "no maintenance is recorded yet\n"
    mends = [one["mend"] for one in by_table(worn.told("tables", "health", *prod))["silver.customers"]["findings"]]
    assert mends == ["floe maintain run --table silver.customers --only expire --env prod"]


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["maintain", "plan", "--only", "expire,polish"], 2, "'polish' is no step; they are compact, manifests, "),
        (["maintain", "run", "--only", ""], 2, "'' is no step; they are compact, manifests, "),
        (["maintain", "run", "--table", "orders"], 1, "write it as 'namespace.orders'"),
        (["maintain", "run", "--table", "bronze.nothing"], 1, "Table 'bronze.nothing' not found"),
        (["maintain", "plan", "--namespace", "nowhere"], 1, "namespace 'nowhere' not found in catalog"),
        (["maintain", "history", "--limit", "0"], 2, "'--limit'"),
        (["maintain", "history", "--table", "orders"], 1, "write it as 'namespace.orders'"),
        (["tables", "health", "--table", "bronze.nothing"], 1, "Table 'bronze.nothing' not found"),
    ],
)
def test_a_mistake_is_a_sentence_and_an_exit_code(shop: Shop, arguments: list[str], code: int, reason: str) -> None:
    ran = shop.floe(*arguments)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert reason in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.full
def test_a_lake_without_tables_needs_nothing(shop: Shop, no_java: dict[str, str]) -> None:
    for arguments in (["maintain", "plan"], ["maintain", "run"], ["tables", "health"]):
        ran = shop.floe(*arguments, within=no_java)
        assert (ran.returncode, ran.stdout) == (0, "no tables found\n")
    assert not was_started(no_java)


def test_a_table_that_somebody_else_maintains_is_left_for_later(worn: Shop, no_java: dict[str, str]) -> None:
    with leased(worn.tables, named("silver.customers")):
        ran = worn.floe("maintain", "run", "--namespace", "silver", within=no_java)
    assert ran.returncode == 1, ran.stderr
    assert re.search(r"silver.customers left for later: .* is being maintained by", ran.stdout)
    assert re.search(r"2 tables in .*: 1 nothing to do, 1 left for later", ran.stdout)
    assert not was_started(no_java)


def test_what_is_due_and_refused_is_exit_code_1_with_its_reason(worn: Shop, no_java: dict[str, str]) -> None:
    worn.tables.register_table(
        named("silver.second"), worn.tables.load_table(named("silver.customers")).metadata_location
    )
    arguments = ["maintain", "run", "--table", "silver.customers", "--only", "expire"]
    ran = worn.floe(*arguments, within=no_java)
    assert ran.returncode == 1, ran.stderr
    assert "'silver.second' is the same table" in " ".join(ran.stdout.split())
    assert "1 table in" in ran.stdout
    assert "1 refused" in ran.stdout
    document = worn.told(*arguments, code=1, within=no_java)
    assert document["error"] == "not everything was done: silver.customers (refused expire)"
    assert by_table(document)["silver.customers"]["outcome"] == "refused"
    assert not was_started(no_java)


def test_a_damaged_table_does_not_stop_the_plan_of_the_others(worn: Shop) -> None:
    newest = Path(worn.tables.load_table(named("bronze.orders")).metadata_location.removeprefix("file://"))
    newest.write_bytes(newest.read_bytes()[:100])
    document = worn.told("maintain", "plan", "--only", "expire", code=1)
    found = by_table(document)
    assert found["silver.customers"]["outcome"] == "planned"
    assert str(newest) in found["bronze.orders"]["reason"]
    assert found["bronze.orders"]["outcome"] == "failed"


def test_a_lease_is_released_by_command(worn: Shop) -> None:
    with leased(worn.tables, named("silver.customers")):
        refused = worn.floe("maintain", "release", "silver.customers")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "runs on this machine" in refused.stderr
        assert worn.told("maintain", "release", "silver.customers", "--force")["released"].endswith(f"_{os.getpid()}")
    ran = worn.floe("maintain", "release", "silver.customers")
    assert (ran.returncode, ran.stdout) == (0, "silver.customers has no lease\n")


def test_the_command_asks_the_enforcer_of_the_definitions(worn: Shop, no_java: dict[str, str]) -> None:
    # What the definitions print does not get into the document.
    (worn.root / "definitions.py").write_text(f"print('imported')\n{ENFORCED}", encoding="utf-8")
    for verb in ("plan", "run"):
        document = worn.told("maintain", verb, "--namespace", "silver", "--only", "expire", code=1, within=no_java)
        assert "legal keeps the history of silver.customers" in by_table(document)["silver.customers"]["reason"]
    (worn.root / "definitions.py").write_text("import nowhere_to_be_found", encoding="utf-8")
    ran = worn.floe("maintain", "run", "--namespace", "silver", within=no_java)
    assert ran.returncode == 1
    assert "importing definitions failed" in ran.stderr
    assert not was_started(no_java)


def test_the_history_tells_failures_and_what_was_killed(shop: Shop) -> None:
    recorder = Recorder(records_path(compile_project(shop.root).artifacts))
    for number in range(30):
        recorder.write("bronze.orders", Step.COMPACT, "began", reason=f"reason {number}", policy={})
        recorder.write("bronze.orders", Step.COMPACT, "failed", reason=f"reason {number}", policy={}, error="no room")
    recorder.write("bronze.orders", Step.EXPIRE, "began", reason="too old", policy={})
    at = next(iter(read_records(recorder.path))).at
    removed = ExpireReport(
        table="bronze.items", older_than=at, keep_last=1, files_removed=("/a/b.parquet",), bytes_freed=12
    )
    recorder.write("bronze.items", Step.EXPIRE, "done", reason="too old as well", policy={}, report=removed)

    shown = shop.floe("maintain", "history")
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[-2].endswith("done         1 file, 12 B")
    assert f"{at:%Y-%m-%d}" in lines[-2]
    assert "/a/b.parquet" not in shown.stdout
    assert shown.stdout.count("failed") == 18
    assert "no room" in shown.stdout
    assert re.search(r"bronze.orders  expire      killed\n    too old\n", shown.stdout)
    records = shop.told("maintain", "history", "--table", "bronze.orders", "--limit", "2")["records"]
    assert [(one["status"], one["reason"]) for one in records] == [("failed", "reason 29"), ("killed", "too old")]
    assert shop.floe("maintain", "history", "--table", "bronze.x").stdout == "no maintenance of bronze.x is recorded\n"


def test_health_shows_lights_and_what_mends(worn: Shop, no_java: dict[str, str]) -> None:
    before = worn.files(), worn.heads()
    examined = worn.told("tables", "health", code=1, within=no_java)
    assert examined["error"] == "gold.wrong cannot be maintained: invalid maintenance settings"
    lights = {one["table"]: one["light"] for one in examined["tables"]}
    assert lights == {
        "bronze.orders": "yellow",
        "gold.shared": "green",
        "gold.wrong": "red",
        "silver.calm": "green",
        "silver.customers": "yellow",
    }
    orders = by_table(examined)["bronze.orders"]
    assert (orders["facts"]["files"], orders["facts"]["small_files"], orders["facts"]["snapshots"]) == (6, 6, 6)
    assert [one["mend"] for one in orders["findings"]] == [
        "floe maintain run --table bronze.orders --only compact",
        "floe maintain run --table bronze.orders --only expire",
    ]

    shown = worn.floe("tables", "health", within=no_java)
    assert shown.returncode == 1
    assert re.search(r"● yellow +bronze.orders +6 +6 +[\d.]+ kB +1 +1.0 +6 +6 +0% +\d+ s ago +never", shown.stdout)
    assert re.search(r"● red +gold.wrong +\d", shown.stdout)
    assert "properties of table 'gold.wrong' do not make a maintenance policy" in shown.stdout
    assert "    floe maintain run --table bronze.orders --only compact\n" in shown.stdout
    assert "2 green, 2 yellow, 1 red" in shown.stdout
    well = worn.floe("tables", "health", "--table", "silver.calm", within=no_java)
    assert well.returncode == 0
    assert well.stdout.endswith("\n1 green\n")
    assert (worn.files(), worn.heads()) == before
    assert not was_started(no_java)


def test_health_tells_of_tables_whose_files_are_lost_or_broken(shop: Shop) -> None:
    for name in ("bronze.lost", "bronze.broken", "bronze.odd", "bronze.well"):
        shop.write(name)
    broken = shop.tables.load_table(named("bronze.broken"))
    head = broken.current_snapshot()
    assert head is not None
    Path(head.manifests(broken.io)[0].manifest_path.removeprefix("file://")).write_bytes(b"not Avro")
    heads = {name: Path(location.removeprefix("file://")) for name, location in shop.heads().items()}
    heads["bronze.lost"].unlink()
    heads["bronze.odd"].write_text("{}")
    tables = by_table(shop.told("tables", "health", code=1))
    assert {name: one["light"] for name, one in tables.items()} == {
        "bronze.broken": "red",
        "bronze.lost": "red",
        "bronze.odd": "red",
        "bronze.well": "green",
    }
    assert "not where the catalog expects them" in tables["bronze.lost"]["findings"][0]["reason"]


def on_terminal(shop: Shop, columns: int, *arguments: str) -> list[str]:
    """What stands on a terminal of that width in the end, and what moved there before, line by line."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    environment["TERM"] = "xterm-256color"
    process = subprocess.Popen([FLOE, *arguments], cwd=shop.root, stdin=theirs, stdout=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:
        pass  # how Linux says that the other end is closed
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", shown.decode()).replace("\r", "\n").splitlines()


@pytest.mark.full
def test_a_narrow_terminal_breaks_no_name_and_no_command(shop: Shop) -> None:
    names = [f"bronze.measurements_of_station_{number}" for number in range(3)]
    for name in names:
        shop.write(name, times=2)
    time.sleep(1.1)
    lines = on_terminal(shop, 80, "tables", "health")
    rows = [line for line in lines if re.match(r"yellow +bronze", line)]
    assert [line.split()[1] for line in rows] == names
    assert all(any(f"floe maintain run --table {name} --only expire" in line for line in lines) for name in names)
    moved = on_terminal(shop, 80, "maintain", "plan")
    assert any("looking at bronze" in line for line in moved)
    assert any(line.endswith("3 of 3 tables to be maintained in 3 steps") for line in moved)


@pytest.mark.full
def test_ctrl_c_ends_with_130_and_the_next_run_does_the_rest(worn: Shop) -> None:
    record = records_path(compile_project(worn.root).artifacts)
    arguments = ["maintain", "run", "--namespace", "bronze", "--namespace", "silver"]
    process = subprocess.Popen(
        [FLOE, *arguments],
        cwd=worn.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (record.exists() and record.stat().st_size) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "floe maintain history" in errors
    assert "Traceback" not in errors
    assert worn.told("maintain", "history")["records"][-1]["status"] == "interrupted"
    finished = worn.told(*arguments)
    assert {one["outcome"] for one in finished["tables"]} == {"done", "nothing to do"}
    assert worn.tables.scan(named("bronze.orders")).to_arrow().num_rows == 600
