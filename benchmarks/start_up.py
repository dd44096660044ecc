"""How long the command takes to answer."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measurement import Row, compare

__all__ = ["measure"]


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
        floe = str(Path(sys.executable).parent / "floe")

        def call(*command: str) -> Callable[[], object]:
            return lambda: subprocess.run(command, cwd=folder, check=True, capture_output=True)

        click = call(sys.executable, "-c", "import click")
        models = call(sys.executable, "-c", "import click, pydantic, yaml")
        yield compare("floe --help", call(floe, "--help"), "python, click", click, times=9, target="under 0.3 s")
        yield compare(
            "floe compile",
            call(floe, "compile"),
            "python, click, pydantic, yaml",
            models,
            times=9,
            target="under 0.6 s",
        )
