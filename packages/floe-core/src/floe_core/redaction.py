"""Secrets never leave the process: what looks like one, and the values seen so far."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["CREDENTIAL_KEY", "MASK", "SPARK_REDACTION_REGEX", "is_credential_key", "protect", "redact"]

MASK: Final = "***"

# One pattern for floe.yaml keys, log fields and Spark's own redaction (Java understands it too).
SPARK_REDACTION_REGEX: Final = (
    r"(?i)secret|passw(or)?d|token|credential|access[._-]?key|account[._-]?key|private[._-]?key|api[._-]?key"
    r"|sas[._-]|authorization|(jdbc|catalog)[^,]*\.uri"
)
CREDENTIAL_KEY: Final = re.compile(
    r"(?i)secret|passw(or)?d|token$|credential|access[._-]?key|account[._-]?key|private[._-]?key|api[._-]?key"
    r"|(^|[._-])sas([._-]|$)|authorization"
)

_protected: set[str] = set()


def is_credential_key(key: str) -> bool:
    """Does a value under this key have to be a secret?"""
    return CREDENTIAL_KEY.search(key) is not None


def protect(secret: str) -> None:
    """From now on, this value is masked wherever Floe prints, logs or traces."""
    if len(secret) >= 4:  # masking "a" everywhere would destroy every message and protect nothing
        _protected.add(secret)


def redact(text: str) -> str:
    """The text with every protected value masked."""
    for secret in sorted(_protected, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
