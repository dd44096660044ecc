"""A disk that is full or read-only for some of the files."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

__all__ = ["broken_disk"]


@contextmanager
def broken_disk(
    monkeypatch: pytest.MonkeyPatch, *, files: str, after: int = 0, read_only: bool = False
) -> Iterator[None]:
    """Let every output whose name matches `files`, but for the first so many, go to a disk without space.

    The device /dev/full takes no byte: what is raised, and when, is what the operating system and Arrow make of it.
    """
    make = PyArrowFileIO.new_output
    met: list[str] = []

    def new_output(self: PyArrowFileIO, location: str) -> Any:
        made = make(self, location)
        if re.search(files, location):
            met.append(location)
            if len(met) > after:
                return _OnBrokenDisk(made, read_only=read_only)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(PyArrowFileIO, "new_output", new_output)
        yield
    assert len(met) > after, "the disk was not written to"


class _OnBrokenDisk(PyArrowFile):
    def __init__(self, meant: PyArrowFile, *, read_only: bool) -> None:
        super().__init__(meant.location, meant._path, meant._filesystem, meant._buffer_size)
        self._read_only = read_only

    def create(self, overwrite: bool = False) -> OutputStream:
        del overwrite
        if self._read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), self.location)
        full = PyArrowFile(self.location, "/dev/full", LocalFileSystem())
        return full.create(overwrite=True)
