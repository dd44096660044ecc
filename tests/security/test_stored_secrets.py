"""What Dagster stores of a run holds no secret of floe.yaml: messages, exceptions, metadata, standard output."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

SECRET = 'planted-"s3cret"\\of/floe'
DEFINITIONS = """
import os
from dagster import AssetCheckResult, AssetExecutionContext, MaterializeResult, MetadataValue, asset, asset_check
from floe_dagster import create_definitions

SECRET = os.environ["PLANTED"]

@asset
def orders(context: AssetExecutionContext) -> MaterializeResult:
    print("printed", SECRET)
    context.log.info(f"logged {SECRET}")
    context.log.warning("logged with arguments %s", SECRET)
    context.add_output_metadata({"plain": SECRET})
    kinds = {"text": SECRET, "md": MetadataValue.md(f"`{SECRET}`"), "json": MetadataValue.json({"a": [SECRET]})}
    return MaterializeResult(metadata={**kinds, "rows": 7})

@asset_check(asset=orders)
def checked() -> AssetCheckResult:
    return AssetCheckResult(passed=True, description=f"found {SECRET}", metadata={"why": SECRET})

@asset(deps=[orders])
def broken() -> None:
    try:
        raise KeyError(SECRET)
    except KeyError as exc:
        raise ValueError(f"cannot open with {SECRET}") from exc

defs = create_definitions([orders, broken], asset_checks=[checked])
"""
RUN = """
from pathlib import Path
from floe_core.compiler import compile_project
from floe_runtime.runs.pipeline import open_pipeline
from floe_runtime.runs.planning import Batch
from floe_runtime.runs.runner import RunFailedError, run_batches
artifacts = compile_project(Path.cwd()).artifacts
artifacts.write()
with open_pipeline(artifacts) as pipeline:
    try:
        run_batches(pipeline, [Batch(tuple(pipeline.assets()))], lambda event: None)
    except RunFailedError as exc:
        print("failed", exc)
"""
OPEN = RUN.split("    try:")[0] + "    pass\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "floe.yaml").write_text(
        'name: shop\nspark: {conf: {spark.hadoop.fs.s3a.secret.key: "${env:PLANTED}"}}\n'
    )
    (tmp_path / "definitions.py").write_text(DEFINITIONS)
    return tmp_path


def run(project: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "PLANTED": SECRET, "DAGSTER_DISABLE_TELEMETRY": "1", **environment}
    return subprocess.run([sys.executable, *command], cwd=project, env=settings, capture_output=True, text=True)


def holding(folder: Path) -> list[str]:
    """The files that hold the secret in any of its forms."""
    forms = [SECRET, SECRET.replace("\\", "\\\\"), SECRET.replace("\\", "\\\\").replace('"', '\\"')]
    found = [one for one in folder.rglob("*") if one.is_file()]
    return [str(one) for one in found if any(form.encode() in one.read_bytes() for form in (*forms, "s3cret"))]


def stored(project: Path) -> str:
    """Everything in Dagster's event log."""
    text = ""
    for path in (project / ".floe" / "dagster" / "history" / "runs").glob("*.db"):
        with sqlite3.connect(path) as connection:
            text += "".join(str(row) for row in connection.execute("SELECT event FROM event_logs"))
    return text


def test_what_floe_run_stores_holds_no_secret(project: Path) -> None:
    ran = run(project, "-c", RUN)
    assert ran.returncode == 0, ran.stderr
    assert "failed broken failed: ValueError: cannot open with ***" in ran.stdout
    assert holding(project / ".floe") == []
    text = stored(project)
    for kept in ("logged ***", "logged with arguments ***", "cannot open with ***", "found ***", '"rows"'):
        assert kept in text, kept


def test_a_run_of_dagsters_own_processes_on_floes_storage_holds_no_secret(project: Path) -> None:
    assert run(project, "-c", OPEN).returncode == 0  # which makes Dagster's home
    home = str(project / ".floe" / "dagster")
    command = ["-m", "dagster", "asset", "materialize", "--select", "*", "-m", "definitions"]
    ran = run(project, *command, DAGSTER_HOME=home)
    assert ran.returncode == 1
    assert holding(project / ".floe") == []
    assert "logged ***" in stored(project)
