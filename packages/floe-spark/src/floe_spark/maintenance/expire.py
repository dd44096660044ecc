"""Expire snapshots: remove them and the files that only they reference, and nothing else."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance import ExpireReport, KeptFile, MismatchError
from floe_core.observability import operation
from floe_iceberg.catalogs import refuse_commits_by_spark
from floe_iceberg.files import (
    FileKind,
    Listed,
    Neighbours,
    canonical_set,
    is_inside,
    is_metadata_file,
    list_files,
    present_files,
    refuse_shared,
    sends_files_elsewhere,
)
from floe_iceberg.maintenance import (
    Expiring,
    delete_own,
    expire_metadata,
    expiring,
    foreign_files,
    held_by_cursor,
    of_ms,
    refuse_short_branches,
    to_ms,
)
from floe_spark.maintenance.calls import call, moment_sql

if TYPE_CHECKING:
    from floe_iceberg.lake import Lake

__all__ = ["expire_snapshots"]

_NEVER = 2**63 - 1


def expire_snapshots(
    lake: Lake,
    identifier: TableIdentifier,
    *,
    older_than: datetime,
    keep_last: int,
    neighbours: Neighbours | None = None,
) -> ExpireReport:
    """Remove the snapshots from before `older_than` except the newest `keep_last` of each branch, and tagged ones.

    Snapshots that a consumer has not read yet are kept, however old they are.
    """
    began, now = time.perf_counter(), datetime.now(timezone.utc)
    if older_than.tzinfo is None:
        raise ConfigurationError(f"older_than {older_than} has no time zone; set one, for example UTC")
    if older_than > now:
        raise ConfigurationError(f"older_than is {older_than.isoformat()}, in the future; nothing was expired")
    if keep_last < 1:
        raise ConfigurationError(f"keep_last is {keep_last}; it must be at least 1. Nothing was expired")
    with operation("iceberg.expire_snapshots", table=str(identifier), older_than=older_than, keep_last=keep_last) as op:
        before = lake.tables.load_table(identifier)
        refuse_shared(before, identifier)
        lake.tables.refuse_moved(before, identifier)
        refuse_commits_by_spark(before, identifier)
        # Iceberg's cutoff is in milliseconds, and must not be later than `older_than`.
        cutoff_ms = min(to_ms(older_than), (held_by_cursor(before.metadata) or ("", _NEVER))[1])
        cutoff = of_ms(cutoff_ms)
        report = ExpireReport(table=str(identifier), older_than=cutoff, keep_last=keep_last)
        going = expiring(before.metadata, older_than_ms=cutoff_ms, keep_last=keep_last, now_ms=to_ms(now))
        refuse_short_branches(
            before.metadata, identifier, older_than_ms=cutoff_ms, keep_last=keep_last, now_ms=to_ms(now)
        )
        if not going:
            return report.model_copy(update={"seconds": time.perf_counter() - began})
        others = neighbours or lake.tables.neighbours()
        others.refuse_same(before, identifier)
        others.refuse_unreadable(identifier)
        others.refuse_used(identifier, lambda: present_files(before))
        files = list_files(before, identifier)
        known: dict[str, tuple[str, ...]] = {}
        left_over: tuple[KeptFile, ...] = ()
        foreign = foreign_files(before, identifier, lake.tables.homes(), others, known)
        others.refuse_same(before, identifier)  # again: another writer may have registered it since
        if foreign is None:
            arguments = {"older_than": moment_sql(cutoff), "retain_last": str(keep_last)}
            (row,) = call(lake, "expire_snapshots", identifier, arguments)
            counts = _counts_of(row)
        else:  # the procedure cannot exclude files
            counts, left_over = _expire_own_files(lake, before, identifier, going, foreign, known)
        after = lake.tables.load_table(identifier)
        _refuse_replaced(before, after, identifier)
        left = list_files(after, identifier)
        removed = {path: file for path, file in files.items() if path not in left}
        gone = {old.snapshot_id for old in before.snapshots()} - {new.snapshot_id for new in after.snapshots()}
        report = report.model_copy(
            update={
                **counts,
                "not_removed": left_over,
                "snapshots": tuple(sorted(gone)),
                "refs": tuple(sorted(going.refs - after.metadata.refs.keys())),
                "files_removed": tuple(sorted(removed)),
                "bytes_freed": sum(file.size for file in removed.values()),
                "seconds": time.perf_counter() - began,
            }
        )
        lists = {old.manifest_list for old in before.snapshots() if old.snapshot_id in gone & going.snapshots}
        lists -= {file.path for file in left_over}
        _check(after, identifier, report, lists, known, left=left, counted=sum(counts.values()))
        stay = expiring(after.metadata, older_than_ms=cutoff_ms, keep_last=keep_last, now_ms=to_ms(now))
        # A concurrent write may have made more snapshots expire; those were not planned.
        missed, refs = stay.snapshots & going.snapshots, stay.refs & going.refs
        if missed or refs:
            raise MismatchError(
                f"expire_snapshots of '{identifier}' reported success, but {len(missed)} snapshots, {len(refs)} refs "
                f"that are too old are still there; run it again, and check the catalog",
                report,
            )
        op.set(snapshots=len(gone), files=len(removed))
        return report


def _expire_own_files(
    lake: Lake,
    before: Table,
    identifier: TableIdentifier,
    going: Expiring,
    foreign: tuple[KeptFile, ...],
    known: dict[str, tuple[str, ...]],
) -> tuple[dict[str, int], tuple[KeptFile, ...]]:
    """Remove the snapshots, then delete only files that are certainly the table's own."""
    expire_metadata(before, going)
    after = lake.tables.load_table(identifier)
    _refuse_replaced(before, after, identifier)
    own, left = delete_own(before, after, foreign, known)
    return _counts(own), left


