"""How far the writes of this process are. A writer reports only when a display asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["WriteProgress", "followed", "writes_in_progress"]


@dataclass(frozen=True)
class WriteProgress:
    """How far a write is; None for what is not known.

    Attributes:
        asset: The asset that is written; empty for a write without one.
        rows: The rows written so far.
        bytes: The bytes of files written so far.
        share: The share of the work that is done, from 0 to 1.
    """

    asset: str
    rows: int | None = None
    bytes: int | None = None
    share: float | None = None


_RUNNING: dict[object, Callable[[], WriteProgress]] = {}


@contextmanager
def followed(state: Callable[[], WriteProgress]) -> Iterator[None]:
    """A block in which a write runs; `state` is called from another thread, only if the write is displayed."""
    key = object()
    _RUNNING[key] = state
    try:
        yield
    finally:
        del _RUNNING[key]


def writes_in_progress() -> list[WriteProgress]:
    """The writes that run now."""
    return [state() for state in list(_RUNNING.values())]
