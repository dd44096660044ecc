"""Remove orphans: files below a table's location that nothing refers to. First listed, then deleted, then counted."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance import MismatchError, OrphansReport
from floe_core.observability import operation
from floe_iceberg.catalogs import refuse_commits_by_spark
from floe_iceberg.files import Neighbours, canonical, file_keys, list_files, present_files, refuse_shared
from floe_iceberg.maintenance import Orphans, find_orphans
from floe_spark.maintenance.calls import call, moment_sql

if TYPE_CHECKING:
    from floe_iceberg.lake import Lake

__all__ = ["remove_orphans"]

_MINIMUM_AGE = timedelta(hours=24)


def remove_orphans(
    lake: Lake,
    identifier: TableIdentifier,
    *,
    older_than: datetime,
    dry_run: bool = True,
    neighbours: Neighbours | None = None,
) -> OrphansReport:
    """Delete unreferenced files last modified before `older_than`; `dry_run` only lists them."""
    began = time.perf_counter()
    if older_than.tzinfo is None:
        raise ConfigurationError(f"older_than {older_than} has no time zone; set one, for example UTC")
    if older_than > datetime.now(timezone.utc) - _MINIMUM_AGE:
        raise ConfigurationError(
            f"orphans of '{identifier}' younger than 24 hours are never removed: the files of a write that is still "
            f"running look just like them. Nothing was deleted"
        )
    with operation("iceberg.remove_orphans", table=str(identifier), older_than=older_than, dry_run=dry_run) as op:
        table = lake.tables.load_table(identifier)
        refuse_shared(table, identifier)
        lake.tables.refuse_moved(table, identifier)
        refuse_commits_by_spark(table, identifier)
        others = neighbours or lake.tables.neighbours()
        others.refuse_below(table, identifier)
        orphans = find_orphans(table, identifier, lake.tables.homes(), older_than=older_than, neighbours=others)
        others.refuse_below(table, identifier)  # again: tables may have been created since
        report = OrphansReport(table=str(identifier), older_than=older_than, dry_run=dry_run, not_removed=orphans.kept)
        found = _confirmed_orphans(lake, identifier, orphans, older_than=older_than, dry_run=True)
        _refuse_needed(lake, identifier, orphans, found)
        if dry_run or not found:
            return report.model_copy(update={"found": tuple(found), "seconds": time.perf_counter() - began})
        before = list_files(table, identifier)
        done = _confirmed_orphans(lake, identifier, orphans, older_than=older_than, dry_run=False)
        left = list_files(table, identifier)
        removed = {path: file.size for path, file in before.items() if path in done and path not in left}
        report = report.model_copy(
            update={
                "found": tuple(found),
                "files_removed": tuple(sorted(removed)),
                "bytes_freed": sum(removed.values()),
                "seconds": time.perf_counter() - began,
            }
        )
        still = sorted(path for path in done if path in left)
        if still:
            raise MismatchError(
                f"remove_orphan_files reported {len(done)} deleted files of '{identifier}', but {len(still)} are still "
                f"there, such as {still[0]}; check that its credentials may delete, then run it again",
                report,
            )
        op.set(files=len(removed))
        return report


def _confirmed_orphans(
    lake: Lake, identifier: TableIdentifier, orphans: Orphans, *, older_than: datetime, dry_run: bool
) -> list[str]:
    """The files that Iceberg considers orphans too; without `dry_run` it deletes them.

    The procedure considers no other file: it gets those that are certainly the table's own as a view.
    """
    if not orphans.found:
        return []
    files = {orphans.address(path): file.modified for path, file in orphans.found.items()}
    arguments = {"older_than": moment_sql(older_than), "dry_run": str(dry_run).lower()}
    rows = call(lake, "remove_orphan_files", identifier, arguments, files=files)
    return sorted(canonical(row["orphan_file_location"]) for row in rows)


def _refuse_needed(lake: Lake, identifier: TableIdentifier, orphans: Orphans, found: list[str]) -> None:
    """Compare with the current table before anything is deleted: a file that PyIceberg reaches is not an orphan."""
    if not found:
        return
    keys = file_keys(orphans.address(path) for path in found)
    needed = keys.keys() & file_keys(present_files(lake.tables.load_table(identifier))).keys()
    wrong = [path for key in needed for path in keys[key]] + [path for path in found if path not in orphans.found]
    if wrong:
        raise FloeStorageError(
            f"Iceberg considers {len(wrong)} files orphans of '{identifier}' that the table needs or that it was not "
            f"given, such as {wrong[0]}; nothing was deleted. Its paths may be written in two ways (s3 and s3a, or a "
            f"moved folder)"
        )
