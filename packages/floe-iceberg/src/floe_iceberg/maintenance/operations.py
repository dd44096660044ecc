"""Maintenance that rewrites or deletes files: requested here, executed by an engine behind the compute port."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Protocol

from floe_core.config import CompactionStrategy, CompiledArtifacts
from floe_core.errors import ConfigurationError, PluginError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.maintenance import CompactReport, ExpireReport, ManifestsReport, OrphansReport, StatisticsReport
from floe_core.plugins import ComputePlugin, create_compute_plugin, start
from floe_iceberg.arguments import TableName, choice, identifier_of, names_of
from floe_iceberg.errors import translated
from floe_iceberg.maintenance.leases import Tables, leased, release
from floe_iceberg.maintenance.pins import Tables as Tagging
from floe_iceberg.maintenance.pins import keep_pinned
from floe_iceberg.reading.damage import check_listed
from floe_iceberg.snapshots import LakeBranch, refuse_on_branch

if TYPE_CHECKING:
    from floe_iceberg.lake import Lake

__all__ = ["PhysicalMaintenance"]

_KEEP = "history.expire.min-snapshots-to-keep"


class PhysicalMaintenance(Tables, Tagging, Protocol):
    """Operations of a manager on files. They run one at a time per table, without a check against the policy."""

    compute: ComputePlugin | None = None
    lake: Lake | None = None  # the lake that opened the tables
    artifacts: CompiledArtifacts | None = None
    at_branch: LakeBranch | None = None

    def lake_branches(self) -> list[LakeBranch] | None:
        """The branches of the lake; None if this user may not list namespaces."""

    def expire_snapshots(
        self,
        identifier: TableName,
        older_than_days: float = 7,
        *,
        keep_last: int | None = None,
    ) -> ExpireReport:
        """Expire older snapshots, and delete the files that only they reference.

        Tags, branches and their snapshots stay. The retention is used as given: governance has validated it.

        Args:
            keep_last: Snapshots of each branch that stay regardless of age; by default the table's setting, or 1.
        """
        identifier = identifier_of(identifier)
        if not _is_number(older_than_days) or older_than_days <= 0:
            raise ConfigurationError(
                f"older_than_days is {older_than_days!r}; it must be a number of days above 0. Nothing was expired"
            )
        if keep_last is not None and (not _is_whole(keep_last) or keep_last < 1):
            raise ConfigurationError(f"keep_last is {keep_last!r}; it must be 1 or more. Nothing was expired")
        moment = _days_ago(older_than_days)
        with self._maintained(identifier) as compute:
            if keep_last is None:
                configured = self.load_table(identifier).properties.get(_KEEP, "1")
                keep_last = int(configured) if configured.isdecimal() and int(configured) > 0 else 1
            keep_pinned(self, identifier, self.lake_branches())
            return compute.expire_snapshots(identifier, older_than=moment, keep_last=keep_last)

    def compact_table(
        self,
        identifier: TableName,
        strategy: CompactionStrategy | str = CompactionStrategy.BIN_PACK,
        *,
        columns: Sequence[str] = (),
        slice: TableSlice | None = None,  # noqa: A002 - Iceberg's noun; the builtin is not needed here
        target_file_size: int | None = None,
        min_files: int = 5,
    ) -> CompactReport:
        """Rewrite small files into larger ones, and apply delete files; readers see the same rows.

        Args:
            strategy: binpack keeps the order of rows; sort and zorder order them by `columns`.
            slice: Only the files that may hold rows of it.
            target_file_size: In bytes; by default the table's setting.
            min_files: How many small files a partition must have to be compacted.
        """
        identifier = identifier_of(identifier)
        chosen = choice(CompactionStrategy, strategy, "strategy")
        if slice is not None and not isinstance(slice, TableSlice):
            raise ConfigurationError(f"slice is {slice!r}; it must be a TableSlice. Nothing was compacted")
        for name, number in (("target_file_size", target_file_size), ("min_files", min_files)):
            if number is not None and not _is_whole(number):
                raise ConfigurationError(f"{name} is {number!r}; it must be a whole number. Nothing was compacted")
        with self._maintained(identifier) as compute:
            return compute.compact(
                identifier,
                strategy=chosen,
                columns=names_of(columns, "columns"),
                slice=slice,
                target_file_size=target_file_size,
                min_files=min_files,
            )

    def rewrite_manifests(self, identifier: TableName) -> ManifestsReport:
        """Rewrite the manifests of a table: the same files in fewer manifests, sorted by partition."""
        identifier = identifier_of(identifier)
        with self._maintained(identifier) as compute:
            return compute.rewrite_manifests(identifier)

    def remove_orphans(
        self, identifier: TableName, older_than_days: float = 3, *, dry_run: bool = True
    ) -> OrphansReport:
        """Delete files that a writer of the table left and nothing references; `dry_run` only lists them.

        Other files below its location stay; the report lists them as `not_removed`, with the reason.

        Args:
            older_than_days: Longer than the longest write takes, and at least 1: until a write commits, its files look
                like orphans.
        """
        identifier = identifier_of(identifier)
        if not _is_number(older_than_days) or older_than_days < 1:
            raise ConfigurationError(
                f"older_than_days is {older_than_days!r}; it must be 1 or more: the files of a write that is still "
                f"running look like orphans. Nothing was deleted"
            )
        moment = _days_ago(older_than_days)
        if dry_run:  # nothing is changed, so it takes no lease
            return self.require_compute().remove_orphans(identifier, older_than=moment, dry_run=True)
        with self._maintained(identifier) as compute:
            return compute.remove_orphans(identifier, older_than=moment, dry_run=False)

    def compute_statistics(self, identifier: TableName, *, columns: Sequence[str] = ()) -> StatisticsReport:
        """Count distinct values, for engines that use them to plan joins."""
        identifier = identifier_of(identifier)
        with self._maintained(identifier) as compute:
            return compute.compute_statistics(identifier, columns=names_of(columns, "columns"))

    def release_lease(self, identifier: TableName, *, force: bool = False) -> str | None:
        """End the lease of a maintenance that failed or was killed; returns the holder, or None without a lease.

        Args:
            force: Also if its process runs on this machine, or renews the lease during the call. That process stops
                before its next step.
        """
        return release(self, identifier_of(identifier), force=force)

    @contextmanager
    def _maintained(self, identifier: TableIdentifier) -> Iterator[ComputePlugin]:
        """The engine, while this process holds the lease of the table."""
        refuse_on_branch(self.at_branch, "maintain a table")
        compute = self.require_compute()
        table = self.load_table(identifier)
        if table.current_snapshot() is None:
            yield compute  # a table without a snapshot needs no lease
            return
        with translated("maintain", identifier):
            check_listed(table.current_snapshot(), table.io)
        with leased(self, identifier):
            yield compute

    def require_compute(self) -> ComputePlugin:
        """The engine behind the port; Spark starts with the first operation, not before."""
        if self.compute is None:
            artifacts = self.artifacts if self.lake is None else self.lake.artifacts
            if artifacts is None:
                raise PluginError(
                    "DataFrames, compaction, expiry and removal of files are done by Spark: install floe-spark (pip "
                    "install floe-spark), and take the tables from floe_iceberg.Lake(artifacts).tables"
                )
            try:
                compute = create_compute_plugin(artifacts)
            except PluginError as exc:
                raise PluginError(
                    f"DataFrames, compaction, expiry and removal of files are done by Spark: pip install floe-spark "
                    f"({exc})"
                ) from exc
            start(compute)
            compute.use_lake(self.lake or _lake_of(artifacts, self))
            self.compute = compute
        return self.compute


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)


def _is_whole(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int)


def _days_ago(days: float) -> datetime:
    try:
        return datetime.now(timezone.utc) - timedelta(days=days)
    except OverflowError:
        raise ConfigurationError(f"older_than_days {days!r} goes back further than any calendar") from None


def _lake_of(artifacts: CompiledArtifacts, tables: Any) -> Lake:
    """A lake of these tables, for a manager that was opened without one."""
    from floe_iceberg.lake import Lake  # which imports the manager

    return Lake.of_tables(artifacts, tables)
