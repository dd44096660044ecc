"""Counts and sizes as text."""

from __future__ import annotations

__all__ = ["counted", "human_bytes"]


def counted(number: int, word: str) -> str:
    """2 tables, 1 table, no tables."""
    return f"{f'{number:,}' if number else 'no'} {word}{'' if number == 1 else 's'}"


def human_bytes(count: float) -> str:
    """1,234,567 as 1.2 MB."""
    for unit in ("B", "kB", "MB"):
        if count < (999.5 if unit == "B" else 999.95):
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
