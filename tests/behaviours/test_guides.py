"""The guides do what they say: their Python blocks, and the commands of the terminal's, are run in order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.commands import floe

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"


def blocks(guide: Path, language: str) -> list[str]:
    text = guide.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def typed(guide: str) -> list[str]:
    """The lines that a guide types in a terminal."""
    lines = "".join(blocks(GUIDES / guide, "console")).splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


@pytest.mark.full
@pytest.mark.parametrize("guide", sorted(path.name for path in GUIDES.glob("*.md") if blocks(path, "python")))
def test_a_guide_runs(tmp_path: Path, guide: str) -> None:
    folder = tmp_path
    lines = typed(guide)
    if lines and lines[0].startswith("floe init "):  # its blocks use the project that it creates
        created = floe(*lines[0].split()[1:], cwd=tmp_path)
        assert created.returncode == 0, created.stderr
        folder /= lines[1].removeprefix("cd ")
    else:
        (folder / "floe.yaml").write_text("name: guide\n", encoding="utf-8")
        (folder / "definitions.py").write_text("# the assets of the reader\n", encoding="utf-8")
    before = {path: path.read_bytes() for path in folder.glob("*") if path.is_file()}
    (folder / "guide.py").write_text("\n".join(blocks(GUIDES / guide, "python")), encoding="utf-8")
    done = subprocess.run([sys.executable, "guide.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {path: path.read_bytes() for path in before} == before  # pasted into a project, it replaces nothing


def test_the_commands_of_the_terminal_guide_run(tmp_path: Path) -> None:
    commands = [shlex.split(line, comments=True) for line in typed("terminal.md")]
    folder = tmp_path
    for program, *arguments in commands:
        if program == "cd":
            folder /= arguments[0]
            continue
        assert program == "floe"
        ran = floe(*arguments, cwd=folder)
        assert (ran.returncode, ran.stderr) == (0, ""), [arguments, ran.stdout, ran.stderr]
        assert ran.stdout
    assert len(commands) > 15


def test_a_floe_init_among_other_lines_asks_nothing() -> None:
    """A question would take the lines that are pasted with it as its answer."""
    pages = [ROOT / "README.md", *GUIDES.glob("*.md")]
    found = re.findall(
        r"^\$ (floe init .*)$", "".join(text for page in pages for text in blocks(page, "console")), re.M
    )
    assert len(found) >= 3
    assert all("--template " in line and "--catalog " in line for line in found), found


def test_the_guide_to_notebooks_names_every_command_and_only_methods_that_exist() -> None:
    from floe_iceberg import IcebergTableManager
    from floe_runtime import Project
    from floe_runtime.cli import floe as command

    page = (GUIDES / "notebooks.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `floe ")]
    only = page[page.index("Only in the terminal are") :].partition("\n\n")[0]
    named = set()
    for cell in [*(left for left, _ in rows), only]:
        group = ""
        for name in re.findall(r"`([a-z ]+)`", cell):
            words = name.removeprefix("floe ").split()
            group = words[0] if name.startswith("floe ") else group
            named.add(f"{group} {words[-1]}" if words[-1] != group else group)
    context = click.Context(command)
    existing = set()
    for name in command.list_commands(context):
        verbs = getattr(command.get_command(context, name), "commands", {})
        existing |= {f"{name} {verb}" for verb in verbs} or {name}
    assert named == existing
    methods = {name for _, right in rows for name in re.findall(r"`(?:lake\.tables\.|lake\.)(\w+)", right)}
    assert len(methods) > 20
    assert methods <= {*dir(Project), *dir(IcebergTableManager)}
