"""A project of another user is not executed, and other users cannot read what Floe keeps of a project."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import FLOE, floe

from floe_core.compiler import compile_project, find_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError
from floe_core.plugins.discovery import create_catalog_plugin
from floe_dagster import create_definitions
from floe_runtime import connect

STRANGER = 12345
MARKED = "from pathlib import Path\nPath('executed').touch()\nfrom dagster import Definitions\ndefs = Definitions()\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "shared"
    (root / "below").mkdir(parents=True)
    (root / "floe.yaml").write_text("name: shop\n")
    (root / "definitions.py").write_text(MARKED)
    return root


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a file another user's."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1, follow_symlinks=False)
        return
    lstat = Path.lstat  # only root can give files away

    def other(self: Path) -> os.stat_result:
        found = lstat(self)
        return os.stat_result((*found[:4], STRANGER, *found[5:])) if self == path else found

    monkeypatch.setattr(Path, "lstat", other)


@pytest.mark.parametrize("name", [".", "floe.yaml", ".floe"])
@pytest.mark.parametrize("start", [".", "below"])
def test_a_project_of_another_user_is_refused(
    project: Path, name: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".floe").mkdir()
    give_away(project / name, monkeypatch)
    monkeypatch.chdir(project / start)
    for opened in (find_project, connect, lambda: create_definitions([])):
        with pytest.raises(ConfigurationError, match=f"belongs to another user.*FLOE_SAFE_PROJECTS={project}"):
            opened()
    monkeypatch.setenv("FLOE_SAFE_PROJECTS", f"/elsewhere{os.pathsep}{project}")
    assert find_project() == project
    monkeypatch.setenv("FLOE_SAFE_PROJECTS", str(project.parent))  # exact: not what lies above
    with pytest.raises(ConfigurationError):
        find_project()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_command_does_not_execute_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(project / "floe.yaml", monkeypatch)
    ran = floe("run", cwd=project / "below")
    assert ran.returncode == 1
    assert "belongs to another user" in ran.stderr
    assert not list(project.rglob("executed"))
    assert not (project / ".floe").exists()


def test_root_may_open_the_project_of_who_called_sudo(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(project / "floe.yaml", monkeypatch)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    if os.getuid() == 0:
        assert find_project(project) == project
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER + 1)  # SUDO_UID is for root only
    with pytest.raises(ConfigurationError):
        find_project(project)


def test_what_belongs_to_root_may_be_opened(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an image that is built by root and run by another user; root could execute code as that user anyway."""
    lstat = Path.lstat

    def of_root(self: Path) -> os.stat_result:
        found = lstat(self)
        return os.stat_result((*found[:4], 0, *found[5:]))

    monkeypatch.setattr(Path, "lstat", of_root)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    assert find_project(project) == project


def test_a_contract_that_only_another_reads_says_what_to_do(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_project(project).artifacts.write()

    def refuse(path: Path, *_: object) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigurationError, match=r"cannot be read: .*Compile it as the user that runs it"):
        CompiledArtifacts.load(project)
    (project / "floe.yaml").unlink()
    monkeypatch.setattr(Path, "is_file", lambda path: refuse(path) if path.name == "compiled.json" else False)
    with pytest.raises(ConfigurationError, match=r"cannot be read: .*Compile it as the user that runs it"):
        create_definitions([], project=project)


def test_in_a_folder_like_tmp_the_owner_of_the_file_decides(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project.chmod(0o1777)
    give_away(project, monkeypatch)
    assert find_project(project) == project
    (project / ".floe").mkdir()
    (project / ".floe").chmod(0o1777)
    give_away(project / ".floe", monkeypatch)
    with pytest.raises(ConfigurationError, match=r"\.floe belongs to another user"):
        find_project(project)


@pytest.fixture
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {str(one.relative_to(folder)): stat.S_IMODE(one.stat().st_mode) for one in (folder, *folder.rglob("*"))}


@pytest.mark.usefixtures("_open_umask")
def test_what_floe_keeps_is_its_owners_whatever_the_umask(project: Path) -> None:
    (project / ".floe").mkdir()
    (project / ".floe" / "compiled.json").write_text("{}")  # as an earlier version left it
    artifacts = compile_project(project).artifacts
    artifacts.write()
    create_catalog_plugin(artifacts).connect()
    found = modes(project / ".floe")
    assert found["."] == 0o700
    assert found["compiled.json"] == found["catalog.db"] == 0o600
    assert not [name for name, mode in found.items() if mode & 0o077]


@pytest.mark.usefixtures("_open_umask")
def test_after_a_command_databases_and_logs_are_its_owners(project: Path) -> None:
    (project / "definitions.py").write_text(
        "from dagster import Definitions, asset\n@asset\ndef orders(): raise ValueError\ndefs = Definitions([orders])\n"
    )
    program = (
        "from floe_core.compiler import compile_project\nfrom pathlib import Path\n"
        "from floe_runtime.runs.pipeline import open_pipeline\nfrom floe_runtime.runs.planning import Batch\n"
        "from floe_runtime.runs.runner import RunFailedError, run_batches\n"
        "artifacts = compile_project(Path.cwd()).artifacts\nartifacts.write()\n"
        "with open_pipeline(artifacts) as pipeline:\n"
        "    try: run_batches(pipeline, [Batch(tuple(pipeline.assets()), ())], lambda event: None)\n"
        "    except RunFailedError: pass\n"
    )
    ran = subprocess.run([Path(FLOE).with_name("python"), "-c", program], cwd=project, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = modes(project / ".floe")
    assert any(name.endswith(".db") for name in found)
    assert any(name.startswith("logs/run-") for name in found)
    assert not [name for name, mode in found.items() if mode & 0o077]
