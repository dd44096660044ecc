"""Let Spark make the rows, and put them into the table: once, beside what others committed, or not at all.

    stage    Spark computes the rows and commits them to a branch of their own, which begins at the target's head
    publish  the control plane moves the target to that snapshot and ends the branch, if the head is still the same;
             if others committed meanwhile, but not to the same rows, it commits the staged files on top of theirs

So a commit of Spark whose answer was lost, or that is still on its way, can only meet the branch; and so can Iceberg's
own clean-up, which runs inside of Spark and deletes the files of a commit that it takes for refused. What becomes of
the target is decided by one request at a time that asserts what was looked at, and by the write id.
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
from floe_core.telemetry import Operation
from floe_iceberg import commits, doubt, patience, refs, timestamps
from floe_iceberg.doubt import Outcome, Verdict
from floe_iceberg.errors import translated
from floe_iceberg.replacing import NOTHING, Finder, Replacement, state_of
from floe_iceberg.retention import of_ms
from floe_iceberg.snapshots import find_writes, snapshot_info
from floe_iceberg.staging import Staged, files_since
from floe_iceberg.write_request import WriteRequest, check_table, unmarked
from floe_spark.columns import column_changes
from floe_spark.errors import is_column_mismatch, is_doubt, is_lost_process, is_lost_server, text_of, translate
from floe_spark.frames import OUTSIDE, Guard
from floe_spark.life import ending
from floe_spark.names import table_name
from floe_spark.partitioning import has_float_partitions

__all__ = ["FANOUT", "RUN_AGAIN", "Act", "Commit", "TableReplacedError"]

# Writes to a branch; to main if there is none.
Act = Callable[[str | None], object]
# Given the files that were staged, finds the files whose rows they replace.
FinderOf = Callable[[Sequence[DataFile]], Finder]

# A table's own word on whether a task keeps a file open for each partition; new tables have it from Floe's defaults.
FANOUT = "write.spark.fanout.enabled"
# On tables that say how often to try, Iceberg has done so before it gives up.
_ATTEMPTS_MORE = 3
_STAGED_FOR = timedelta(days=1)
RUN_AGAIN = "run it again, and a new Spark process starts"


@dataclass(frozen=True)
class Commit:
    """A write on its way into a table, which is None if the write creates it."""

    request: WriteRequest
    op: Operation
    table: Table | None
    guard: Guard | None = None

    def writer(self, frame: DataFrame, branch: str | None) -> DataFrameWriterV2:
        """A writer whose snapshot carries the write's summary, and that has one file open per task."""
        options = {f"snapshot-property.{key}": value for key, value in self.request.summary.items()}
        if self.table is not None and has_float_partitions(self.table.spec(), self.table.schema()):
            options["fanout-enabled"] = "true"  # sorted rows would come back to the partition of the other zero
        elif self.table is not None and FANOUT not in self.table.properties:
            options["fanout-enabled"] = "false"
        return frame.writeTo(self.table_name(branch)).options(**options)

    def table_name(self, branch: str | None) -> str:
        """The target as Spark SQL names it."""
        return table_name(self.request.manager.catalog_name, self.request.identifier, branch=branch)

    def found(self, branch: str | None = None) -> list[SnapshotInfo]:
        """The snapshots of this write on its target, or on another branch."""
        return find_writes(self._loaded(), self.request.write_id, branch=branch or self.request.branch)

    def append(self, rows: DataFrame) -> SnapshotInfo:
        """Add the rows; nothing that others commit is in their way."""
        return self.run(lambda branch: self.writer(rows, branch).append(), finder=lambda _: NOTHING.find, fresh=True)

    def run(self, act: Act, *, finder: FinderOf | None = None, fresh: bool = False, attempts: int = 1) -> SnapshotInfo:
        """Write until it is in the table, or it is certain that it will not be.

        Args:
            finder: What the write replaces: if others left that alone, it is put on top of what they committed.
                Without it, anything that others commit is a conflict.
            fresh: Begin at the head as it is now, and not as it was when the write looked.
            attempts: How often to compute the write anew after such a conflict.
        """
        head = self._head(self.table)
        if head is None:
            self._mark()
            return self._run_on_target(act)
        for number in itertools.count(1):
            if fresh:
                present = self._loaded()
                done = find_writes(present, self.request.write_id, branch=self.request.branch)
                if done:
                    return doubt.only_one(done, self.request.identifier)
                head = self._head(present) or head
            staged = self._stage(act, head)
            try:
                unmerged = self._unmerged(staged, head, finder)
                return unmerged or self._published(staged, head) or self._put_on_top(staged, head, finder)
            except _MovedError as exc:
                if number >= attempts:
                    raise ConcurrencyConflictError(str(exc)) from exc
            finally:
                self._drop(staged)
            self._pause(number)
        raise AssertionError("the loop ends by itself")

    def _run_on_target(self, act: Act) -> SnapshotInfo:
        """Create the table, or write to one that has no snapshot yet: there is nothing that a branch could begin at."""
        target = None if self.request.branch == MAIN_BRANCH else self.request.branch
        for number in itertools.count(1):
            failure = _failure_of(act, target)
            if failure is None:
                return self._committed()
            ended = ending(failure)
            verdict = self._settled(failure)
            if verdict.snapshot is not None:
                return verdict.snapshot
            if ended is not None:
                raise self._in_doubt(ended) from failure
            if is_doubt(failure):
                # To create is to assert that there is no table: it may be repeated.
                if self.table is not None or number > patience.DOUBTFUL_ATTEMPTS:
                    raise self._in_doubt(f"the {_silent(failure)} did not answer.") from failure
            else:
                error = self._explained(failure)
                if error is None:
                    raise failure
                if not _met_commits(error) or number >= self._attempts(1):
                    raise _caused(error, failure)
            self._pause(number)
        raise AssertionError("the loop ends by itself")

    def _mark(self) -> None:
        """Set the marks of a write to a table without a snapshot, whose rows are not published by the control plane."""
        if self.table is None or not unmarked(self.request, self.table):
            return
        for attempt in patience.trying(patience.ATTEMPTS, _may_pass):
            with attempt, translated("mark", self.request.identifier):
                table = self._loaded()
                check_table(self.request, table)
                with table.transaction() as transaction:
                    transaction.set_properties(unmarked(self.request, table))
        check_table(self.request, self._loaded())  # another writer may have set its own marks since

    def _stage(self, act: Act, head: Snapshot) -> str:
        """Let Spark write to a new branch at this snapshot; only it and the write know its name."""
        for number in itertools.count(1):
            name = self._new_branch(head)
            try:
                failure = _failure_of(act, name)
                ended = None if failure is None else ending(failure)
                lost = failure is not None and (ended is not None or is_doubt(failure))
                if failure is None or (lost and self._arrived(name)):
                    return name
            except BaseException:
                self._drop(name)
                raise
            # Nothing of this attempt can reach the target: it is thrown away, wherever it got to.
            self._drop(name)
            if ended is not None or is_doubt(failure):
                if ended is not None or number >= patience.DOUBTFUL_ATTEMPTS:
                    raise self._unanswered(failure, ended) from failure
            else:
                error = self._explained(failure)
                if error is None:
                    raise failure
                # A server that is starting may know no table for a moment: the control plane is asked, too.
                mistaken = (
                    isinstance(error, TableNotFoundError) and number < patience.DOUBTFUL_ATTEMPTS and self._is_there()
                )
                if not mistaken and (not _met_commits(error) or number >= self._attempts(_ATTEMPTS_MORE)):
                    raise _caused(error, failure)
            self._pause(number)
        raise AssertionError("the loop ends by itself")

    def _unanswered(self, failure: Exception, ended: str | None) -> FloeStorageError:
        """The error for a staged write that got no answer; nothing of it can reach the target."""
        name = self.request.identifier
        if ended is not None:
            return FloeStorageError(f"{ended} Nothing was committed to '{name}': {RUN_AGAIN}")
        return CatalogConnectionError(
            f"the {_silent(failure)} did not answer while '{name}' was being written; nothing was written: run it again"
        )

    def _new_branch(self, head: Snapshot) -> str:
        for attempt in patience.trying(patience.ATTEMPTS, _may_pass):
            with attempt:
                # A new name each time: one whose answer was lost may still come to be, and ages out by itself.
                name, identifier = refs.staging_branch(time.time()), self.request.identifier
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
        last = max(head.timestamp_ms, *(one.timestamp_ms for one in table.metadata.snapshot_log[-1:]), 0)
        ahead = last - timestamps.now_ms()
        if ahead > timestamps.GRACE_MS:
            raise FloeStorageError(
                f"the last snapshot of '{self.request.identifier}' is stamped {of_ms(last):%Y-%m-%d %H:%M:%S} UTC, in "
                f"the future of this clock, and Spark can add none before then; nothing was written. Set the clock "
                f"(NTP), write Arrow data, whose snapshot is stamped after it, or copy the rows into a new table"
            )
        if ahead >= 0:
            time.sleep((ahead + 1) / 1000)

    def _staged_for(self) -> timedelta:
        """How long a branch that its write left behind stays: longer than a write may take."""
        artifacts = self.request.manager.artifacts
        return max(_STAGED_FOR, artifacts.maintenance.longest_job) if artifacts is not None else _STAGED_FOR

    def _is_there(self) -> bool:
        with suppress(FloeError):
            self._loaded()
            return True
        return False

    def _arrived(self, branch: str) -> bool:
        with suppress(FloeError):
            return bool(self.found(branch))
        return False

    def _published(self, branch: str, head: Snapshot) -> SnapshotInfo | None:
        """Move the target to what was staged; None if it is not at the head any more."""
        for number in itertools.count(1):
            table = self._loaded()
            self._refuse_other_layout(table)
            check_table(self.request, table)
            staged = table.snapshot_by_name(branch)
            failure = self._failure_of_publishing(table, branch, head) if staged is not None else _gone(branch)
            if failure is None and staged is not None:
                return snapshot_info(staged)
            verdict = self._settled(failure)
            if verdict.snapshot is not None:
                return verdict.snapshot
            now = self._head(self._same(verdict.table))
            if now is None or now.snapshot_id != head.snapshot_id:
                return None
            conflict = isinstance(failure, ConcurrencyConflictError)
            if failure is not None and not conflict and not is_doubt(failure):
                raise failure
            if number >= (patience.ATTEMPTS if conflict else patience.DOUBTFUL_ATTEMPTS):
                raise self._in_doubt() from failure
            self._pause(number)
        raise AssertionError("the loop ends by itself")

    def _failure_of_publishing(self, table: Table, branch: str, head: Snapshot) -> Exception | None:
        try:
            with translated("publish", self.request.identifier):
                refs.publish(
                    table,
                    branch,
                    to=self.request.branch,
                    expected=head.snapshot_id,
                    properties=unmarked(self.request, table),
                )
        except Exception as exc:  # noqa: BLE001 - what it means is decided by looking
            return exc
        return None

    def _unmerged(self, branch: str, head: Snapshot, finder: FinderOf | None) -> SnapshotInfo | None:
        """Commit the files of an append without the manifests that Spark merged; None if it merged none."""
        asked = self.request.mode is WriteMode.APPEND and self.request.commit_strategy is CommitStrategy.FAST_APPEND
        table = self._loaded() if asked else None
        staged = table.snapshot_by_name(branch) if table is not None else None
        if table is None or staged is None or snapshot_info(staged).count("manifests-replaced") == 0:
            return None
        made = self._put_on_top(branch, head, finder)
        self._drop(branch)
        with suppress(Exception):  # the rows are committed: what cannot be cleaned up is an orphan, for maintenance
            if self._loaded().snapshot_by_id(staged.snapshot_id) is None:  # nothing leads to its manifests any more
                commits.clean([staged], table.io)
        return made

    def _put_on_top(self, branch: str, head: Snapshot, finder: FinderOf | None) -> SnapshotInfo:
        """Commit the staged files after the commits of others, if those left alone what is replaced."""
        table = self._loaded()
        check_table(self.request, table)
        made = files_since(table, head, branch)
        if finder is None or made is None:
            raise _MovedError(
                f"somebody else changed '{self.request.identifier}' meanwhile; nothing was written: run it again"
            )
        find = finder(made.added)
        replacement = Replacement(find, state_of(find(table, head.snapshot_id)), made.removed)
        staged = Staged(table.metadata, made.added, table.io)
        commit = commits.Commit(
            self.request, table.schema(), self.request.summary, staged, replacement, self.op, discards=False
        )
        self.op.event("retrying")
        return commit.run(table, *commits.begin(self.request, table, table.schema())).snapshot

    def _drop(self, branch: str) -> None:
        """Forget a branch and what only it leads to, if it is still there; it ages out by itself otherwise."""
        with suppress(Exception):  # the write's own outcome is the one to tell
            for attempt in patience.trying(patience.DOUBTFUL_ATTEMPTS, _may_pass):
                with attempt, translated("unstage", self.request.identifier):
                    refs.discard(self._loaded(), branch)

    def _loaded(self) -> Table:
        table = self._same(self.request.manager.find_table(self.request.identifier))
        if table is None:
            raise TableNotFoundError(f"Table '{self.request.identifier}' was dropped meanwhile; nothing was written")
        return table

    def _same(self, now: Table | None) -> Table | None:
        """The table as it is now, if it is still the one that was looked at and not another of its name."""
        if self.table is not None and now is not None and now.metadata.table_uuid != self.table.metadata.table_uuid:
            raise TableReplacedError(
                f"'{self.request.identifier}' was dropped and created anew by somebody else meanwhile; nothing was "
                f"written: run it again"
            )
        return now

    def _refuse_other_layout(self, now: Table) -> None:
        """What an overwrite replaces was decided by the partitions that the table had."""
        overwrites = self.request.mode is WriteMode.OVERWRITE and self.table is not None
        if overwrites and self.table.metadata.default_spec_id != now.metadata.default_spec_id:  # type: ignore[union-attr]
            raise ConcurrencyConflictError(
                f"somebody else changed the partitioning of '{self.request.identifier}' meanwhile; nothing was "
                f"written: run it again"
            )

    def _head(self, table: Table | None) -> Snapshot | None:
        return table.snapshot_by_name(self.request.branch) if table is not None else None

    def _settled(self, cause: Exception | None) -> Verdict:
        request = self.request
        verdict = doubt.settle(
            lambda: request.manager.find_table(request.identifier),
            request.identifier,
            request.write_id,
            branch=request.branch,
        )
        if verdict.outcome is Outcome.UNKNOWN:
            raise doubt.unknown(request) from cause
        return verdict

    def _explained(self, exc: Exception) -> FloeError | None:
        if isinstance(exc, FloeError):
            return exc
        if self.guard is not None and OUTSIDE in text_of(exc):
            refusal = self.guard.refusal()
            if refusal is not None:  # an error that shows the plan holds these words as well
                return refusal
        error = translate(exc, f"spark.{self.request.mode.value}", self.request.identifier)
        mismatch = is_column_mismatch(exc)
        if error is None and not mismatch:
            return None
        now = self._same(self.request.manager.find_table(self.request.identifier))
        return (self._other_columns(now) if mismatch else None) or error

    def _other_columns(self, now: Table | None) -> ConcurrencyConflictError | None:
        """A conflict if the table does not have the columns any more that the write was fitted to."""
        changes = (
            column_changes(self.table.schema(), now.schema()) if self.table is not None and now is not None else ""
        )
        if not changes:
            return None
        return ConcurrencyConflictError(
            f"the columns of '{self.request.identifier}' were changed while this write was prepared ({changes}); "
            f"nothing was written: run it again"
        )

    def _in_doubt(self, reason: str = "the catalog did not answer.") -> CommitStateUnknownError:
        return doubt.undecided(self.request, reason=reason)

    def _committed(self) -> SnapshotInfo:
        found = self.found()
        if not found:
            raise CommitStateUnknownError(
                f"Spark reported success, but the snapshot of write {self.request.write_id} is not in "
                f"'{self.request.identifier}'. "
                f"{doubt.advice(self.request)}"
            )
        return doubt.only_one(found, self.request.identifier)

    def _attempts(self, otherwise: int) -> int:
        """Iceberg repeats commits by itself where a table says how often; elsewhere it gives up after a few."""
        told = self.table is not None and "commit.retry.num-retries" in self.table.properties
        return otherwise if told or self.table is None else patience.ATTEMPTS

    def _pause(self, number: int) -> None:
        self.op.event("retrying")
        time.sleep(patience.pause(number))


