"""The recipe for pull requests in the guide to branches: its commands are run as it has them."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import yaml
from tests.commands import floe

from floe_runtime import connect
from floe_runtime.templates import create_project

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "branches.md"


def commands(workflow: str) -> list[str]:
    """The floe commands of a workflow in the guide, in their order."""
    texts = re.findall(r"^```yaml\n# \.github/workflows/(\S+)\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)
    (job,) = yaml.safe_load(dict(texts)[workflow])["jobs"].values()
    runs = [step["run"] for step in job["steps"] if "run" in step]
    return [run.replace("${{ github.event.number }}", "12") for run in runs if run.startswith("floe ")]


def typed(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell does: with its variable, and its output in a file."""
    text, appends, target = command.partition(" >> ")
    if not appends:
        text, _, target = command.partition(" > ")
    words = [word.replace("$FLOE_BRANCH", "pr-12") for word in shlex.split(text)]
    done = floe(*words[1:], cwd=folder, FLOE_BRANCH="pr-12")
    if target:
        before = (folder / target).read_text("utf-8") if appends else ""
        (folder / target).write_text(before + done.stdout, encoding="utf-8")
    return done


def test_a_change_is_reviewed_on_a_branch_and_published_when_it_is_merged(tmp_path: Path) -> None:
    create_project("polars", tmp_path, name="shop", catalog="sql")
    with connect(tmp_path) as main:
        main.run()
        before = main.tables.scan("gold.daily_averages").to_arrow()
    code = tmp_path / "definitions.py"
    code.write_text(code.read_text("utf-8").replace("pl.len().alias", "(pl.len() * 2).alias"), encoding="utf-8")
    for _push in range(2):
        for command in commands("review.yml"):
            done = typed(tmp_path, command)
            expected = (1,) if command.startswith("floe check") else (0,)  # the template declares no checks
            assert done.returncode in expected, (command, done.stdout, done.stderr)
    review = (tmp_path / "review.md").read_text("utf-8")
    assert "gold/daily_averages" in review
    assert "+10 -10" in review
    with connect(tmp_path) as main:
        assert main.tables.scan("gold.daily_averages").to_arrow().equals(before)
    publish, discard = commands("publish.yml")
    (tmp_path / ".floe" / "dagster@pr-12").rename(tmp_path / "history of another machine")
    done = typed(tmp_path, publish)
    assert done.returncode == 0, done.stderr
    with connect(tmp_path) as main:
        after = main.tables.scan("gold.daily_averages").to_arrow()
        assert sum(after["readings"].to_pylist()) == 2 * sum(before["readings"].to_pylist())
        assert main.plan("gold/*", missing=True).assets == ()
    assert typed(tmp_path, discard).returncode == 1  # it is gone
