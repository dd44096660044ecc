"""A quick start of commands that read rows."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["quick_start", "skip_pandas"]


class _Hidden:
    """A finder that finds no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError("not needed to read rows", name=name)


@contextmanager
def _hidden() -> Iterator[None]:
    finder = _Hidden()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def skip_pandas() -> None:
    """Keep PyArrow from importing pandas with its first value, which takes as long as all other imports.

    PyArrow looks for pandas once, and later only for what needs it.
    """
    if "pandas" in sys.modules:
        return
    with _hidden():
        import pyarrow as pa

        pa.array([True])
        pa.scalar(True)


@contextmanager
def quick_start() -> Iterator[Callable[[], None]]:
    """Import and open without garbage collection, which would inspect every new function and class several times.

    Call what the block is given when rows are about to be read: from then on, only newer objects are collected.
    """

    def started() -> None:
        if enabled:
            gc.freeze()
            gc.enable()

    enabled = gc.isenabled()
    gc.disable()
    try:
        yield started
    finally:
        if enabled:
            gc.enable()
            gc.unfreeze()
