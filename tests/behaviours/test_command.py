"""The floe command as its users run it: another process, a real project, real exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.commands import FLOE, floe

from floe_core.compiler import compile_project
from floe_core.plugins.discovery import create_catalog_plugin, create_storage_plugin
from floe_iceberg import IcebergTableManager


def tables(root: Path) -> IcebergTableManager:
    artifacts = compile_project(root).artifacts
    return IcebergTableManager(create_catalog_plugin(artifacts), create_storage_plugin(artifacts))


def rows(root: Path, name: str) -> int:
    from floe_core.identifiers import TableIdentifier

    return int(tables(root).load_table(TableIdentifier.from_string(name)).scan().to_arrow().num_rows)


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as `floe init` makes it, run once as the README says."""
    folder = tmp_path_factory.mktemp("starter")
    created = floe("init", "x", cwd=folder)
    assert created.returncode == 0, created.stderr
    assert "floe run" in created.stdout
    ran = floe("run", cwd=folder / "x")
    assert ran.returncode == 0, ran.stderr
    (folder / "x" / "first-run.txt").write_text(ran.stdout)
    assert ran.stderr == ""
    return folder / "x"


def test_a_new_project_runs_as_it_was_generated(starter: Path) -> None:
    shown = (starter / "first-run.txt").read_text()
    for word in ("bronze.measurements", "gold.daily_averages", "14,400", "snapshot"):
        assert word in shown
    assert rows(starter, "bronze.measurements") == 14_400


@pytest.mark.full  # starts Spark; without it: test_command_missing.py
def test_missing_partitions_are_filled_and_told_as_json(starter: Path) -> None:
    ran = floe("run", "--missing", "--json", cwd=starter)
    report = json.loads(ran.stdout)
    assert ran.returncode == 0
    assert report["ok"] is True
    by_table = {one["table"]: one for one in report["materialized"]}
    assert by_table["bronze.measurements"]["partitions"] == "2026-01-01...2026-01-06 (6)"
    assert by_table["bronze.measurements"]["rows"] == 6 * 14_400
    assert rows(starter, "gold.daily_averages") == 70
    again = floe("run", "--missing", "--json", cwd=starter)
    keys = ("run_ids", "materialized", "checks", "failed", "skipped", "unpublished", "differences")
    nothing: dict[str, list[Any]] = {key: [] for key in keys}
    assert json.loads(again.stdout) == {"ok": True, "error": None, "log": None, **nothing}


@pytest.mark.full
def test_the_doctor_finds_everything_well_and_leaves_nothing_behind(starter: Path) -> None:
    before = sorted(path for path in (starter / ".floe" / "warehouse").rglob("*") if path.is_file())
    examined = floe("doctor", "--json", cwd=starter)
    report = json.loads(examined.stdout)
    assert examined.returncode == 0, report
    names = [check["name"] for check in report["checks"]]
    assert names == ["java", "catalog", "storage", "place", "timestamps", "spark", "tables"]
    assert all(check["ok"] for check in report["checks"])
    assert sorted(path for path in (starter / ".floe" / "warehouse").rglob("*") if path.is_file()) == before
    assert tables(starter).catalog_plugin.list_namespaces() == ["bronze", "gold"]


