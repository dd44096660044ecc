"""Snapshot producers, adjusted one object at a time: `patches.py` verifies the code that is adjusted here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.update.snapshot import UpdateSnapshot

from floe_core.engines import private_names, require_members

_MERGES = "appends merge small manifests"
with private_names("pyiceberg", _MERGES):
    from pyiceberg.table.update.snapshot import _MergeAppendFiles, _SnapshotProducer

__all__ = ["Producer", "drop_merged", "merge_append", "overwrite"]

Producer = _SnapshotProducer[Any]

require_members("pyiceberg", _MergeAppendFiles, "_merge_enabled", promise=_MERGES)
require_members(
    "pyiceberg", _SnapshotProducer, "_written_manifests", promise="manifests that were merged leave no orphans"
)


def merge_append(update: UpdateSnapshot) -> Producer:
    """PyIceberg merges manifests only if the table enables it; Iceberg does unless the table disables it."""
    producer = update.merge_append()
    producer._merge_enabled = True
    return producer


def overwrite(update: UpdateSnapshot) -> Producer:
    """Locks the manifest evaluator: it is stateful, but PyIceberg calls it from many threads, and would miss files."""
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


def drop_merged(producer: Producer, transaction: Transaction) -> None:
    """Delete the manifest that was merged into another one before the commit: nothing references it."""
    snapshot = transaction.table_metadata.snapshot_by_id(producer.snapshot_id)
    io = transaction._table.io
    if snapshot is None or len(producer._written_manifests) < 2:
        return
    listed = {manifest.manifest_path for manifest in snapshot.manifests(io)}
    for path in producer._written_manifests:
        if path not in listed:
            with suppress(Exception):  # if it stays, it is an orphan, which maintenance removes
                io.delete(path)
