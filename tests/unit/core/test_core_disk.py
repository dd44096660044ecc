"""A disk that cannot be written is a sentence that names the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from floe_core.compiler import compile_project
from floe_core.disk import disk_problem
from floe_core.errors import FloeStorageError


def project(root: Path) -> Path:
    (root / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    return root


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_disk_that_refuses_the_contract_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    artifacts = compile_project(project(tmp_path)).artifacts

    def refuse(path: Path, content: bytes) -> int:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(FloeStorageError, match=r"cannot write .*compiled\.json.*: ") as caught:
        artifacts.write()
    assert os.strerror(number) in str(caught.value)


def test_a_contract_that_is_there_already_needs_no_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts = compile_project(project(tmp_path)).artifacts
    artifacts.write()

    def refuse(path: Path, content: bytes) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert artifacts.write().is_file()


def test_another_failure_is_no_problem_of_the_disk() -> None:
    assert disk_problem(FileNotFoundError(errno.ENOENT, "no such file")) is None
    assert disk_problem(ValueError("x")) is None
