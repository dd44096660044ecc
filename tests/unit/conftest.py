"""What unit tests share: logs that a test configures."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from floe_core.observability import telemetry


@pytest.fixture
def configured_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets a test call telemetry.configure() and undoes it."""
    logger = logging.getLogger("floe")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    for name in ("_log", "_own_level", "_failure_level"):
        monkeypatch.setattr(telemetry, name, getattr(telemetry, name))
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logger.propagate = propagate
