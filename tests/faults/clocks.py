"""Clocks that are wrong: what this process takes for now while it commits through PyIceberg."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest

__all__ = ["clock_off", "unguarded"]


@contextmanager
def clock_off(monkeypatch: pytest.MonkeyPatch, offset: timedelta) -> Iterator[None]:
    """Let the clock of this process be off; Spark's and the servers' stay right."""
    now, seconds = time.time, offset.total_seconds()

    class Moved(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + offset  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("pyiceberg.table.update.datetime", Moved)
        patch.setattr(time, "time", lambda: now() + seconds)
        yield


@contextmanager
def unguarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commit as PyIceberg does by itself: the state that Floe must repair was left by such a commit."""
    with monkeypatch.context() as patch:
        for module in ("floe_iceberg._pyiceberg.tables", "floe_iceberg.catalogs.sql", "floe_polaris.catalog"):
            patch.setattr(f"{module}.stamped", lambda updates, _base, **_options: updates)
        patch.setattr("floe_iceberg.catalogs.sql.in_order", lambda metadata, _now, _base: metadata)
        yield
