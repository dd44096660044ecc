"""The outcome of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from floe_core.config import CheckScope

__all__ = ["CheckOutcome"]


@dataclass(frozen=True)
class CheckOutcome:
    """What a check found.

    Attributes:
        name: The name of the check.
        rule: What it checks, such as `not_null`.
        passed: Whether the rule holds.
        severity: `warn` if a failure is only reported.
        scope: The rows that were checked: a slice, or the whole table.
        message: What was found, in a sentence.
        snapshot_id: The snapshot that was checked; None for a table that has none.
        rows: The rows that were checked; None if they were not counted.
        failing: The rows that break the rule; None if the rule is not about rows.
        numbers: Other numbers, such as the failing rows of each column.
        examples: Some of the rows that break the rule, without sensitive columns.
        partitions: The failing rows of each partition; only those that have some.
        quarantined: The rows that were moved to the quarantine table because of this check; None if it moves none.
        quarantine: The quarantine table.
    """

    name: str
    rule: str
    passed: bool
    severity: Literal["error", "warn"]
    scope: CheckScope
    message: str
    snapshot_id: int | None
    rows: int | None = None
    failing: int | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    examples: Sequence[Mapping[str, Any]] = ()
    partitions: Mapping[str, int] = field(default_factory=dict)
    quarantined: int | None = None
    quarantine: str | None = None

    @property
    def stops(self) -> bool:
        """Whether the failure counts as one: a warning does not."""
        return not self.passed and self.severity == "error"