@pytest.mark.full
def test_the_doctor_says_when_a_lake_was_copied(starter: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(starter, copy)
    examined = floe("doctor", "--json", cwd=copy)
    checks = {check["name"]: check for check in json.loads(examined.stdout)["checks"]}
    assert examined.returncode == 1
    assert "moved or copied" in checks["place"]["message"]
    assert "floe move" in checks["place"]["message"]
    assert "delete" not in checks["place"]["message"]


@pytest.mark.parametrize("version", ['openjdk version "11.0.2"', 'java version "1.8.0_402"'])
def test_an_old_java_is_one_sentence_and_exit_code_1(starter: Path, tmp_path: Path, version: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    java.chmod(0o755)
    for command in (["run"], ["doctor"]):
        ran = floe(*command, cwd=starter, JAVA_HOME=str(tmp_path))
        assert ran.returncode == 1
        assert "Spark needs Java 17 or newer" in ran.stdout + ran.stderr
        assert "Traceback" not in ran.stdout + ran.stderr


@pytest.mark.full  # starts Spark
def test_the_project_printed_in_the_readme_runs(new_project: Any) -> None:
    root: Path = new_project("name: shop\n")
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (root / "definitions.py").write_text(re.findall(r"```python\n(.*?)```", readme, re.S)[0])
    for day, amount in (("2026-01-05", 10), ("2026-01-06", 32)):
        landing = root / "landing" / "orders" / day
        landing.mkdir(parents=True)
        (landing / "1.json").write_text(json.dumps({"ordered_at": f"{day}T12:00:00", "amount": amount}) + "\n")
    (command,) = re.findall(r"^\$ floe (run .*--partition-range .*)$", readme, re.M)
    options = re.sub(r"\S+\.\.\.\S+", "2026-01-05...2026-01-06", command).split()
    ran = floe(*options, "--json", cwd=root)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    # The asset of the README takes one day at a time, so two days are two runs.
    assert len(report["run_ids"]) == 2
    from floe_core.identifiers import TableIdentifier

    revenue = tables(root).load_table(TableIdentifier.from_string("gold.daily_revenue")).scan().to_arrow()
    assert sorted(revenue["revenue"].to_pylist()) == [10, 32]


BROKEN = {
    "import": ("import nothing_like_this\n", "importing definitions failed at definitions.py:1"),
    "empty": ("", "must hold one Definitions object"),
    "syntax": ("x = 1\ndef (:\n", "importing definitions failed at definitions.py:2: SyntaxError"),
}


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_a_broken_pipeline_module_is_named(new_project: Any, kind: str) -> None:
    root = new_project("name: shop\n")
    (root / "definitions.py").write_text(BROKEN[kind][0])
    ran = floe("run", cwd=root)
    assert ran.returncode == 1
    assert BROKEN[kind][1] in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_missing_pipeline_module_is_named(new_project: Any) -> None:
    ran = floe("run", cwd=new_project("name: shop\npipeline: {definitions: shop.assets}\n"))
    assert ran.returncode == 1
    assert "shop/assets.py" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--partition", "2026-02-01"], "there is no partition '2026-02-01'; they go from 2026-01-01 to 2026-01-07"),
        (["--partition", "2026-1-3"], "there is no partition '2026-1-3'. Did you mean '2026-01-03'?"),
        (["--partition-range", "2026-01-01"], "START...END"),
        (["--partition-range", "2026-01-05...2026-01-02"], "swap them"),
        (["--select", "bronze/nothing"], "no asset bronze/nothing"),
        (["--select", "gold/daily_averages", "--partition", "2026-01-01"], "no selected asset is partitioned"),
    ],
)
def test_a_wrong_choice_of_partitions_is_told(starter: Path, arguments: list[str], reason: str) -> None:
    ran = floe("run", *arguments, cwd=starter)
    assert ran.returncode == 1
    assert reason in ran.stderr


def test_wrong_usage_is_exit_code_2(starter: Path) -> None:
    assert floe("run", "--partition", "x", "--missing", cwd=starter).returncode == 2
    assert floe("frobnicate", cwd=starter).returncode == 2


GAPS = """
import os
from dagster import AssetCheckResult, AssetIn, DailyPartitionsDefinition, asset, asset_check
import pandas as pd
from pandas import DataFrame
from floe_dagster import create_definitions

print("an import that prints")
days = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")
daily = {"partitions_def": days, "metadata": {"partition_expr": "at", "write_mode": "append"}}

@asset(metadata={"write_mode": "append"})
def settings() -> DataFrame:
    return DataFrame({"id": [0]})

@asset(**daily, deps=[settings])
def log(context) -> DataFrame:
    print("an asset that prints")
    day = context.partition_key
    if day == os.environ.get("FAIL_DAY"):
        raise RuntimeError("no " + os.environ["PLANTED"])
    return DataFrame({"at": [pd.Timestamp(day + " 05:00:00", tz="UTC")]})

@asset(**daily, ins={"log": AssetIn()})
def copy(log: DataFrame) -> DataFrame:
    return log

@asset(metadata={"write_mode": "append"}, ins={"copy": AssetIn()})
def total(copy: DataFrame) -> DataFrame:
    if os.environ.get("FAIL_TOTAL"):
        raise RuntimeError("not today")
    return DataFrame({"count": [len(copy)]})

@asset_check(asset=total)
def is_large() -> AssetCheckResult:
    return AssetCheckResult(passed=not os.environ.get("FAIL_CHECK"), description="too small")

defs = create_definitions([settings, log, copy, total], asset_checks=[is_large])
"""


