"""Put staged files into a table: one snapshot, sent again only while it is certain that it is not there."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
)
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertTableUUID, TableUpdate
from pyiceberg.table.update.snapshot import UpdateSnapshot, _SnapshotProducer
from sqlalchemy.exc import DBAPIError

from floe_core.errors import (
    CommitStateUnknownError,
    ConcurrencyConflictError,
    ConfigurationError,
    FloeError,
    FloeStorageError,
    TableNotFoundError,
)
from floe_core.models import CommitStrategy, StorageErrorDetail, WriteMode
from floe_core.redaction import redact
from floe_core.telemetry import Operation
from floe_iceberg import doubt, patience
from floe_iceberg.doubt import Outcome
from floe_iceberg.replacing import Replacement
from floe_iceberg.schema import SchemaChange, apply_to, plan_change
from floe_iceberg.snapshots import find_writes, snapshot_info
from floe_iceberg.staging import Staged, Stager, read_rows
from floe_iceberg.timestamps import stamped
from floe_iceberg.types import Fitting
from floe_iceberg.write_request import (
    WriteRequest,
    WriteResult,
    check_branch,
    check_table,
    created_by_another,
    refuse_strategy,
    unmarked,
)

__all__ = ["Commit", "begin", "clean"]

_LONGEST_WISH_SECONDS = 60.0
_CONFLICT = (CommitFailedException, TableAlreadyExistsError)
# After these nobody knows whether the commit was applied.
_DOUBTFUL = (
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    DBAPIError,
    OSError,
)


def begin(request: WriteRequest, table: Table | None, data: Schema) -> tuple[Transaction, SchemaChange]:
    """A transaction in which the table takes data of this schema; it creates the table where there is none."""
    if table is None:
        refuse_strategy(request, {**request.manager.config.table_properties, **request.new_table_properties})
        created = request.manager.begin_table(
            request.identifier, data, partition_by=request.partition_by, properties=request.new_table_properties
        )
        return created, SchemaChange()
    transaction = _OneCommit(table)
    change = plan_change(table.schema(), data, name=request.identifier, evolve=request.evolve)
    if change:
        with transaction.update_schema() as update:
            apply_to(update, change)
    marks = unmarked(request, table)
    if marks:
        transaction.set_properties(marks)
    return transaction, change


class _OneCommit(Transaction):
    """A transaction that is sent once: no retries and no clean-up, both are decided by whoever sent it."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._computed: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table as it will be; PyIceberg asks a dozen times per commit, and copies every snapshot each time."""
        if (
            self._computed is None
            or self._computed[0] is not self._table.metadata
            or self._computed[1] is not self._updates
        ):
            self._computed = (self._table.metadata, self._updates, super().table_metadata)
        return self._computed[2]

    def commit_transaction(self) -> Table:
        requirements = (*self._requirements, AssertTableUUID(uuid=self.table_metadata.table_uuid))
        try:
            # Whatever the catalog does with it, the timestamp comes from here.
            updates = stamped(self._updates, self._table.metadata)
            self._table._do_commit(updates=updates, requirements=requirements)
        except ValueError as exc:
            # Somebody wrote to another branch: the head asserted is right, the snapshot's place in the order is not.
            if "sequence number" in str(exc):
                raise CommitFailedException(str(exc)) from exc
            raise
        return self._table


