"""Redaction of secrets: which keys hold them, and which values are masked."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

__all__ = [
    "CREDENTIAL_KEY",
    "MASK",
    "SPARK_REDACTION_REGEX",
    "is_credential_key",
    "knows_secrets",
    "masked",
    "protect",
    "protect_for_now",
    "redact",
]

MASK: Final = "***"

# One pattern for floe.yaml keys, log fields and Spark's own redaction (Java understands it too).
SPARK_REDACTION_REGEX: Final = (
    r"(?i)secret|passw(or)?d|token|credential|access[._-]?key|account[._-]?key|private[._-]?key|api[._-]?key"
    r"|sas[._-]|authorization|(jdbc|catalog)[^,]*\.uri"
)
CREDENTIAL_KEY: Final = re.compile(
    r"(?i)secret|passw(or)?d|token$|credential(?!s?[._-]provider)|access[._-]?key|account[._-]?key|private[._-]?key|api[._-]?key"
    r"|(^|[._-])sas([._-]|$)|authorization"
)

_protected: set[str] = set()
# Tokens and vended credentials are many and short-lived: only the newest are kept.
_short_lived: OrderedDict[str, None] = OrderedDict()
_SHORT_LIVED_KEPT: Final = 200


def is_credential_key(key: str) -> bool:
    """Whether a value under this key is a secret."""
    return CREDENTIAL_KEY.search(key) is not None


def protect(secret: str) -> None:
    """Mask this value from now on, wherever Floe prints, logs or traces."""
    if len(secret) >= 4:  # masking "a" everywhere would destroy every message and protect nothing
        # Also as repr(), JSON and URLs escape it. A double quote elsewhere in a text changes its repr().
        texts = (repr(secret)[1:-1], repr(f'"{secret}')[2:-1])
        documents = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
        _protected.update((secret, *texts, *documents, quote(secret), quote(secret, safe="")))


def protect_for_now(secret: str) -> None:
    """`protect` for a short-lived value; only the newest of these stay masked."""
    if len(secret) >= 4:
        _short_lived[secret] = None
        _short_lived.move_to_end(secret)
        while len(_short_lived) > _SHORT_LIVED_KEPT:
            _short_lived.popitem(last=False)


def knows_secrets() -> bool:
    """Whether any value is protected."""
    return bool(_protected or _short_lived)


def masked(key: str, value: Any) -> Any:
    """A value that may be shown: protected values, and all text under a credential key, are masked."""
    if isinstance(value, Mapping):
        return {name: masked(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(key, item) for item in value]
    if isinstance(value, str):
        return MASK if is_credential_key(key) else redact(value)
    return value


def redact(text: str) -> str:
    """The text with every protected value masked."""
    size = len(text)
    shown = [secret for secret in (*_protected, *_short_lived) if len(secret) <= size and secret in text]
    for secret in sorted(shown, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
