"""Send a write to Spark, and find out what became of it: committed once, refused, or in doubt.

    act -> committed? -> done
        -> refused    -> Floe's error for it; an append that only met other commits is sent again
        -> in doubt   -> look the write id up: there, done; not there, repeat it on a branch that begins at the head
                         just looked at, and publish that only if the head is still the same

A repetition on main could land beside a first commit that is still on its way: Spark rebases appends.
"""

from __future__ import annotations

import itertools
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, DataFrameWriterV2

from floe_core.errors import CommitStateUnknownError, ConcurrencyConflictError, FloeError, FloeStorageError
from floe_core.models import SnapshotInfo
from floe_core.telemetry import Operation
from floe_iceberg import doubt
from floe_iceberg.doubt import Outcome, Verdict
from floe_iceberg.errors import translated
from floe_iceberg.refs import publish
from floe_iceberg.snapshots import find_writes
from floe_iceberg.write_request import WriteRequest
from floe_spark.errors import is_doubt, translate
from floe_spark.frames import OUTSIDE, Guard
from floe_spark.names import table_name

__all__ = ["Act", "Commit"]

# Writes to a branch; to main if there is none.
Act = Callable[[str | None], object]

# Attempts of an append on tables that do not say it themselves, and of writes in doubt.
_ATTEMPTS = 20
_DOUBTFUL_ATTEMPTS = 5
_LONGEST_WAIT_SECONDS = 3.0


