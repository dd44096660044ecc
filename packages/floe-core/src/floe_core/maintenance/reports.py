"""The steps of maintenance, and the report of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from enum import Enum
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from floe_core.config.policy import CompactionStrategy
from floe_core.errors import FloeStorageError
from floe_core.formatting import counted

__all__ = [
    "CompactReport",
    "ExpireReport",
    "KeptFile",
    "ManifestsReport",
    "MismatchError",
    "OrphansReport",
    "Report",
    "StatisticsReport",
    "Step",
]


class Step(str, Enum):
    """The steps of maintenance, in the order in which they are safe."""

    COMPACT = "compact"
    MANIFESTS = "manifests"
    STATISTICS = "statistics"
    EXPIRE = "expire"
    ORPHANS = "orphans"


class KeptFile(BaseModel):
    """A file that is not deleted, because it is not certain that it is the table's own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Report(BaseModel, ABC):
    """What a step did to one table, verified against the table and its files afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: ClassVar[Step]

    table: str
    seconds: float = 0.0
    files_removed: tuple[str, ...] = Field(default=(), description="locations of the deleted files")
    bytes_freed: int = 0
    not_removed: tuple[KeptFile, ...] = Field(default=(), description="files that were kept, and why")

    @abstractmethod
    def summary(self) -> str:
        """A summary in one line."""


class MismatchError(FloeStorageError):
    """The result of a step contradicts the table and its files; `report` holds what those show."""

    def __init__(self, message: str, report: Report | None = None) -> None:
        super().__init__(message)
        self.report = report


class ExpireReport(Report):
    step: ClassVar[Step] = Step.EXPIRE

    older_than: datetime
    keep_last: int
    snapshots: tuple[int, ...] = Field(default=(), description="the expired snapshots")
    refs: tuple[str, ...] = Field(default=(), description="removed tags and branches, past their maximum age")
    data_files: int = 0
    delete_files: int = 0
    manifests: int = 0
    manifest_lists: int = 0
    statistics_files: int = 0

    def summary(self) -> str:
        aged = f", {counted(len(self.refs), 'ref')} aged out" if self.refs else ""
        gone = f"{counted(len(self.snapshots), 'snapshot')} and {counted(len(self.files_removed), 'file')} gone{aged}"
        return f"{gone}{_left(self)}"


class CompactReport(Report):
    step: ClassVar[Step] = Step.COMPACT

    strategy: CompactionStrategy
    snapshot_id: int | None = Field(default=None, description="None if there was nothing to do")
    files_rewritten: int = 0
    files_added: int = 0
    bytes_rewritten: int = 0
    bytes_added: int = 0
    delete_files_folded: int = 0
    rows: int = Field(default=0, description="in the rewritten files")

    def summary(self) -> str:
        folded = f", {self.delete_files_folded} delete files folded in" if self.delete_files_folded else ""
        return f"{self.files_rewritten} files into {self.files_added}, {self.rows:,} rows{folded}"


class ManifestsReport(Report):
    step: ClassVar[Step] = Step.MANIFESTS

    snapshot_id: int | None = None
    rewritten: int = 0
    added: int = 0

    def summary(self) -> str:
        return f"{self.rewritten} manifests into {self.added}"


class OrphansReport(Report):
    step: ClassVar[Step] = Step.ORPHANS

    older_than: datetime
    dry_run: bool
    found: tuple[str, ...] = ()

    def summary(self) -> str:
        done = f"{len(self.found)} found" if self.dry_run else f"{counted(len(self.files_removed), 'file')} removed"
        return f"{done}{_left(self)}"


class StatisticsReport(Report):
    step: ClassVar[Step] = Step.STATISTICS

    snapshot_id: int | None = None
    path: str | None = None

    def summary(self) -> str:
        return f"of snapshot {self.snapshot_id}" if self.path else "nothing to count"


def _left(report: Report) -> str:
    return f", {counted(len(report.not_removed), 'file')} not removed" if report.not_removed else ""
