"""The record of maintenance: one JSON object a line under `.floe/`, for each step what it removed and why."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.maintenance.reports import Report, Step
from floe_core.security.private_files import make_folder
from floe_core.security.redaction import redact

__all__ = ["Record", "Recorder", "read_records", "records_path"]


def records_path(artifacts: CompiledArtifacts) -> Path:
    """Each environment has a record of its own."""
    name = "maintenance" if artifacts.environment is None else f"maintenance.{artifacts.environment}"
    return artifacts.root / ".floe" / f"{name}.jsonl"


class Record(BaseModel):
    """One step on one table. A step that began and has no other line was killed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    at: datetime
    run: str
    table: str
    step: Step
    status: Literal["began", "done", "failed", "interrupted"]
    reason: str = ""
    policy: dict[str, Any] = Field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    removed: tuple[str, ...] = Field(default=(), description="the files that are gone")
    report: dict[str, Any] = Field(default_factory=dict)
    error: str | None = None


class Recorder:
    """Writes the lines of one run; each is whole or absent, whoever else writes at the same time."""

    def __init__(self, path: Path, run: str | None = None) -> None:
        self.path = path
        self.run = run or uuid.uuid4().hex[:12]

    def write(
        self,
        table: str,
        step: Step,
        status: Literal["began", "done", "failed", "interrupted"],
        *,
        reason: str,
        policy: dict[str, Any],
        report: Report | None = None,
        error: str | None = None,
    ) -> None:
        record = Record(
            at=datetime.now(timezone.utc),
            run=self.run,
            table=table,
            step=step,
            status=status,
            reason=reason,
            policy=policy,
            files=len(report.files_removed) if report else 0,
            bytes=report.bytes_freed if report else 0,
            removed=report.files_removed if report else (),
            report=report.model_dump(mode="json", exclude={"files_removed"}) if report else {},
            error=redact(error) if error else None,
        )
        line = record.model_dump_json(exclude_defaults=True) + "\n"
        make_folder(self.path.parent)
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            left = line.encode() if self._ends_whole() else b"\n" + line.encode()
            while left:  # a line with many files may be more than is taken at once
                left = left[os.write(handle, left) :]
        finally:
            os.close(handle)

    def _ends_whole(self) -> bool:
        """Does the last line have its end? A disk that was full, or a machine that lost its power, cut it off."""
        with self.path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            if file.tell() == 0:
                return True
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def read_records(path: Path) -> Iterator[Record]:
    """Every step that was recorded, oldest first: as it ended, or as begun if it never did."""
    if not path.is_file():
        return
    open_steps: dict[tuple[str, str, Step], Record] = {}
    found: list[Record] = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            one = Record.model_validate(json.loads(line))
        except (ValueError, ValidationError):
            continue  # half a line of a machine that lost its power
        if one.status == "began":
            open_steps[one.run, one.table, one.step] = one
        else:
            open_steps.pop((one.run, one.table, one.step), None)
            found.append(one)
    yield from sorted([*found, *open_steps.values()], key=lambda one: one.at)
