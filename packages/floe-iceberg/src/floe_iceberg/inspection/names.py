"""The names that a mistyped one may have meant."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

__all__ = ["similar"]

_SUGGESTED = 3


def similar(name: str, known: Collection[str]) -> list[str]:
    """The nearest of the known names, best first: those that end the same, then those spelled alike."""
    last = name.rpartition(".")[2]
    by_last: dict[str, list[str]] = {}
    for other in sorted(known):
        by_last.setdefault(other.rpartition(".")[2], []).append(other)
    alike = get_close_matches(name, known, n=_SUGGESTED)
    near = [other for match in get_close_matches(last, by_last, n=_SUGGESTED) for other in by_last[match]]
    return list(dict.fromkeys([*by_last.get(last, []), *alike, *near]))[:_SUGGESTED]
