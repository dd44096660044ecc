"""The commit loop of both engines: one snapshot, sent again only while it is certain that it is not in the table.

Arrow stages data files, and the commit makes a snapshot of them. Spark stages a snapshot on a branch, and the commit
moves the target there; if the target has moved since, it makes a snapshot of the branch's files, as for Arrow.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
)
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy.exc import DBAPIError

from floe_core.errors import (
    CommitStateUnknownError,
    ConcurrencyConflictError,
    ConfigurationError,
    FloeError,
    FloeStorageError,
    TableNotFoundError,
)
from floe_core.identifiers import TableIdentifier
from floe_core.models import CommitStrategy, StorageErrorDetail, WriteMode
from floe_core.observability import Operation
from floe_core.security import redact
from floe_iceberg import backoff
from floe_iceberg._pyiceberg.snapshot_producers import drop_merged, merge_append, overwrite
from floe_iceberg._pyiceberg.tables import SingleAttemptTransaction, stage_updates, table_of
from floe_iceberg.schema.evolution import SchemaChange, apply_to, fits_schema, plan_change
from floe_iceberg.schema.types import ArrowCaster
from floe_iceberg.snapshots import refs
from floe_iceberg.snapshots.run_branches import UNPUBLISHED, unpublished_by
from floe_iceberg.snapshots.snapshots import CREATES, find_writes, snapshot_info
from floe_iceberg.writing import commit_outcome
from floe_iceberg.writing.commit_outcome import Outcome
from floe_iceberg.writing.overwrites import NOTHING, Replacement
from floe_iceberg.writing.request import (
    WriteRequest,
    WriteResult,
    check_branch,
    check_table,
    created_by_another,
    refuse_strategy,
    unmarked,
)
from floe_iceberg.writing.staging import Staged, Stager, read_rows

if TYPE_CHECKING:
    from floe_iceberg.manager import IcebergTableManager

__all__ = ["Commit", "StagedBranch", "begin", "clean"]

_MAX_RETRY_AFTER_SECONDS = 60.0
_CONFLICT = (CommitFailedException, TableAlreadyExistsError)
# After these, the outcome of the commit is unknown.
_DOUBTFUL = (
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    DBAPIError,
    OSError,
)


def begin(
    tables: IcebergTableManager, request: WriteRequest, table: Table | None, data: Schema
) -> tuple[Transaction, SchemaChange]:
    """A transaction that prepares the table for data of this schema; it creates the table if there is none."""
    if table is None:
        refuse_strategy(request, {**tables.config.table_properties, **request.new_table_properties})
        created = tables.begin_table(
            request.identifier, data, partition_by=request.partition_by, properties=request.new_table_properties
        )
        return created, SchemaChange()
    return _begin(request, table, data)


def _begin(request: WriteRequest, table: Table, data: Schema | None) -> tuple[SingleAttemptTransaction, SchemaChange]:
    transaction = SingleAttemptTransaction(table)
    change = SchemaChange()
    if data is not None:
        change = plan_change(table.schema(), data, name=request.identifier, evolve=request.evolve)
    if change:
        with transaction.update_schema() as update:
            apply_to(update, change)
    marks = unmarked(request, table)
    if marks:
        transaction.set_properties(marks)
    if request.branch == MAIN_BRANCH and unpublished_by(table.properties) is not None:
        transaction.remove_properties(UNPUBLISHED)  # main has rows from now on
    return transaction, change


@dataclass(frozen=True)
class StagedBranch:
    """A branch with the snapshot of a write; it began at the head of the target."""

    name: str
    base: Snapshot
    metadata: TableMetadata  # of the table when the write began: its files fit this schema and partition spec
    files: Callable[[Table], tuple[Staged, Replacement]]  # the files it adds and replaces; raises on a conflict


@dataclass
class Commit:
    """The commit of staged files, or of a staged branch, to a table."""

    tables: IcebergTableManager
    request: WriteRequest
    data: Schema | None  # None if the table's schema has been evolved already
    summary: Mapping[str, str]
    op: Operation
    staged: Staged | None = None
    replacement: Replacement = NOTHING
    branch: StagedBranch | None = None
    published: bool = False  # the target was moved to the head of the branch, and the branch was removed

    def commit(self, table: Table) -> WriteResult:
        """`run` on a table that was just loaded and whose schema fits the data already."""
        found = find_writes(table, self.request.write_id, branch=self.request.branch)
        if found:  # a request whose response was lost has arrived since
            return WriteResult(commit_outcome.single_snapshot(found, self.request.identifier), table, SchemaChange())
        self._check_branch(table)
        return self.run(table, *_begin(self.request, table, self.data))

    def run(self, table: Table | None, transaction: Transaction, change: SchemaChange) -> WriteResult:
        """Send the commit, with retries, until it is in the table or has definitely failed.

        Every attempt asserts the head that was loaded just before and does not contain this write: a first request
        that is still in flight and its retry cannot both succeed.
        """
        first = table
        refused: list[Snapshot] = []
        doubtful, sent, in_flight = 0, False, False
        try:
            snapshot_id = self._add_snapshot(transaction, table)
        except BaseException:
            if self.staged is not None and self.branch is None:  # the commit owns the files, and was not sent
                self.staged.discard()
            raise
        for number in itertools.count(1):
            failure = _failure_of(transaction)
            if failure is None and table is None:
                failure = self._lost_creation()
            if failure is None:
                self.published = self.staged is None
                return self._acknowledged(transaction, snapshot_id, refused, change, created=table is None)
            # Floe's own errors are raised before a commit is sent, or are definite refusals; so is a 429.
            unsent = isinstance(failure, FloeError | TooManyRequestsError)
            sent = sent or not unsent
            doubtful += not isinstance(failure, _CONFLICT)
            last = number >= _attempts(table) or doubtful >= backoff.DOUBTFUL_ATTEMPTS
            if not last:
                self.op.event("retrying")
                time.sleep(_pause(number, failure))
            resolved = commit_outcome.resolve_outcome(
                self._load_table, self.request.identifier, self.request.write_id, branch=self.request.branch
            )
            if resolved.outcome is Outcome.COMMITTED and resolved.snapshot is not None:
                return WriteResult(resolved.snapshot, resolved.seen, change, created=table is None)
            if resolved.outcome is Outcome.UNKNOWN:
                if not sent:
                    raise failure
                raise commit_outcome.unknown(self.request, self.tables) from failure
            if in_flight and (last or not _is_retryable(failure)):  # whatever the last answer was
                raise self._undecided() from failure
            if not _is_retryable(failure):
                raise failure
            if last:
                raise self._retries_exhausted(failure, retries=number - 1) from failure
            in_flight = in_flight or not (unsent or isinstance(failure, _CONFLICT))
            present = self._ensure_same(first, resolved.table, in_doubt=in_flight)
            if present is not None:  # otherwise send the same request again: it asserts that there is no table
                # Not after a creation: a server that accepts two at once may have kept the one it refused. And not a
                # snapshot that Spark staged: the next attempt may publish it.
                if isinstance(failure, _CONFLICT) and table is not None and self.staged is not None:
                    made = transaction.table_metadata.snapshots
                    refused += [snapshot for snapshot in made if snapshot.snapshot_id == snapshot_id]
                table = present
                transaction, change = self._rebased(table)
                snapshot_id = self._add_snapshot(transaction, table)
        raise AssertionError("the loop returns or raises")

    def _lost_creation(self) -> Exception | None:
        """A conflict if the catalog has another table: some servers acknowledge two creations and keep one."""
        try:
            table = self._load_table()
        except FloeError:
            return None  # it was acknowledged, and nothing contradicts that
        if table is not None and find_writes(table, self.request.write_id, branch=self.request.branch):
            return None
        return TableAlreadyExistsError(f"'{self.request.identifier}' was created by another writer at the same time")

    def _acknowledged(
        self,
        transaction: Transaction,
        snapshot_id: int,
        refused: list[Snapshot],
        change: SchemaChange,
        *,
        created: bool,
    ) -> WriteResult:
        table = table_of(transaction)
        snapshot = table.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise commit_outcome.unknown(self.request, self.tables)
        clean([attempt for attempt in refused if table.snapshot_by_id(attempt.snapshot_id) is None], table.io)
        if created:  # PyIceberg does not scan a staged table
            table = Table(table.name(), table.metadata, table.metadata_location, table.io, table.catalog)
        return WriteResult(snapshot_info(snapshot), table, change, created=created)

    def _load_table(self) -> Table | None:
        return self.tables.find_table(self.request.identifier)

    def _ensure_same(self, first: Table | None, now: Table | None, *, in_doubt: bool) -> Table | None:
        """The current table, if it is the one that the files were staged for."""
        name = self.request.identifier
        if in_doubt and first is not None and (now is None or now.metadata.table_uuid != first.metadata.table_uuid):
            raise CommitStateUnknownError(
                f"'{name}' is no longer the table that write {self.request.write_id} was sent to: it was renamed, "
                f"dropped or created again during this write, and whether the rows arrived before that is unknown. "
                f"Look for them under its new name"
            )
        if first is None:
            if now is not None and self.request.mode is not WriteMode.APPEND:
                raise created_by_another(name)
            return now
        if now is None:
            raise TableNotFoundError(f"Table '{name}' was dropped during this write; nothing was written")
        if now.metadata.table_uuid != first.metadata.table_uuid:
            raise ConcurrencyConflictError(
                f"'{name}' was dropped and created again during this write; nothing was written: run it again"
            )
        return now

    def _check_branch(self, table: Table) -> None:
        try:
            check_branch(table, self.request.identifier, self.request.branch)
        except ConfigurationError as exc:
            raise ConcurrencyConflictError(f"{exc}; it existed when the write began") from exc

    def _rebased(self, table: Table) -> tuple[Transaction, SchemaChange]:
        """Rebase the files on the current table; they are rewritten only if they no longer fit it."""
        self._check_branch(table)
        check_table(self.request, table)
        transaction, change = _begin(self.request, table, self.data)
        if self.staged is not None and not _is_compatible(self.staged.metadata, transaction.table_metadata):
            if self.replacement.removed:
                raise ConcurrencyConflictError(
                    f"another writer changed the layout of '{self.request.identifier}' during this write; nothing was "
                    f"written: run it again"
                )
            self.staged = _restaged(self.staged, transaction, table)
        return transaction, change

    def _add_snapshot(self, transaction: Transaction, table: Table | None) -> int:
        """Add the snapshot to the transaction; returns its id."""
        staged = self.staged
        if self.branch is not None and table is not None:
            _refuse_changed_columns(self.branch, table, self.request.identifier)
        if staged is None:
            if self.branch is None or table is None:
                raise AssertionError("a commit has staged files, or a branch of a table")
            published = self._publish(self.branch, transaction, table)
            if published is not None:
                return published
            self.op.event("retrying")
            staged, self.replacement = self.branch.files(table)
            self.staged = staged
        summary = {**self.summary, **({CREATES: "true"} if table is None else {})}
        update = transaction.update_snapshot(snapshot_properties=summary, branch=self.request.branch)
        removed = self.replacement.files_in(table, self.request) if table is not None else []
        merges = self.request.commit_strategy is CommitStrategy.MERGE
        # A commit that removes no files is an append, whatever the mode: incremental reads then include it.
        adds = self.request.mode is WriteMode.APPEND or (staged.files and not removed)
        made = (merge_append(update) if merges else update.fast_append()) if adds else overwrite(update)
        with made as producer:
            for task in removed:
                producer.delete_data_file(task.file)
            for file in staged.files:
                producer.append_data_file(file)
        drop_merged(producer, transaction)
        return producer.snapshot_id

    def _publish(self, branch: StagedBranch, transaction: Transaction, table: Table) -> int | None:
        """Move the target to the head of the branch and remove the branch; None if the target has moved."""
        head, ref = table.snapshot_by_name(self.request.branch), table.metadata.refs.get(branch.name)
        if ref is None:
            raise ConcurrencyConflictError(
                f"another process removed the staging branch {branch.name!r} of '{self.request.identifier}' during the "
                f"write; nothing was written: run it again"
            )
        if (
            self.request.mode is WriteMode.OVERWRITE
            and table.metadata.default_spec_id != branch.metadata.default_spec_id
        ):
            raise ConcurrencyConflictError(
                f"another writer changed the partitioning of '{self.request.identifier}' during this write; nothing "
                f"was written: run it again"
            )
        if head is None or head.snapshot_id != branch.base.snapshot_id:
            return None
        updates, requirements = refs.publication(table, branch.name, to=self.request.branch, expected=head.snapshot_id)
        stage_updates(transaction, updates, requirements)
        return ref.snapshot_id

    def _retries_exhausted(self, exc: Exception, *, retries: int) -> FloeStorageError:
        if isinstance(exc, CommitFailedException):
            name = self.request.identifier
            return ConcurrencyConflictError(
                f"other writers changed '{name}' faster than this write could commit; nothing was written: run it "
                f"again",
                detail=StorageErrorDetail(
                    error_type=type(exc).__name__,
                    operation=self.request.mode.value,
                    table=str(name),
                    message=redact(str(exc)),
                    retryable=True,
                    retry_count=retries,
                ),
            )
        return self._undecided()

    def _undecided(self) -> CommitStateUnknownError:
        """The error for a request that was not answered and may still arrive."""
        return commit_outcome.undecided(self.request, self.tables, reason="the catalog did not answer.")


def _failure_of(transaction: Transaction) -> Exception | None:
    """Send the commit once; None if the catalog acknowledged it."""
    try:
        _send(transaction)
    except Exception as exc:  # noqa: BLE001 - its outcome is resolved by the caller
        return exc
    return None


def _send(transaction: Transaction) -> None:
    """The only place that sends commits of the control plane; tests drop the responses here."""
    transaction.commit_transaction()


def _pause(number: int, failure: Exception) -> float:
    """Seconds to wait: the server's Retry-After if it sent one, otherwise a backoff with jitter."""
    response = getattr(failure.__cause__, "response", None)
    retry_after = response.headers.get("Retry-After", "") if response is not None else ""
    if retry_after.isdecimal():
        return min(float(retry_after), _MAX_RETRY_AFTER_SECONDS)
    return backoff.delay(number)