@dataclass(frozen=True)
class Commit:
    """A write on its way into a table, which is None if the write creates it."""

    request: WriteRequest
    op: Operation
    table: Table | None
    guard: Guard | None = None

    @property
    def branch(self) -> str | None:
        """The branch to write to, as Spark names it: main has no name."""
        return None if self.request.branch == MAIN_BRANCH else self.request.branch

    def writer(self, frame: DataFrame, branch: str | None) -> DataFrameWriterV2:
        """A writer whose snapshot carries the write's summary."""
        options = {f"snapshot-property.{key}": value for key, value in self.request.summary.items()}
        return frame.writeTo(table_name(self.request.identifier, branch=branch)).options(**options)

    def run(self, act: Act, *, appends_to: Table | None = None, staged_at: Snapshot | None = None) -> SnapshotInfo:
        """Send the write until it is in the table, or it is certain that it will not be.

        Args:
            appends_to: On conflicts, a write that only adds rows is computed and sent again.
            staged_at: Write to a branch that begins here, and publish it if the target is still at the same place.
        """
        head, doubtful = staged_at, 0
        for number in itertools.count(1):
            failure = self._failure_of(act, head)
            if failure is None:
                return self._committed()
            verdict = self._settled(failure)
            if verdict.snapshot is not None:
                return verdict.snapshot
            if is_doubt(failure) or (doubtful and isinstance(failure, _MovedError)):
                doubtful += 1
                head = self._pin(verdict.table, failure, last=doubtful > _DOUBTFUL_ATTEMPTS)
            else:
                error = self._replaced(verdict.table) or self._explained(failure)
                if error is None:
                    raise failure
                if number >= _attempts(appends_to) or not _met_commits(error):
                    raise error from failure
            self.op.event("retrying")
            time.sleep(random.uniform(0, min(_LONGEST_WAIT_SECONDS, 0.05 * 2**number)))  # noqa: S311 - jitter
        raise AssertionError("the loop ends by itself")

    def _failure_of(self, act: Act, head: Snapshot | None) -> Exception | None:
        """Send it, once; None means that the catalog acknowledged it."""
        try:
            if head is None:
                _send(act, self.branch)
            else:
                with self._staged(head) as branch:
                    _send(act, branch)
                    self._publish(branch, head)
        except Exception as exc:  # noqa: BLE001 - what it means is decided by looking
            return exc
        return None

    def _pin(self, table: Table | None, cause: Exception, *, last: bool) -> Snapshot | None:
        """Where a repetition begins; None if it creates the table, which fails if that is there by now."""
        replaced = self._replaced(table)
        if replaced is not None:
            raise replaced from cause
        head = table.snapshot_by_name(self.request.branch) if table is not None else None
        # A table without a snapshot has nothing to pin a branch to.
        if last or (table is not None and head is None):
            raise CommitStateUnknownError(
                f"the catalog did not say whether write {self.request.write_id} to '{self.request.identifier}' is "
                f"committed, and it is not there now; it may still arrive. Nothing was deleted: run the same write "
                f"again, if it is there by then it is found by its id and not repeated"
            ) from cause
        return head

    @contextmanager
    def _staged(self, head: Snapshot) -> Iterator[str]:
        name, manager, identifier = f"floe_{uuid.uuid4().hex[:12]}", self.request.manager, self.request.identifier
        manager.create_branch(identifier, name, snapshot_id=head.snapshot_id, max_ref_age=timedelta(days=1))
        try:
            yield name
        except BaseException:
            with suppress(Exception):  # the branch ages out by itself; the first error is the one to tell
                manager.remove_branch(identifier, name)
            raise

    def _publish(self, branch: str, head: Snapshot) -> None:
        """Move the target from the head that was looked at to the branch's, and end the branch, in one commit."""
        identifier = self.request.identifier
        table = self.request.manager.load_table(identifier)
        try:
            with translated("publish", identifier):
                publish(table, branch, to=self.request.branch, expected=head.snapshot_id)
        except ConcurrencyConflictError as exc:
            raise _MovedError(
                f"somebody else changed '{identifier}' meanwhile; nothing was written: run it again", detail=exc.detail
            ) from exc

    def _settled(self, cause: Exception) -> Verdict:
        request = self.request
        verdict = doubt.settle(
            lambda: request.manager.find_table(request.identifier),
            request.identifier,
            request.write_id,
            branch=request.branch,
        )
        if verdict.outcome is Outcome.UNKNOWN:
            raise doubt.unknown(request.identifier, request.write_id) from cause
        return verdict

    def _replaced(self, now: Table | None) -> ConcurrencyConflictError | None:
        """What to say if the table is another one by now; it has its name, but none of its snapshots."""
        if self.table is None or now is None or now.metadata.table_uuid == self.table.metadata.table_uuid:
            return None
        return ConcurrencyConflictError(
            f"'{self.request.identifier}' was dropped and created anew by somebody else meanwhile; nothing was "
            f"written: run it again"
        )

    def _explained(self, exc: Exception) -> FloeError | None:
        if isinstance(exc, _MovedError):
            return ConcurrencyConflictError(str(exc), detail=exc.detail)
        if isinstance(exc, FloeError):
            return exc
        if self.guard is not None and OUTSIDE in str(exc):
            return self.guard.refusal()
        return translate(exc, f"spark.{self.request.mode.value}", self.request.identifier)

    def _committed(self) -> SnapshotInfo:
        found = self.found()
        if not found:
            raise CommitStateUnknownError(
                f"Spark reported success, but the snapshot of write {self.request.write_id} is not in "
                f"'{self.request.identifier}'; inspect the table before trying again"
            )
        return doubt.only_one(found, self.request.identifier)

    def found(self, branch: str | None = None) -> list[SnapshotInfo]:
        """The snapshots of this write on its branch, or on another one."""
        table = self.request.manager.load_table(self.request.identifier)
        return find_writes(table, self.request.write_id, branch=branch or self.request.branch)


class _MovedError(ConcurrencyConflictError):
    """The target is not where it was when it was looked at."""


def _send(act: Act, branch: str | None) -> None:
    """The one place where commits leave; tests lose their answers here."""
    act(branch)


def _attempts(table: Table | None) -> int:
    """Iceberg repeats commits by itself where a table says how often; elsewhere it gives up after a few."""
    return _ATTEMPTS if table is not None and "commit.retry.num-retries" not in table.properties else 1


def _met_commits(error: FloeError | None) -> bool:
    detail = error.detail if isinstance(error, FloeStorageError) else None
    return detail is not None and detail.error_type == "CommitFailedException"
