"""Log events on the terminal of the floe command."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from floe_core.formatting import printable

__all__ = ["CommandRenderer"]

_OF_EVERY_EVENT: Final = ("event", "level", "timestamp")
_PLAIN: Final = ("columns", "reason", "tables")  # facts that need no name
_YELLOW, _END = "\x1b[33m", "\x1b[0m"


class CommandRenderer:
    """Renders warnings like those of the command itself, and all other events as structlog does."""

    def __init__(self, *, colors: bool) -> None:
        self._others = structlog.dev.ConsoleRenderer(colors=colors)
        self._colors = colors and not os.environ.get("NO_COLOR")

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        if event.get("level") != "warning":
            return str(self._others(logger, method, event))
        text = printable(f"warning: {event['event']}{_facts_text(event)}".replace("\n", " "))
        return f"{_YELLOW}{text}{_END}" if self._colors else text


def _facts_text(event: MutableMapping[str, Any]) -> str:
    """The facts in parentheses, such as ` (bronze.orders: city)`."""
    facts = {key: _text(value) for key, value in event.items() if key not in _OF_EVERY_EVENT}
    table = facts.pop("table", "")
    others = ", ".join(value if key in _PLAIN else f"{key.replace('_', ' ')} {value}" for key, value in facts.items())
    shown = ": ".join(filter(None, (table, others)))
    return f" ({shown})" if shown else ""


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