def _attempts(table: Table | None) -> int:
    retries = table.properties.get(TableProperties.COMMIT_NUM_RETRIES, "") if table is not None else ""
    return int(retries) + 1 if re.fullmatch("[0-9]{1,9}", retries) else backoff.ATTEMPTS


def _is_retryable(exc: Exception) -> bool:
    # A local disk that is full or read-only fails before a request is sent, and would fail again.
    local = isinstance(exc, OSError) and exc.errno is not None and not isinstance(exc, ConnectionError | TimeoutError)
    return isinstance(exc, (*_CONFLICT, *_DOUBTFUL)) and not local


def _is_compatible(staged: TableMetadata, now: TableMetadata) -> bool:
    """Do files staged for `staged` fit `now`: the same location and partition spec, and a schema that they fit?"""
    return (
        staged.location == now.location
        and staged.default_spec_id == now.default_spec_id
        and staged.spec() == now.spec()
        and fits_schema(staged.schema(), now.schema())
    )


def _refuse_changed_columns(branch: StagedBranch, table: Table, identifier: TableIdentifier) -> None:
    """Refuse to publish files whose columns another writer has replaced: readers would see NULL in their place."""
    if not fits_schema(branch.metadata.schema(), table.schema()):
        raise ConcurrencyConflictError(
            f"another writer changed the columns of '{identifier}' during this write; nothing was written: run it again"
        )


def _restaged(staged: Staged, transaction: Transaction, table: Table) -> Staged:
    """Rewrite the staged files for the current table; the source data can be read only once."""
    stager = Stager(transaction.table_metadata, table.io)
    caster = ArrowCaster(stager.arrow_schema)
    try:
        for file in staged.files:
            # Not with the new table's io: credentials vended for it may not cover where the files were staged.
            for batch in read_rows(staged.metadata, staged.io, FileScanTask(file)):
                stager.add(caster.fit(batch))
        return stager.finish()
    except BaseException:
        stager.abandon()
        raise


def clean(refused: list[Snapshot], io: FileIO) -> None:
    """Remove the manifests of attempts that the catalog refused, after another attempt was committed."""
    for snapshot in refused:
        with suppress(Exception):  # a file that remains is an orphan, which maintenance removes
            added = [item for item in snapshot.manifests(io) if item.added_snapshot_id == snapshot.snapshot_id]
            for path in (*(manifest.manifest_path for manifest in added), snapshot.manifest_list):
                io.delete(path)