def test_what_is_missing_is_filled_once_and_the_rest_is_left_alone(new_project: Any) -> None:
    root: Path = new_project(
        'name: shop\nspark: {conf: {spark.hadoop.fs.s3a.secret.key: "${env:PLANTED}"}}\nenvironments: {prod: {}}\n'
    )
    (root / "definitions.py").write_text(GAPS)

    def run(**environment: str) -> tuple[int, dict[str, Any]]:
        ran = floe("run", "--missing", "--json", cwd=root, PLANTED="hunter2-hunter2", **environment)
        assert "hunter2-hunter2" not in ran.stdout + ran.stderr
        return ran.returncode, json.loads(ran.stdout)

    code, report = run(FAIL_DAY="2026-01-03")
    assert (code, report["ok"]) == (1, False)
    assert report["error"] == "log failed: RuntimeError: no ***"
    assert len(report["run_ids"]) == 3
    assert [one["asset"] for one in report["materialized"]] == ["settings", "log", "copy", "log", "copy"]

    code, report = run(FAIL_TOTAL="yes")
    assert (code, rows(root, "public.log"), rows(root, "public.copy"), rows(root, "public.settings")) == (1, 4, 4, 1)
    code, report = run(FAIL_CHECK="yes")
    assert (code, [one["asset"] for one in report["materialized"]]) == (1, ["total"])
    assert report["error"] == "check is_large of total failed: too small"
    code, report = run()
    assert (code, report["materialized"]) == (0, [])
    assert rows(root, "public.total") == 1


@pytest.mark.full
def test_a_copied_project_does_not_write_into_the_original(starter: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(starter, copy)
    before = sorted(path for path in (starter / ".floe" / "warehouse").rglob("*"))
    ran = floe("run", "--partition", "2026-01-03", cwd=copy)
    assert ran.returncode == 1
    assert "bronze/measurements failed: this lake was moved or copied" in ran.stderr
    assert sorted(path for path in (starter / ".floe" / "warehouse").rglob("*")) == before


def test_an_error_is_a_json_document_for_who_asked_for_json(starter: Path) -> None:
    for arguments, code in (
        (["run", "--partition", "x", "--missing"], 2),
        (["run", "--partition", "1999-01-01"], 1),
        (["run", "--env", "nowhere"], 1),
    ):
        ran = floe(*arguments, "--json", cwd=starter)
        assert ran.returncode == code
        assert json.loads(ran.stdout)["ok"] is False
    ran = floe("run", "--json", cwd=starter, DAGSTER_HOME="not/a/folder")
    assert "DAGSTER_HOME" in json.loads(ran.stdout)["error"]


SLOW = """
from pathlib import Path
from dagster import asset
from pyspark.sql import DataFrame
from floe_dagster import LakeResource, create_definitions

def crawl(batches):
    import time
    for batch in batches:
        Path("MARKER").touch()
        time.sleep(120)
        yield batch

@asset(metadata={"write_mode": "append"})
def quick(context, lake: LakeResource) -> DataFrame:
    context.log.info("five rows")
    return lake.spark.range(5)

@asset(metadata={"write_mode": "append"}, deps=[quick])
def slow(lake: LakeResource) -> DataFrame:
    return lake.spark.range(1000).coalesce(1).mapInArrow(crawl, "id long")

@asset(metadata={"write_mode": "append"}, deps=[slow])
def fails(lake: LakeResource) -> DataFrame:
    raise ValueError("the till is empty")

defs = create_definitions([quick, slow, fails])
"""


@pytest.mark.full
def test_ctrl_c_leaves_nothing_half_written_and_exits_with_130(new_project: Any) -> None:
    root: Path = new_project("name: shop\n")
    marker = root / "computing"
    (root / "definitions.py").write_text(SLOW.replace("MARKER", str(marker)))
    process = subprocess.Popen(
        [FLOE, "run"], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not marker.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
    assert marker.exists(), process.communicate(timeout=10)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group hears it
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert rows(root, "public.quick") == 5
    assert tables(root).catalog_plugin.list_tables("public") == ["quick"]


@pytest.mark.full
def test_a_failing_asset_is_told_with_its_own_words_and_the_rest_stays(new_project: Any) -> None:
    root: Path = new_project("name: shop\n")
    (root / "definitions.py").write_text(SLOW.replace("time.sleep(120)", "pass").replace("MARKER", str(root / "m")))
    ran = floe("run", "-v", cwd=root)
    assert ran.returncode == 1
    assert "error: fails failed: ValueError: the till is empty\n" in ran.stderr
    assert '    raise ValueError("the till is empty")\n' in ran.stderr
    assert ran.stderr.count("the till is empty") == 2  # the error, and the line of the source
    assert "info quick: five rows\n" in ran.stdout
    assert "public.slow" in ran.stdout
    assert rows(root, "public.slow") == 1000
