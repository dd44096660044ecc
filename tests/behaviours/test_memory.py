"""A stream of any length is written in the same memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _stream(folder: Path, size: int) -> dict[str, Any]:
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks.stream", str(folder), str(size)]
    found: dict[str, Any] = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    return found


@pytest.mark.full
def test_a_stream_into_partitions_takes_no_more_memory_the_longer_it_is(tmp_path: Path) -> None:
    short = _stream(tmp_path / "short", 500_000_000)
    long = _stream(tmp_path / "long", 2_000_000_000)
    assert short["snapshots"] == long["snapshots"] == 1
    assert long["rows"] > 3.5 * short["rows"]
    assert long["peak_bytes"] < 1_000_000_000
    assert long["peak_bytes"] < 1.25 * short["peak_bytes"]