def _silent(failure: Exception) -> str:
    """Who did not answer."""
    if is_lost_process(failure):
        return "Spark process"
    return "Spark Connect server" if is_lost_server(failure) else "catalog"


def _gone(branch: str) -> ConcurrencyConflictError:
    return ConcurrencyConflictError(f"somebody else removed the branch {branch!r} of a write that was under way")


class TableReplacedError(ConcurrencyConflictError):
    """Another table has the name now: there is nothing to wait for."""


class _MovedError(ConcurrencyConflictError):
    """The target is not where it was when it was looked at."""


def _failure_of(act: Act, branch: str | None) -> Exception | None:
    """Send it, once; None means that the catalog acknowledged it."""
    try:
        _send(act, branch)
    except Exception as exc:  # noqa: BLE001 - what it means is decided by looking
        text_of(exc)  # while the JVM can still be asked
        return exc
    return None


def _send(act: Act, branch: str | None) -> None:
    """The one place where commits of Spark leave; tests lose their answers here."""
    act(branch)


def _caused(error: FloeError, failure: Exception) -> FloeError:
    """The error with its cause; one that was Floe's already is its own, and must not be its own cause."""
    if error is not failure:
        error.__cause__ = failure
    return error


def _may_pass(exc: BaseException) -> bool:
    passing = ConcurrencyConflictError | CatalogConnectionError | CommitStateUnknownError
    return isinstance(exc, passing) and not isinstance(exc, TableReplacedError)


def _met_commits(error: FloeError | None) -> bool:
    detail = error.detail if isinstance(error, FloeStorageError) else None
    return detail is not None and detail.error_type == "CommitFailedException"
