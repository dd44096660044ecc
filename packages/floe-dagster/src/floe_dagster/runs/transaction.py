"""The atomic run that the current step belongs to; its tables are published together at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from dagster import AssetKey

from floe_core.config import TableCheck
from floe_core.errors import ConfigurationError
from floe_iceberg.snapshots import run_branch

__all__ = ["AtomicRun", "Published", "current_run", "current_run_branch", "inside", "refuse_atomic_tag"]

# What a run may be tagged with by mistake: a tag cannot make a run of ordinary assets atomic.
_TAG = "floe/atomic"


@dataclass(frozen=True)
class AtomicRun:
    """An atomic run, as its steps see it.

    Args:
        group: The name of the group.
        run_id: The run of its writes; a retry continues those of the run that failed.
        attempt: Which attempt of its step this is, from 0.
        tables: How many tables the run writes, with the quarantine tables.
        early_columns: Whether tables that are published may get columns before the publication.
        keep: The age at which expiry removes the branches of a run that was not published.
        one_by_one: Whether the tables may be published one after the other.
        quarantine: The checks that move rows, by their asset.
    """

    group: str
    run_id: str
    attempt: int
    tables: int
    early_columns: bool
    keep: timedelta
    one_by_one: bool
    quarantine: Mapping[AssetKey, Sequence[TableCheck]] = field(default_factory=dict)

    @property
    def branch(self) -> str:
        """The branch that the run writes to, in each of its tables."""
        return run_branch(self.run_id)


@dataclass(frozen=True)
class Published:
    """What the publish step returns for an asset: its rows are in main, and are not written again."""

    metadata: Mapping[str, Any]


_CURRENT: ContextVar[AtomicRun | None] = ContextVar("floe_atomic_run", default=None)


def current_run() -> AtomicRun | None:
    """The atomic run of the current step; None outside of one."""
    return _CURRENT.get()


def current_run_branch() -> str | None:
    """The branch that the assets of the current atomic run are written to; None outside of one.

    Inputs are read from there by themselves. A check or an asset that reads a table by other means passes it as `ref`,
    if the table has it.

    Example:
        >>> from floe_dagster import current_run_branch
        >>> current_run_branch() is None
        True
    """
    run = current_run()
    return run.branch if run is not None else None


def refuse_atomic_tag(tags: Mapping[str, str], asset: str) -> None:
    """Refuse a tag that asks for an atomic run of ordinary assets."""
    if _TAG in tags and current_run() is None:
        raise ConfigurationError(
            f"asset {asset}: the tag {_TAG!r} does not make a run atomic, because Dagster records each asset as "
            f"it is written; put the assets into one group with create_definitions(…, atomic=[…]), or run them with "
            f"floe run --atomic. Nothing was written"
        )


@contextmanager
def inside(run: AtomicRun) -> Iterator[None]:
    """Let the steps that run in this block belong to an atomic run."""
    token = _CURRENT.set(run)
    try:
        yield
    finally:
        _CURRENT.reset(token)
