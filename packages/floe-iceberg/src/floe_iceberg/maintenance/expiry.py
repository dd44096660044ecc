"""Expiry of a table that references files of others: its metadata drops them, and only its own files are deleted."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table
from pyiceberg.table.update import (
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableUpdate,
)

from floe_core.identifiers import TableIdentifier
from floe_core.maintenance import KeptFile
from floe_iceberg.files.containment import canonical, file_key, file_keys
from floe_iceberg.files.other_tables import Neighbours
from floe_iceberg.files.ownership import Belongings, Homes
from floe_iceberg.files.purge import undeleted
from floe_iceberg.files.reachable import FileKind, files_by_kind
from floe_iceberg.maintenance.leases import LEASE
from floe_iceberg.maintenance.retention import Expiring
from floe_iceberg.snapshots.refs import commit_refs

__all__ = ["delete_own", "expire_metadata", "foreign_files"]


def foreign_files(
    table: Table,
    identifier: TableIdentifier,
    homes: Homes,
    neighbours: Neighbours,
    known: dict[str, tuple[str, ...]],
) -> tuple[KeptFile, ...] | None:
    """The files that any snapshot of the table references and that are not certainly its own.

    All snapshots count: another engine may concurrently expire one that was to stay. None if all files of the table are
    its own, each under one address: then expiry deletes no file that must stay. Iceberg's procedure compares addresses
    as text; it would delete a file that an old snapshot and the newest one name differently (s3a:// and s3://).

    Args:
        known: The files of manifests that were read before; see `present_files`.
    """
    files = _without_metadata(files_by_kind(table, known=known))
    kept = Belongings(table, homes, neighbours.references(identifier, files)).kept(files)
    by_one_address = all(len(paths) == 1 for paths in file_keys(files).values())
    return None if by_one_address and not kept else kept


def expire_metadata(table: Table, going: Expiring) -> None:
    """Remove snapshots and refs, but delete no file. A conflict if a ref was moved since the table was loaded."""
    refs: dict[str, int | None] = {
        name: ref.snapshot_id for name, ref in table.metadata.refs.items() if not name.startswith(LEASE)
    }
    counted = (statistics.snapshot_id for statistics in table.metadata.partition_statistics)
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=name) for name in sorted(going.refs)]
    updates += [RemovePartitionStatisticsUpdate(snapshot_id=id_) for id_ in counted if id_ in going.snapshots]
    if going.snapshots:
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=sorted(going.snapshots)))
    commit_refs(table, refs, updates)


def delete_own(
    before: Table, after: Table, foreign: tuple[KeptFile, ...], known: dict[str, tuple[str, ...]]
) -> tuple[dict[str, FileKind], tuple[KeptFile, ...]]:
    """Delete files that `before` references and `after` does not, except `foreign`; returns the deleted and the kept.

    Files are compared by `file_key`: two snapshots may name the same file by different addresses.
    """
    still = file_keys(files_by_kind(after, known=known)).keys()
    stays = still | file_keys(file.path for file in foreign).keys()
    leaving = _without_metadata(files_by_kind(before, known=known))
    gone = (path for key, paths in file_keys(leaving).items() if key not in stays for path in paths)
    own = {path: leaving[path] for path in {canonical(path): path for path in gone}.values()}  # each file once
    failed = undeleted(after.io, own)
    left = [KeptFile(path=path, reason=f"it could not be deleted: {reason}") for path, reason in failed.items()]
    spared = [file for file in foreign if file_key(file.path) not in still]
    return {path: kind for path, kind in own.items() if path not in failed}, (*spared, *left)


def _without_metadata(files: Mapping[str, FileKind]) -> dict[str, FileKind]:
    """Expiry deletes no metadata files: later commits do, or the removal of orphans."""
    return {path: kind for path, kind in files.items() if kind is not FileKind.METADATA}
