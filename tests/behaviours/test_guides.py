"""The guides do what they say: their Python blocks are run in order, in a project of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


@pytest.mark.full
@pytest.mark.parametrize("guide", sorted(path.name for path in GUIDES.glob("*.md")))
def test_a_guide_runs(tmp_path: Path, guide: str) -> None:
    text = (GUIDES / guide).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    (tmp_path / "floe.yaml").write_text("name: guide\n", encoding="utf-8")
    (tmp_path / "guide.py").write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run([sys.executable, "guide.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
