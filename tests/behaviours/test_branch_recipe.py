"""The recipe for pull requests in the guide to branches: its commands are run as it has them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from floe_runtime import connect
from floe_runtime.templates import create_project

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "branches.md"


def commands(workflow: str) -> list[str]:
    """The floe commands of a workflow in the guide, in their order."""
    texts = re.findall(r"^```yaml\n# \.github/workflows/(\S+)\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)
    (job,) = yaml.safe_load(dict(texts)[workflow])["jobs"].values()
    runs = [step["run"] for step in job["steps"] if "run" in step]
    return [run.replace("${{ github.event.number }}", "12") for run in runs if run.startswith("floe ")]


def in_a_shell(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "FLOE_BRANCH": "pr-12", "HOME": str(folder)}
    return subprocess.run(["bash", "-ec", command], cwd=folder, env=path, capture_output=True, text=True, check=False)


def test_a_change_is_reviewed_on_a_branch_and_published_when_it_is_merged(tmp_path: Path) -> None:
    create_project("polars", tmp_path, name="shop", catalog="sql")
    with connect(tmp_path) as main:
        main.run()
        before = main.tables.scan("gold.daily_averages").to_arrow()
    code = tmp_path / "definitions.py"
    code.write_text(code.read_text("utf-8").replace("pl.len().alias", "(pl.len() * 2).alias"), encoding="utf-8")
    for _push in range(2):
        for command in commands("review.yml"):
            done = in_a_shell(tmp_path, command)
            expected = (1,) if command.startswith("floe check") else (0,)  # the template declares no checks
            assert done.returncode in expected, (command, done.stdout, done.stderr)
    review = (tmp_path / "review.md").read_text("utf-8")
    assert "gold/daily_averages" in review
    assert "+10 -10" in review
    with connect(tmp_path) as main:
        assert main.tables.scan("gold.daily_averages").to_arrow().equals(before)
    publish, discard = commands("publish.yml")
    (tmp_path / ".floe" / "dagster@pr-12").rename(tmp_path / "history of another machine")
    done = in_a_shell(tmp_path, publish)
    assert done.returncode == 0, done.stderr
    with connect(tmp_path) as main:
        after = main.tables.scan("gold.daily_averages").to_arrow()
        assert sum(after["readings"].to_pylist()) == 2 * sum(before["readings"].to_pylist())
        assert main.plan("gold/*", missing=True).assets == ()
    assert in_a_shell(tmp_path, discard).returncode == 1  # it is gone
