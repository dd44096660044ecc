"""One session per process, with the right catalog or none."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.models import WriteMode
from floe_iceberg import Lake


def test_a_second_lake_on_the_same_project_gets_the_same_session(lake: Lake, project: CompiledArtifacts) -> None:
    assert Lake(project).spark is lake.spark


def test_another_thread_gets_the_same_session(lake: Lake, project: CompiledArtifacts) -> None:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(Lake(project).spark.range(3).count()))
    thread.start()
    thread.join()
    assert found == [3]


def test_a_session_with_another_catalog_is_refused_not_reused(lake: Lake, tmp_path: Path) -> None:
    assert lake.spark.range(1).count() == 1
    (tmp_path / "floe.yaml").write_text("name: other\n")
    with pytest.raises(ConfigurationError, match=r"another catalog configuration .*spark\.sql\.catalog\.lake\.uri"):
        _ = Lake(compile_project(tmp_path).artifacts).spark


def test_times_are_utc_and_the_catalog_is_the_default(lake: Lake, table: TableIdentifier) -> None:
    lake.write(lake.spark.sql("SELECT TIMESTAMP '2026-01-01 12:00:00' AS at"), table, mode=WriteMode.APPEND)
    assert lake.spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert lake.spark.sql(f"SELECT CAST(at AS STRING) FROM {table}").collect()[0][0] == "2026-01-01 12:00:00"
    stored = lake.tables.load_table(table).scan().to_arrow()["at"][0].as_py()
    assert stored.isoformat() == "2026-01-01T12:00:00+00:00"


def test_the_log_of_the_jvm_is_in_a_file_of_the_project_alone(lake: Lake) -> None:
    log = lake.artifacts.root / ".floe" / "logs" / "spark.log"
    assert log.stat().st_size > 0
    assert log.stat().st_mode & 0o077 == 0


def run(program: str, root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.full  # starts a JVM
def test_planted_secrets_reach_no_file_no_output_and_no_setting_that_spark_shows(tmp_path: Path) -> None:
    secret = "hunter2-hunter2"
    (tmp_path / "floe.yaml").write_text(
        "name: shop\n"
        "spark:\n"
        "  conf:\n"
        '    spark.hadoop.fs.s3a.secret.key: "${env:PLANTED}"\n'
        "observability: {log_level: debug, log_format: json}\n"
    )
    program = """
from floe_core.compiler import compile_project
from floe_core.config.references import resolve_model
from floe_core.observability.telemetry import configure
from floe_runtime import connect
from pathlib import Path
import os
lake = connect()
lake.artifacts.write()
configure(lake.artifacts.observability, project="shop")
print(repr(lake.artifacts), repr(resolve_model(lake.artifacts.spark, root=Path("."))), vars(lake))
shown = {row.key: row.value for row in lake.spark.sql("SET").collect()}
print(shown)
assert lake.spark.conf.get("spark.hadoop.fs.s3a.secret.key") == os.environ["PLANTED"]
for process in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        assert os.environ["PLANTED"].encode() not in process.read_bytes(), process
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        continue
assert not list(Path(".floe/logs").glob(".conf-*"))
try:
    lake.read(f"bronze.{os.environ['PLANTED']}")
except Exception as exc:
    from floe_core.security.redaction import redact
    print(redact(str(exc)))
"""
    ran = run(program, tmp_path, PLANTED=secret)
    assert ran.returncode == 0, ran.stderr
    assert secret not in ran.stdout + ran.stderr
    for path in (tmp_path / ".floe").rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


@pytest.mark.full
def test_spark_starts_from_local_jars_without_asking_for_any(tmp_path: Path, lake: Lake) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    fetched = lake.spark.conf.get("spark.jars")
    assert fetched is not None
    for jar in fetched.split(","):
        shutil.copy(jar.removeprefix("file:"), jars)
    (tmp_path / "floe.yaml").write_text("name: shop\nspark: {jars: jars}\n")
    program = (
        "from floe_runtime import connect; from floe_core.models import WriteMode\n"
        "lake = connect(); lake.write(lake.spark.range(3), 'bronze.n', mode=WriteMode.APPEND)\n"
        "print(lake.tables.load_table(__import__('floe_core.identifiers', fromlist=['x'])"
        ".TableIdentifier.from_string('bronze.n')).scan().to_arrow().num_rows)"
    )
    ran = run(program, tmp_path)
    assert ran.stdout.strip() == "3", ran.stderr
    assert "loading settings" not in (tmp_path / ".floe" / "logs" / "spark.log").read_text()


@pytest.mark.full
def test_jars_that_cannot_be_fetched_are_named(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text(
        "name: shop\nspark: {conf: {spark.jars.packages: 'org.example:nothing:9.9.9'}}\n"
    )
    ran = run("from floe_runtime import connect; connect().spark", tmp_path)
    assert ran.returncode == 1
    assert "these jars could not be fetched: org.example:nothing:9.9.9" in ran.stderr
    assert "spark: {jars: FOLDER}" in ran.stderr


@pytest.mark.full  # starts a JVM
def test_a_master_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\nspark: {master: nonsense}\n")
    ran = run("from floe_runtime import connect; connect().spark", tmp_path)
    assert ran.returncode == 1
    assert "Spark did not start on nonsense" in ran.stderr
