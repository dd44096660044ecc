"""A Spark process that ends while it works: the error says so, and the next one starts by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# It runs out of memory in a task; is then killed while idle; and a frame of a process that is gone is used.
PROGRAM = """
import json, os, signal
from pyspark import SparkContext
from pyspark.sql import functions as F
from floe_runtime import connect

lake = connect()
told = []

def attempt(frame, table):
    try:
        lake.write(frame, table, mode="append")
    except Exception as exc:
        told.append([type(exc).__name__, str(exc)])

def large():
    return lake.spark.range(100_000_000).agg(F.collect_list("id").alias("ids"))

lake.write(lake.spark.range(3).agg(F.collect_list("id").alias("ids")), "bronze.n", mode="append")
attempt(large(), "bronze.n")
attempt(large(), "bronze.created")
frame = lake.spark.range(3)
os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
attempt(frame, "bronze.n")
lake.spark.range(1).count()
attempt(frame, "bronze.n")
rows = lake.read("bronze.n").count()
print(json.dumps({"told": told, "rows": rows}))
lake.spark.stop()
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root: Path = tmp_path_factory.mktemp("ended")
    (root / "floe.yaml").write_text(
        "name: shop\nspark: {master: 'local[1]', conf: {spark.driver.memory: 512m}}\n", encoding="utf-8"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return {"root": root, **json.loads(ran.stdout.splitlines()[-1])}


@pytest.mark.full
def test_a_process_without_memory_is_reported_with_its_log_and_nothing_is_committed(ended: Any) -> None:
    kind, words = ended["told"][0]
    assert kind == "FloeStorageError"
    assert "the Spark process ended while it worked: it ran out of memory (java.lang.OutOfMemoryError" in words
    assert "Nothing was committed to 'bronze.n'" in words
    log = next(Path(word.rstrip(".")) for word in words.split() if word.startswith(str(ended["root"])))
    assert "OutOfMemoryError" in log.read_text(errors="replace")  # three processes were started since
    assert ended["rows"] == 1


@pytest.mark.full
def test_a_process_that_ends_while_it_creates_a_table_says_how_to_look_for_the_write(ended: Any) -> None:
    kind, words = ended["told"][1]
    assert kind == "CommitStateUnknownError"
    assert "the Spark process ended while it worked: it ran out of memory" in words
    assert "connect().tables.find_write('bronze.created', " in words


@pytest.mark.full
def test_a_process_that_was_killed_is_reported_and_its_frames_are_of_no_use_later(ended: Any) -> None:
    (_, killed), (_, stale) = ended["told"][2:]
    assert "the Spark process ended while it worked: it was killed (signal 9)" in killed
    assert "was made in a Spark process that has ended; make it again. Nothing was written" in stale
