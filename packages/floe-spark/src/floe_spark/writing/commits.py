"""Compute rows in Spark and commit them to the table: once, beside the commits of other writers, or not at all.

    stage    Spark computes the rows and commits them to a branch of their own, which begins at the target's head
    publish  the control plane moves the target to that snapshot and removes the branch, if the head is still the same;
             if others committed since, but not to the same rows, it commits the staged files on top of theirs

So a Spark commit whose response was lost, or that is still in flight, can only affect the branch; and so can Iceberg's
own clean-up, which runs inside of Spark and deletes the files of a commit that it considers refused. The target
changes by one request at a time, which asserts the state that was inspected; its outcome is resolved by the write id.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, DataFrameWriterV2

from floe_core.errors import (
    CatalogConnectionError,
    CommitStateUnknownError,
    ConcurrencyConflictError,
    FloeError,
    FloeStorageError,
    TableNotFoundError,
)
from floe_core.models import CommitStrategy, SnapshotInfo, WriteMode
from floe_core.observability import Operation
from floe_iceberg import IcebergTableManager, backoff
from floe_iceberg.errors import translated
from floe_iceberg.maintenance import of_ms
from floe_iceberg.snapshots import CREATES, find_writes, refs, snapshot_info, timestamps
from floe_iceberg.writing import (
    NOTHING,
    CommitOutcome,
    Committed,
    Finder,
    Outcome,
    Replacement,
    Staged,
    StagedBranch,
    WriteRequest,
    check_table,
    commit_outcome,
    commits,
    files_since,
    state_of,
    unmarked,
)
from floe_spark.errors import is_column_mismatch, is_doubt, is_lost_process, is_lost_server, text_of, translate
from floe_spark.jvm.process import ending
from floe_spark.names import table_name
from floe_spark.writing.columns import column_changes
from floe_spark.writing.frames import OUTSIDE, Guard
from floe_spark.writing.partitioning import has_float_partitions

__all__ = ["FANOUT", "RUN_AGAIN", "Act", "Commit", "TableReplacedError"]

# Writes to a branch; to main if there is none.
Act = Callable[[str | None], object]
# Given the files that were staged, finds the files whose rows they replace.
FinderOf = Callable[[Sequence[DataFile]], Finder]

# The table property by which a task keeps a file open for each partition; Floe's defaults set it on new tables.
FANOUT = "write.spark.fanout.enabled"
# For tables that set a number of retries, which Iceberg has made already when it fails.
_ATTEMPTS_MORE = 3
_STAGED_FOR = timedelta(days=1)
RUN_AGAIN = "run it again, and a new Spark process starts"


@dataclass(frozen=True)
class Commit:
    """One write to a table, which is None if the write creates it."""

    tables: IcebergTableManager
    request: WriteRequest
    op: Operation
    table: Table | None
    guard: Guard | None = None

    def writer(self, frame: DataFrame, branch: str | None) -> DataFrameWriterV2:
        """A writer whose snapshot carries the write's summary, and that has one file open per task."""
        options = {f"snapshot-property.{key}": value for key, value in self.request.summary.items()}
        if self.table is None:
            options[f"snapshot-property.{CREATES}"] = "true"
        if self.table is not None and has_float_partitions(self.table.spec(), self.table.schema()):
            # 0.0 and -0.0 sort as equal, so sorted rows would return to a partition whose file is closed.
            options["fanout-enabled"] = "true"
        elif self.table is not None and FANOUT not in self.table.properties:
            options["fanout-enabled"] = "false"
        return frame.writeTo(self.table_name(branch)).options(**options)

    def table_name(self, branch: str | None) -> str:
        """The target as Spark SQL names it."""
        return table_name(self.tables.catalog_name, self.request.identifier, branch=branch)

    def found(self, branch: str | None = None) -> list[SnapshotInfo]:
        """The snapshots of this write on its target, or on another branch."""
        return find_writes(self._loaded(), self.request.write_id, branch=branch or self.request.branch)

    def append(self, rows: DataFrame) -> Committed:
        """Add the rows; commits of other writers do not conflict with them."""
        return self.run(lambda branch: self.writer(rows, branch).append(), finder=lambda _: NOTHING.find)

    def run(self, act: Act, *, finder: FinderOf | None = None, fresh: bool = False, attempts: int = 1) -> Committed:
        """Write until the rows are in the table, or it is certain that they will not be.

        Args:
            finder: What the write replaces: if others left that unchanged, the write is committed on top of theirs.
                Without it, any commit of others is a conflict.
            fresh: Begin at the present head, not at the one that was inspected before.
            attempts: The number of attempts; each computes the write again after such a conflict.
        """
        present, head = self.table, self._head(self.table)
        if present is None or head is None:
            self._mark()
            return self._run_on_target(act)
        for number in itertools.count(1):
            if fresh:
                present = self._loaded()
                done = find_writes(present, self.request.write_id, branch=self.request.branch)
                if done:
                    return Committed(commit_outcome.single_snapshot(done, self.request.identifier), present)
                head = self._head(present) or head
            branch = self._stage(act, present, head)
            commit = self._commit_of(branch, head, finder)
            try:
                table = self._loaded()
                check_table(self.request, table)
                merged = self._merged(table, branch)
                if merged is not None:
                    commit.staged, commit.replacement = self._files(table, branch, head, finder)
                made = commit.commit(table)
                if merged is not None:
                    self._clean(branch, head, merged)
                return Committed(made.snapshot, made.table)
            except _MovedError as exc:
                if number >= attempts:
                    raise ConcurrencyConflictError(str(exc)) from exc
            finally:
                if not commit.published:
                    self._drop(branch, head)
            self._pause(number)
        raise AssertionError("the loop returns or raises")

    def _commit_of(self, branch: str, head: Snapshot, finder: FinderOf | None) -> commits.Commit:
        """The commit that publishes a staged branch."""
        table = self.table
        if table is None:
            raise AssertionError("a branch has a table")
        staged = StagedBranch(branch, head, table.metadata, lambda now: self._files(now, branch, head, finder))
        return commits.Commit(self.tables, self.request, None, self.request.summary, self.op, branch=staged)

    def _run_on_target(self, act: Act) -> Committed:
        """Create the table, or write to one that has no snapshot yet, which a staging branch would begin at."""
        target = None if self.request.branch == MAIN_BRANCH else self.request.branch
        for number in itertools.count(1):
            failure = _failure_of(act, target)
            if failure is None:
                return self._committed()
            ended = ending(failure)
            resolved = self._resolved(failure)
            if resolved.snapshot is not None:
                return Committed(resolved.snapshot, resolved.seen)
            if ended is not None:
                raise self._undecided(ended) from failure
            if is_doubt(failure):
                # Creating asserts that there is no table: it may be retried.
                if self.table is not None or number > backoff.DOUBTFUL_ATTEMPTS:
                    raise self._undecided(f"the {_unresponsive(failure)} did not answer.") from failure
            else:
                error = self._explained(failure)
                if error is None:
                    raise failure
                if not _lost_race(error) or number >= self._attempts(1):
                    raise _caused(error, failure)
            self._pause(number)
        raise AssertionError("the loop returns or raises")

    def _mark(self) -> None:
        """Set the marks of a write to a table without a snapshot, whose rows are not published by the control plane."""
        if self.table is None or not unmarked(self.request, self.table):
            return
        for attempt in backoff.retrying(backoff.ATTEMPTS, _is_transient):
            with attempt, translated("mark", self.request.identifier):
                table = self._loaded()
                check_table(self.request, table)
                with table.transaction() as transaction:
                    transaction.set_properties(unmarked(self.request, table))
        check_table(self.request, self._loaded())  # another writer may have set its own marks since

    def _stage(self, act: Act, present: Table, head: Snapshot) -> str:
        """Let Spark write to a new branch at this snapshot, with a name that is unique to this write."""
        for number in itertools.count(1):
            name = self._new_branch(present if number == 1 else self._loaded(), head)
            try:
                failure = _failure_of(act, name)
                ended = None if failure is None else ending(failure)
                lost = failure is not None and (ended is not None or is_doubt(failure))
                if failure is None or (lost and self._is_staged(name)):
                    return name
            except BaseException:
                self._drop(name, head)
                raise
            # Nothing of this attempt can reach the target: it is discarded, however far it got.
            self._drop(name, head)
            if ended is not None or is_doubt(failure):
                if ended is not None or number >= backoff.DOUBTFUL_ATTEMPTS:
                    raise self._unanswered(failure, ended) from failure
            else:
                error = self._explained(failure)
                if error is None:
                    raise failure
                # A server that is starting may report tables as missing: check with PyIceberg too.
                mistaken = (
                    isinstance(error, TableNotFoundError) and number < backoff.DOUBTFUL_ATTEMPTS and self._exists()
                )
                if not mistaken and (not _lost_race(error) or number >= self._attempts(_ATTEMPTS_MORE)):
                    raise _caused(error, failure)
            self._pause(number)
        raise AssertionError("the loop returns or raises")

    def _unanswered(self, failure: Exception, ended: str | None) -> FloeStorageError:
        """The error for a staged write that got no answer; nothing of it can reach the target."""
        name = self.request.identifier
        if ended is not None:
            return FloeStorageError(f"{ended} Nothing was committed to '{name}': {RUN_AGAIN}")
        return CatalogConnectionError(
            f"the {_unresponsive(failure)} did not answer while '{name}' was being written; nothing was written: run "
            f"it again"
        )

    def _new_branch(self, present: Table, head: Snapshot) -> str:
        for attempt in backoff.retrying(backoff.ATTEMPTS, _is_transient):
            with attempt:
                # A new name per attempt: a branch whose response was lost may still be created, and expires by itself.
                name, identifier = refs.staging_branch(time.time()), self.request.identifier
                if attempt.retry_state.attempt_number > 1:
                    present = self._loaded()
                self._await_clock(present, head)
                with translated("stage", identifier):
                    refs.create_ref(
                        present,
                        identifier,
                        name,
                        SnapshotRefType.BRANCH,
                        snapshot_id=head.snapshot_id,
                        # Iceberg counts a branch's age from the time of its snapshot, which may be long ago.
                        max_age=self._staged_for()
                        + timedelta(seconds=max(0.0, time.time() - head.timestamp_ms / 1000)),
                    )
        return name

    def _await_clock(self, table: Table, head: Snapshot) -> None:
        """Java stamps its snapshot with its own clock and refuses one more than a minute before the last."""
        last = max(head.timestamp_ms, *(entry.timestamp_ms for entry in table.metadata.snapshot_log[-1:]), 0)
        ahead = last - timestamps.now_ms()
        if ahead > timestamps.GRACE_MS:
            raise FloeStorageError(
                f"the last snapshot of '{self.request.identifier}' is stamped {of_ms(last):%Y-%m-%d %H:%M:%S} UTC, in "
                f"the future of this clock, and Spark cannot add one before then; nothing was written. Set the clock "
                f"(NTP), write Arrow data, whose snapshot is stamped after it, or copy the rows into a new table"
            )
        if ahead >= 0:
            time.sleep((ahead + 1) / 1000)

    def _staged_for(self) -> timedelta:
        """How long an abandoned staging branch is kept: longer than a write may take."""
        artifacts = self.tables.artifacts
        return max(_STAGED_FOR, artifacts.maintenance.longest_job) if artifacts is not None else _STAGED_FOR

    def _exists(self) -> bool:
        with suppress(FloeError):
            self._loaded()
            return True
        return False

    def _is_staged(self, branch: str) -> bool:
        with suppress(FloeError):
            return bool(self.found(branch))
        return False

    def _merged(self, table: Table, branch: str) -> Snapshot | None:
        """The staged snapshot of a fast append, if Spark merged manifests nevertheless."""
        is_fast = self.request.mode is WriteMode.APPEND and self.request.commit_strategy is CommitStrategy.FAST_APPEND
        staged = table.snapshot_by_name(branch) if is_fast else None
        return staged if staged is not None and snapshot_info(staged).count("manifests-replaced") else None

    def _clean(self, branch: str, head: Snapshot, merged: Snapshot) -> None:
        """Remove the manifests that Spark merged, once nothing refers to them."""
        self._drop(branch, head)
        with suppress(Exception):  # the rows are committed: files that stay are orphans, which maintenance removes
            table = self._loaded()
            if table.snapshot_by_id(merged.snapshot_id) is None:
                commits.clean([merged], table.io)

    def _files(self, table: Table, branch: str, head: Snapshot, finder: FinderOf | None) -> tuple[Staged, Replacement]:
        """The staged files, and what they replace, if commits of other writers left that unchanged."""
        made = files_since(table, head, branch)
        if finder is None or made is None:
            raise _MovedError(
                f"another writer changed '{self.request.identifier}' during this write; nothing was written: run it "
                f"again"
            )
        find = finder(made.added)
        replacement = Replacement(find, state_of(find(table, head.snapshot_id)), made.removed)
        return Staged(table.metadata, made.added, table.io), replacement

    def _drop(self, branch: str, head: Snapshot) -> None:
        """Remove a branch, if it exists, and the files that only it references; if that fails, it expires by itself."""
        with suppress(Exception):  # the write's own outcome is the one to report
            for attempt in backoff.retrying(backoff.DOUBTFUL_ATTEMPTS, _is_transient):
                with attempt, translated("unstage", self.request.identifier):
                    refs.discard(self._loaded(), branch, since=head.snapshot_id)

    def _loaded(self) -> Table:
        table = self._same(self.tables.find_table(self.request.identifier))
        if table is None:
            raise TableNotFoundError(
                f"Table '{self.request.identifier}' was dropped during this write; nothing was written"
            )
        return table

    def _same(self, now: Table | None) -> Table | None:
        """The given table; raises if it is another table of the same name."""
        if self.table is not None and now is not None and now.metadata.table_uuid != self.table.metadata.table_uuid:
            raise TableReplacedError(
                f"'{self.request.identifier}' was dropped and created again during this write; nothing was written: "
                f"run it again"
            )
        return now

    def _head(self, table: Table | None) -> Snapshot | None:
        return table.snapshot_by_name(self.request.branch) if table is not None else None

    def _resolved(self, cause: Exception | None) -> CommitOutcome:
        request = self.request
        resolved = commit_outcome.resolve_outcome(
            lambda: self.tables.find_table(request.identifier),
            request.identifier,
            request.write_id,
            branch=request.branch,
        )
        if resolved.outcome is Outcome.UNKNOWN:
            raise commit_outcome.unknown(request, self.tables) from cause
        return resolved

    def _explained(self, exc: Exception) -> FloeError | None:
        if isinstance(exc, FloeError):
            return exc
        if self.guard is not None and OUTSIDE in text_of(exc):
            refusal = self.guard.refusal()
            if refusal is not None:  # an error that shows the plan contains this text as well
                return refusal
        error = translate(exc, f"spark.{self.request.mode.value}", self.request.identifier)
        mismatch = is_column_mismatch(exc)
        if error is None and not mismatch:
            return None
        now = self._same(self.tables.find_table(self.request.identifier))
        return (self._column_conflict(now) if mismatch else None) or error

    def _column_conflict(self, now: Table | None) -> ConcurrencyConflictError | None:
        """A conflict if the table no longer has the columns that the write was fitted to."""
        changes = (
            column_changes(self.table.schema(), now.schema()) if self.table is not None and now is not None else ""
        )
        if not changes:
            return None
        return ConcurrencyConflictError(
            f"the columns of '{self.request.identifier}' were changed while this write was prepared ({changes}); "
            f"nothing was written: run it again"
        )

    def _undecided(self, reason: str = "the catalog did not answer.") -> CommitStateUnknownError:
        return commit_outcome.undecided(self.request, self.tables, reason=reason)

    def _committed(self) -> Committed:
        table = self._loaded()
        found = find_writes(table, self.request.write_id, branch=self.request.branch)
        if not found:
            raise CommitStateUnknownError(
                f"Spark reported success, but the snapshot of write {self.request.write_id} is not in "
                f"'{self.request.identifier}'. "
                f"{commit_outcome.advice(self.request, self.tables)}"
            )
        return Committed(commit_outcome.single_snapshot(found, self.request.identifier), table)

    def _attempts(self, otherwise: int) -> int:
        """More attempts if the table sets no number of retries: then Iceberg itself retries only a few times."""
        is_set = self.table is not None and "commit.retry.num-retries" in self.table.properties
        return otherwise if is_set or self.table is None else backoff.ATTEMPTS

    def _pause(self, number: int) -> None:
        self.op.event("retrying")
        time.sleep(backoff.delay(number))


