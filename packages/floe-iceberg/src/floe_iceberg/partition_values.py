"""Partition values that are equal if and only if their partitions are the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pyiceberg.typedef import Record

__all__ = ["partition_key", "plain"]

_NEGATIVE_ZERO = "-0.0"  # cannot be a value of a float field


def plain(value: Any) -> Any:
    """A partition value whose NaN is always the same object, which Python then finds in a set."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def partition_key(values: Sequence[Any] | Record) -> tuple[object, ...]:
    """Equal if and only if the partition is the same: 0.0 and -0.0 are two partitions, though equal in Python."""
    return tuple(_NEGATIVE_ZERO if _is_negative_zero(values[at]) else values[at] for at in range(len(values)))


def _is_negative_zero(value: object) -> bool:
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0
