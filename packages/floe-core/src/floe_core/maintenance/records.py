"""The record of maintenance: JSON Lines under `.floe/`, with what each step removed and why."""

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
    """The file of the record; each environment has its own."""
    name = "maintenance" if artifacts.environment is None else f"maintenance.{artifacts.environment}"
    return artifacts.root / ".floe" / f"{name}.jsonl"


class Record(BaseModel):
    """One step on one table. A step whose only line is `began` was killed."""

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
    removed: tuple[str, ...] = Field(default=(), description="the deleted files")
    report: dict[str, Any] = Field(default_factory=dict)
    error: str | None = None


class Recorder:
    """Appends the lines of one run; lines of concurrent writers are not mixed."""

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
            remaining = line.encode() if self._ends_with_newline() else b"\n" + line.encode()
            while remaining:  # one call may write only a part of a long line
                remaining = remaining[os.write(handle, remaining) :]
        finally:
            os.close(handle)

    def _ends_with_newline(self) -> bool:
        """Whether the last line is complete; a full disk or a power failure may have truncated it."""
        with self.path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            if file.tell() == 0:
                return True
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def read_records(path: Path) -> Iterator[Record]:
    """Every recorded step, oldest first: its final line, or `began` if it has no other."""
    if not path.is_file():
        return
    open_steps: dict[tuple[str, str, Step], Record] = {}
    ended: list[Record] = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = Record.model_validate(json.loads(line))
        except (ValueError, ValidationError):
            continue  # a truncated line
        if record.status == "began":
            open_steps[record.run, record.table, record.step] = record
        else:
            open_steps.pop((record.run, record.table, record.step), None)
            ended.append(record)
    yield from sorted([*ended, *open_steps.values()], key=lambda record: record.at)
