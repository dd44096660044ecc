"""Base classes and types of all settings in floe.yaml: frozen and strict, with readable durations and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    WithJsonSchema,
)

from floe_core.config.references import is_reference
from floe_core.security.redaction import masked

__all__ = ["Duration", "Secret", "Settings", "Shown", "Size", "Text", "duration_text"]

_DURATION = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_LONGEST = timedelta(days=36_500)
_SIZES = {"KB": 2**10, "MB": 2**20, "GB": 2**30}


class Shown(BaseModel):
    """Settings that may hold resolved secrets: neither their repr nor their validation errors show them."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, masked(name or "", value)


class Settings(Shown):
    model_config = ConfigDict(extra="forbid")


def _secret_text(secret: SecretStr) -> str:
    text = secret.get_secret_value()
    if not is_reference(text):
        raise ValueError("a literal secret is never serialized; use a reference such as ${env:NAME}")
    return text


def _parse_duration(value: Any) -> Any:
    match = re.fullmatch(r"(\d+)([smhd])", value) if isinstance(value, str) else None
    if match:
        try:
            duration = timedelta(**{_DURATION[match[2]]: int(match[1])})
        except OverflowError:
            duration = timedelta.max
        if duration > _LONGEST:
            raise ValueError(f"{value} is longer than a hundred years; write at most 36500d")
        return duration
    if isinstance(value, timedelta):
        return value
    raise ValueError("write a duration as a whole number and a unit: 90s, 30m, 12h or 7d")


def duration_text(value: timedelta) -> str:
    seconds = int(value.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _parse_size(value: Any) -> Any:
    match = re.fullmatch(r"(\d+) ?(KB|MB|GB)", value) if isinstance(value, str) else None
    if match:
        return int(match[1]) * _SIZES[match[2]]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("write a size as a whole number and a unit: 512KB, 128MB or 1GB")


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Secret = Annotated[SecretStr, PlainSerializer(_secret_text, return_type=str, when_used="json")]
Duration = Annotated[
    timedelta,
    BeforeValidator(_parse_duration),
    PlainSerializer(duration_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^\d+[smhd]$", "examples": ["7d", "12h"]}),
]
Size = Annotated[
    int,
    BeforeValidator(_parse_size),
    Field(gt=0),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": r"^\d+ ?(KB|MB|GB)$"}, {"type": "integer"}]}),
]
Text = Annotated[
    str,
    BeforeValidator(_as_text),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}),
]
