"""One process, several projects, one after the other: no session has what belongs to another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.catalogs import rest_settings
from tests.servers.seaweedfs import SeaweedFS

from floe_core.jvm import SQLITE_JDBC

SCRIPT = """
import sys
from pathlib import Path
from floe_core.compiler import compile_project
from floe_core.errors import FloeError
from floe_iceberg import Lake

first, second, third = (Lake(compile_project(Path(one)).artifacts) for one in sys.argv[1:])
KEY = "spark.sql.catalog.lake.credential"
print("first", first.spark.conf.get(KEY).partition(":")[0], first.spark.conf.get("spark.mine.default", "lost"))
first.write(first.spark.range(3), "planted.events", mode="append")
first.spark.stop()
print("second", second.spark.conf.get(KEY).partition(":")[0])
try:
    second.write(second.spark.range(1), "planted.events", mode="append")
except FloeError as exc:
    print("refused", type(exc).__name__)
second.spark.stop()
print("third", third.spark.conf.get(KEY, "none"), third.spark.conf.get("spark.sql.catalog.lake.io-impl", "none"))
third.write(third.spark.range(5), "planted.events", mode="append")
print("rows", third.read("planted.events").count())
third.spark.stop()
"""


@pytest.mark.full
def test_a_session_has_the_secret_of_its_own_project_only(server: SeaweedFS, tmp_path: Path) -> None:
    # A JVM has the jars that it was started with.
    settings = f"{rest_settings(server)}spark: {{conf: {{spark.jars.packages: '{SQLITE_JDBC}'}}}}\n"
    guest = settings.replace(f"client_id: {server.key}", "client_id: guest").replace("REST_SECRET", "GUEST_SECRET")
    projects = {"first": settings, "second": guest, "third": ""}
    for name, text in projects.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "floe.yaml").write_text(f"name: tests\n{text}")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.mine.default yes\n")
    # What somebody left behind whose process was ended at the wrong moment.
    stale = tmp_path / "first" / ".floe" / "logs" / ".conf-stale"
    stale.parent.mkdir(parents=True)
    stale.write_text("planted")
    os.utime(stale, (0, 0))
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {
        **os.environ,
        "FLOE_TEST_GUEST_SECRET": f"{server.secret}-guest",
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
    }
    command = [sys.executable, "script.py", *(str(tmp_path / name) for name in projects)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [line for line in done.stdout.splitlines() if line.split()[0] in (*projects, "refused", "rows")]
    assert told == [
        "first floe yes",
        "second guest",
        "refused PermissionDeniedError",
        "third none none",
        "rows 5",
    ]
    assert not stale.exists()
    left = [
        path for path in tmp_path.rglob("*") if path.is_file() and server.secret in path.read_text(errors="replace")
    ]
    assert left == []