@dataclass
class Commit:
    """Files on their way into a table."""

    request: WriteRequest
    data: Schema
    summary: Mapping[str, str]
    staged: Staged
    replacement: Replacement
    op: Operation
    discards: bool = True  # the files are this commit's own: they go if it is refused before it was sent

    def run(self, table: Table | None, transaction: Transaction, change: SchemaChange) -> WriteResult:
        """Send the snapshot until it is in the table, or it is certain that it will not be.

        Every attempt asserts the head that was looked at just before, and found without this write: a first request
        that is still under way and its repetition cannot both succeed.
        """
        first = table
        refused: list[Snapshot] = []
        doubtful, sent = 0, False
        try:
            snapshot_id = self._add_snapshot(transaction, table)
        except BaseException:
            if self.discards:
                self.staged.discard()
            raise
        for number in itertools.count(1):
            failure = _failure_of(transaction)
            if failure is None and table is None:
                failure = self._unseen()
            if failure is None:
                return self._acknowledged(transaction, snapshot_id, refused, change, created=table is None)
            # Floe's own errors come before a commit is sent, or are a plain no; so is being asked to wait.
            unsent = isinstance(failure, FloeError | TooManyRequestsError)
            sent = sent or not unsent
            doubtful += not isinstance(failure, _CONFLICT)
            last = number >= _attempts(table) or doubtful >= patience.DOUBTFUL_ATTEMPTS
            if not last:
                self.op.event("retrying")
                time.sleep(_pause(number, failure))
            verdict = doubt.settle(
                self._look, self.request.identifier, self.request.write_id, branch=self.request.branch
            )
            if verdict.outcome is Outcome.COMMITTED and verdict.snapshot is not None:
                return WriteResult(verdict.snapshot, change, created=table is None)
            if verdict.outcome is Outcome.UNKNOWN:
                if not sent:
                    raise failure
                raise doubt.unknown(self.request) from failure
            if not _may_be_repeated(failure):
                raise failure
            if last:
                raise self._given_up(failure, retries=number - 1) from failure
            present = self._same(first, verdict.table, in_doubt=doubtful > 0 and sent)
            if present is not None:  # otherwise the same request again: it asserts that there is no table
                # Not those of a creation: a server that lets two create at once may have kept what it refused.
                if isinstance(failure, _CONFLICT) and table is not None:
                    refused += [one for one in transaction.table_metadata.snapshots if one.snapshot_id == snapshot_id]
                table = present
                transaction, change = self._rebased(table)
                snapshot_id = self._add_snapshot(transaction, table)
        raise AssertionError("the loop ends by itself")

    def _unseen(self) -> Exception | None:
        """Is a table that was created the one that is there? Some servers acknowledge two creations and keep one."""
        try:
            seen = self._look()
        except FloeError:
            return None  # it was acknowledged, and nobody says otherwise
        if seen is not None and find_writes(seen, self.request.write_id, branch=self.request.branch):
            return None
        return TableAlreadyExistsError(f"'{self.request.identifier}' was created by somebody else at the same moment")

    def _acknowledged(
        self,
        transaction: Transaction,
        snapshot_id: int,
        refused: list[Snapshot],
        change: SchemaChange,
        *,
        created: bool,
    ) -> WriteResult:
        table = transaction._table
        snapshot = table.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise doubt.unknown(self.request)
        clean(refused, table.io)
        return WriteResult(snapshot_info(snapshot), change, created=created)

    def _look(self) -> Table | None:
        return self.request.manager.find_table(self.request.identifier)

    def _same(self, first: Table | None, now: Table | None, *, in_doubt: bool) -> Table | None:
        """The table as it is now, if it is the one that was written for."""
        name = self.request.identifier
        if in_doubt and first is not None and (now is None or now.metadata.table_uuid != first.metadata.table_uuid):
            raise CommitStateUnknownError(
                f"'{name}' is not the table any more that write {self.request.write_id} was sent to: it was renamed, "
                f"dropped or made anew meanwhile, and whether the rows had arrived before cannot be seen here. Look "
                f"for them under its new name"
            )
        if first is None:
            if now is not None and self.request.mode is not WriteMode.APPEND:
                raise created_by_another(name)
            return now
        if now is None:
            raise TableNotFoundError(f"Table '{name}' was dropped meanwhile; nothing was written")
        if now.metadata.table_uuid != first.metadata.table_uuid:
            raise ConcurrencyConflictError(
                f"'{name}' was dropped and created anew by somebody else meanwhile; nothing was written: run it again"
            )
        return now

    def _rebased(self, table: Table) -> tuple[Transaction, SchemaChange]:
        """The same files on top of what others committed; staged again only if they would mean something else now."""
        try:
            check_branch(table, self.request.identifier, self.request.branch)
        except ConfigurationError as exc:
            raise ConcurrencyConflictError(f"{exc}; it was there when the write began") from exc
        check_table(self.request, table)
        transaction, change = begin(self.request, table, self.data)
        if not _means_the_same(self.staged.metadata, transaction.table_metadata):
            if self.replacement.removed:
                raise ConcurrencyConflictError(
                    f"the layout of '{self.request.identifier}' was changed by somebody else meanwhile; nothing was "
                    f"written: run it again"
                )
            self.staged = _staged_again(self.staged, transaction, table)
        return transaction, change

    def _add_snapshot(self, transaction: Transaction, table: Table | None) -> int:
        update = transaction.update_snapshot(snapshot_properties=dict(self.summary), branch=self.request.branch)
        removed = self.replacement.files_in(table, self.request) if table is not None else []
        merges = self.request.commit_strategy is CommitStrategy.MERGE
        # What takes nothing away is an append, whatever was asked: so say those who read only what is new.
        adds = self.request.mode is WriteMode.APPEND or (self.staged.files and not removed)
        made = (_merge_append(update) if merges else update.fast_append()) if adds else _overwrite(update)
        with made as producer:
            for task in removed:
                producer.delete_data_file(task.file)
            for file in self.staged.files:
                producer.append_data_file(file)
        _drop_merged(producer, transaction)
        return producer.snapshot_id

    def _given_up(self, exc: Exception, *, retries: int) -> FloeStorageError:
        if isinstance(exc, CommitFailedException):
            name = self.request.identifier
            return ConcurrencyConflictError(
                f"'{name}' was changed by others faster than this write could commit; nothing was written: run it "
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
        return doubt.undecided(self.request, reason="the catalog did not answer.")


def _merge_append(update: UpdateSnapshot) -> _SnapshotProducer[Any]:
    """PyIceberg merges only where the table says so; Iceberg does unless the table says not to."""
    producer = update.merge_append()
    producer._merge_enabled = True
    return producer


def _overwrite(update: UpdateSnapshot) -> _SnapshotProducer[Any]:
    """PyIceberg asks one evaluator from many threads, and it keeps the manifest it is asked about: files are missed."""
    producer = update.overwrite()
    build = producer._build_manifest_evaluator

    def build_locked(spec_id: int) -> Callable[[ManifestFile], bool]:
        evaluate, lock = build(spec_id), Lock()

        def evaluate_alone(manifest: ManifestFile) -> bool:
            with lock:
                return evaluate(manifest)

        return evaluate_alone

    producer._build_manifest_evaluator = build_locked  # type: ignore[method-assign]
    return producer


def _drop_merged(producer: _SnapshotProducer[Any], transaction: Transaction) -> None:
    """Delete the manifest that was merged into another before it was ever sent: nothing leads to it."""
    snapshot = transaction.table_metadata.snapshot_by_id(producer.snapshot_id)
    io = transaction._table.io
    if snapshot is None or len(producer._written_manifests) < 2:
        return
    listed = {one.manifest_path for one in snapshot.manifests(io)}
    for path in producer._written_manifests:
        if path not in listed:
            with suppress(Exception):  # what cannot be deleted is an orphan, which maintenance removes
                io.delete(path)


def _failure_of(transaction: Transaction) -> Exception | None:
    """Send it, once; None means that the catalog acknowledged it."""
    try:
        transaction.commit_transaction()
    except Exception as exc:  # noqa: BLE001 - what it means is decided by looking
        return exc
    return None


def _pause(number: int, failure: Exception) -> float:
    """Some time, so that writers do not meet again; the server's own wish if it has one."""
    response = getattr(failure.__cause__, "response", None)
    asked = response.headers.get("Retry-After", "") if response is not None else ""
    if asked.isdecimal():
        return min(float(asked), _LONGEST_WISH_SECONDS)
    return patience.pause(number)


def _attempts(table: Table | None) -> int:
    said = table.properties.get(TableProperties.COMMIT_NUM_RETRIES, "") if table is not None else ""
    return int(said) + 1 if said.isdecimal() else patience.ATTEMPTS


def _may_be_repeated(exc: Exception) -> bool:
    # A local disk that is full or read-only fails before the catalog is asked, and the next time too.
    local = isinstance(exc, OSError) and exc.errno is not None and not isinstance(exc, ConnectionError | TimeoutError)
    return isinstance(exc, (*_CONFLICT, *_DOUBTFUL)) and not local


def _means_the_same(staged: TableMetadata, now: TableMetadata) -> bool:
    """Are files that were staged for the one right for the other: place, partitions, ids of the columns?"""
    ids = index_by_name(now.schema())
    return (
        staged.location == now.location
        and staged.default_spec_id == now.default_spec_id
        and staged.spec() == now.spec()
        and all(ids.get(name) == field_id for name, field_id in index_by_name(staged.schema()).items())
    )


def _staged_again(staged: Staged, transaction: Transaction, table: Table) -> Staged:
    """The rows of the staged files in files for the table as it is now: the data itself came only once."""
    stager = Stager(transaction.table_metadata, table.io)
    fitting = Fitting(stager.arrow_schema)
    try:
        for file in staged.files:
            # Not with the new table's io: credentials vended for it may not cover where the files were staged.
            for batch in read_rows(staged.metadata, staged.io, FileScanTask(file)):
                stager.add(fitting.fit(batch))
        return stager.finish()
    except BaseException:
        stager.abandon()
        raise


def clean(refused: list[Snapshot], io: FileIO) -> None:
    """Remove the manifests of attempts that the catalog refused, now that another one is in the table."""
    for one in refused:
        with suppress(Exception):  # what cannot be deleted is an orphan, which maintenance removes
            own = [made.manifest_path for made in one.manifests(io) if made.added_snapshot_id == one.snapshot_id]
            for path in (*own, one.manifest_list):
                io.delete(path)