def _refuse_replaced(before: Table, after: Table, identifier: TableIdentifier) -> None:
    if before.metadata.table_uuid != after.metadata.table_uuid:
        raise ConcurrencyConflictError(f"'{identifier}' was dropped and created again during the expiry; check it")


def _counts_of(row: dict[str, int]) -> dict[str, int]:
    return {
        "data_files": row["deleted_data_files_count"],
        "delete_files": row["deleted_position_delete_files_count"] + row["deleted_equality_delete_files_count"],
        "manifests": row["deleted_manifest_files_count"],
        "manifest_lists": row["deleted_manifest_lists_count"],
        "statistics_files": row["deleted_statistics_files_count"],
    }


def _counts(files: dict[str, FileKind]) -> dict[str, int]:
    kinds = list(files.values())
    return {
        "data_files": kinds.count(FileKind.DATA),
        "delete_files": kinds.count(FileKind.DELETES),
        "manifests": kinds.count(FileKind.MANIFEST),
        "manifest_lists": kinds.count(FileKind.MANIFEST_LIST),
        "statistics_files": kinds.count(FileKind.STATISTICS),
    }


def _check(
    after: Table,
    identifier: TableIdentifier,
    report: ExpireReport,
    lists: set[str],
    known: dict[str, tuple[str, ...]],
    *,
    left: dict[str, Listed],
    counted: int,
) -> None:
    """Compare the reported deletions with the store; `lists` are manifest lists that must be gone."""
    location, removed = after.location(), set(report.files_removed)
    # Any commit may delete earlier metadata files, if the table is configured so.
    log = {after.metadata_location, *(entry.metadata_file for entry in after.metadata.metadata_log)}
    present = present_files(after, known=known) - log
    needed = canonical_set(present)
    lost = sorted(needed & removed)
    still = sorted((canonical_set(lists) - needed) & left.keys())
    if lost:
        raise MismatchError(
            f"{len(lost)} files that '{identifier}' still needs are gone from the store, such as {lost[0]}. Stop all "
            f"maintenance of this table, and restore them from a backup or from the store's own versions",
            report,
        )
    if still:
        raise MismatchError(
            f"{len(still)} files of expired snapshots of '{identifier}' are still there, such as {still[0]}; nothing "
            f"refers to them: remove them with: floe maintain run --table {identifier} --only orphans",
            report,
        )
    outside = any(not is_inside(path, location) for path in present | lists)
    if counted > len(removed) and not outside and not _was_elsewhere(after):
        raise MismatchError(
            f"expire_snapshots reported {counted} deleted files of '{identifier}', but only {len(removed)} are gone "
            f"from below its location; unless the others lay elsewhere they are orphans now: remove them with: "
            f"floe maintain run --table {identifier} --only orphans",
            report,
        )


def _was_elsewhere(table: Table) -> bool:
    """Whether the table ever placed files outside of its location, according to its metadata log."""
    for entry in table.metadata.metadata_log:
        if not is_metadata_file(entry.metadata_file, table.metadata):  # any address: it is not opened
            return True
        with suppress(FileNotFoundError):
            earlier = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
            if sends_files_elsewhere(earlier.properties):
                return True
    return sends_files_elsewhere(table.properties)