def _unresponsive(failure: Exception) -> str:
    """The component that did not answer."""
    if is_lost_process(failure):
        return "Spark process"
    return "Spark Connect server" if is_lost_server(failure) else "catalog"


class TableReplacedError(ConcurrencyConflictError):
    """The name belongs to another table now: a retry cannot succeed."""


class _MovedError(ConcurrencyConflictError):
    """The head of the target is no longer the one that was inspected."""


def _failure_of(act: Act, branch: str | None) -> Exception | None:
    """Send the write once; None if the catalog acknowledged it."""
    try:
        _send(act, branch)
    except Exception as exc:  # noqa: BLE001 - its meaning is resolved by the state of the table
        text_of(exc)  # caches the text while the JVM can still be reached
        return exc
    return None


def _send(act: Act, branch: str | None) -> None:
    """The only place that sends Spark's commits; tests drop their responses here."""
    act(branch)


def _caused(error: FloeError, failure: Exception) -> FloeError:
    """The error with its cause; an error that was Floe's already must not become its own cause."""
    if error is not failure:
        error.__cause__ = failure
    return error


def _is_transient(exc: BaseException) -> bool:
    transient = ConcurrencyConflictError | CatalogConnectionError | CommitStateUnknownError
    return isinstance(exc, transient) and not isinstance(exc, TableReplacedError)


def _lost_race(error: FloeError | None) -> bool:
    detail = error.detail if isinstance(error, FloeStorageError) else None
    return detail is not None and detail.error_type == "CommitFailedException"
