"""The table that rows are moved to: its columns, whose rows it takes, and the write that moves them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import NestedField, StringType, TimestamptzType

from floe_core.config import TableCheck, check_name, quarantine_of
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.models import WriteMode
from floe_iceberg.checks import refuse_equal_names
from floe_iceberg.expressions import slice_filter
from floe_iceberg.manager import IcebergTableManager
from floe_iceberg.partitioning.specs import transforms_of
from floe_iceberg.quarantine.division import FAILED_CHECKS
from floe_iceberg.schema import with_optional_columns
from floe_iceberg.snapshots import DATA_ROWS, FOLLOWED, MOVED_FROM, UPSERTS, WRITE_ID, StagingBranch, unpublished_by
from floe_iceberg.transactions import NewTable
from floe_iceberg.writing import ArrowSource, WriteRequest

__all__ = ["COUNTS", "MARKS", "WRITE", "Quarantine", "check_target", "marks_of", "move_request", "open_target"]

_RUN, _PARTITION, WRITE, _TIME = "floe_run_id", "floe_partition", "floe_write_id", "floe_quarantined_at"
# The columns that say where a row comes from.
MARKS = (_RUN, _PARTITION, _TIME, WRITE)
# The columns of a quarantine table beside those of the table whose rows it takes.
_OWN = {
    FAILED_CHECKS: StringType(),
    _RUN: StringType(),
    _PARTITION: StringType(),
    _TIME: TimestamptzType(),
    WRITE: StringType(),
}
# The property of a quarantine table that names the table whose rows it takes.
OF = "floe.quarantine-of"
# In the summary of a snapshot that moved rows: their numbers.
COUNTS = "floe.quarantined"


@dataclass(frozen=True)
class Quarantine:
    """Where the rows go that break some checks.

    Args:
        table: The table.
        checks: The checks; each holds for a row by itself.
        run_id: The run, whose branch of the table the rows are written to.
        partition: The partitions of the run, as a label; None if it has none.
        keep: The age at which expiry removes the branch.
    """

    table: TableIdentifier
    checks: Sequence[TableCheck]
    run_id: str
    partition: str | None = None
    keep: timedelta | None = None

    def without_null(self, data: ArrowSource) -> ArrowSource:
        """The data, of which columns are known to hold no NULL when the rows that break a check are gone."""
        rules = {name.lower() for check in self.checks for name in check.not_null or ()}
        full = frozenset(name for name in data.schema.names if name.lower() in rules)
        return replace(data, full=data.full | full)

    @classmethod
    def of_draft(
        cls,
        tables: IcebergTableManager,
        source: TableIdentifier,
        checks: Sequence[TableCheck],
        run_id: str,
        keep: timedelta,
        *,
        one_by_one: bool,
    ) -> Quarantine:
        """The quarantine of a draft; ConfigurationError if these checks, or this catalog, cannot have one.

        Args:
            tables: The manager of the tables.
            source: The table whose rows are moved.
            checks: The checks.
            run_id: The run.
            keep: The age at which expiry removes the branch.
            one_by_one: Whether both tables may be published one after the other.
        """
        refuse_equal_names(checks, f"'{source}'")
        without = [check_name(check) for check in checks if not check.quarantine]
        target = quarantine_of(checks, source)
        if without or target is None:
            raise ConfigurationError(
                f"{', '.join(without)}: a check that moves rows has quarantine=True, or the name of a table"
            )
        problem = tables.refuses_many_tables
        if problem is not None and not one_by_one:
            raise ConfigurationError(
                f"{problem}, so '{source}' and '{target}' cannot be published together. Nothing was written: use a "
                f"catalog that can (type: sql, or a server such as Apache Polaris), or pass one_by_one=True, so that "
                f"readers may see one of them before the other"
            )
        return cls(target, tuple(checks), run_id, keep=keep)


def check_target(table: Table | None, quarantine: Quarantine, source: TableIdentifier, schema: Schema) -> None:
    """Refuse a table that does not take rows of the source, and columns that would have one name.

    Args:
        table: The quarantine table, if it exists.
        quarantine: The quarantine.
        source: The table whose rows are moved.
        schema: Its columns.
    """
    taken = [field.name for field in schema.fields if field.name.lower() in _OWN]
    if taken:
        raise ConfigurationError(
            f"'{source}' has the columns {', '.join(taken)}, which a quarantine table has itself; drop or rename them, "
            f"or leave out quarantine. Nothing was written"
        )
    if table is not None:
        _owned_by(source, quarantine.table)(table)


def _owned_by(source: TableIdentifier, target: TableIdentifier) -> Callable[[Table], None]:
    """A check that the table takes rows of the source."""

    def check(table: Table) -> None:
        known = table.properties.get(OF)
        if known is None or known.lower() != source.full_name.lower():
            whose = f"takes the rows of '{known}'" if known else "exists and is no quarantine table"
            raise ConfigurationError(
                f"'{target}' {whose} (table property {OF}), so rows of '{source}' are not moved there; name another "
                f"table in quarantine, or drop or rename this one. Nothing was written"
            )

    return check


def open_target(
    tables: IcebergTableManager, quarantine: Quarantine, source: Table, identifier: TableIdentifier
) -> Table:
    """The quarantine table with the branch of the run; it is created, unpublished, with the columns of the source."""
    fields = with_optional_columns(source.schema()).fields
    first = source.schema().highest_field_id + 1
    own = [NestedField(first + number, name, kind, required=False) for number, (name, kind) in enumerate(_OWN.items())]
    partition_by = transforms_of(source.spec(), source.schema())
    new = NewTable(Schema(*fields, *own), partition_by, {OF: identifier.full_name})
    if tables.at_branch is not None:
        return tables.begin_branch(tables.at_branch, quarantine.table, tables.find_table(quarantine.table), new)
    return tables.open_branch(quarantine.table, StagingBranch.of_run(quarantine.run_id), new, max_age=quarantine.keep)


def marks_of(quarantine: Quarantine, write_id: str) -> dict[str, str | datetime | None]:
    """The values that each moved row gets beside its own."""
    return {
        _RUN: quarantine.run_id,
        _PARTITION: quarantine.partition,
        _TIME: datetime.now(timezone.utc),
        WRITE: write_id,
    }


def move_request(
    tables: IcebergTableManager, request: WriteRequest, quarantine: Quarantine, *, rows: int, counts: Mapping[str, int]
) -> WriteRequest | None:
    """The write that moves the rows of a write; None if there are none, and none to replace.

    It replaces what an earlier write of the same slice moved, and what an earlier attempt of this write did.

    Args:
        tables: The manager of the tables.
        request: The write of the table that the rows are taken from.
        quarantine: The quarantine.
        rows: How many rows are moved.
        counts: How many rows break each check.
    """
    table = tables.find_table(quarantine.table)
    ref = _ref(table, request.branch)
    replaced = _replaced(request, table)
    replaces = ref is not None and _has_rows(tables, quarantine.table, ref, replaced)
    if not rows and not replaces:
        return None
    write_id = uuid.uuid4().hex
    kept = {key: value for key, value in request.summary.items() if key not in (FOLLOWED, UPSERTS, DATA_ROWS)}
    found = {MOVED_FROM: request.write_id, COUNTS: json.dumps({"rows": rows, "checks": dict(counts)})}
    moves = replace(
        request,
        identifier=quarantine.table,
        mode=WriteMode.OVERWRITE,
        write_id=write_id,
        summary={**kept, WRITE_ID: write_id, **found},
        keys=(),
        commit_strategy=None,
        partition_by=(),
        properties=None,
        validate_from=None,
        evolve=True,
        allow_empty=True,
        check=_owned_by(request.identifier, quarantine.table),
        marks={},
        sample_rows=0,
    )
    if request.mode is WriteMode.OVERWRITE:
        return moves
    if replaces:
        return replace(moves, slice=None, overwrite_filter=replaced)
    return replace(moves, mode=WriteMode.APPEND, allow_empty=False)


def _replaced(request: WriteRequest, table: Table | None) -> BooleanExpression:
    """The rows of the quarantine table that the write replaces."""
    if request.mode is not WriteMode.OVERWRITE:
        equal: Any = EqualTo  # PyIceberg declares other arguments than it takes
        return equal(WRITE, request.write_id)  # type: ignore[no-any-return]
    if request.slice is None or table is None:
        return AlwaysTrue()
    return slice_filter(request.slice, table.schema())


def _ref(table: Table | None, branch: str) -> str | None:
    """What shows the rows that the quarantine table has: the branch of the run, or main."""
    if table is None or table.current_snapshot() is None:
        return None
    if branch in table.metadata.refs:
        return branch
    return None if unpublished_by(table.properties) is not None else MAIN_BRANCH


def _has_rows(tables: IcebergTableManager, identifier: TableIdentifier, ref: str, condition: BooleanExpression) -> bool:
    return bool(tables.scan(identifier, ref=ref, row_filter=condition, limit=1).to_arrow().num_rows)
