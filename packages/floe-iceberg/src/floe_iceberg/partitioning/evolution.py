"""Partition evolution: a new spec for future writes; existing files keep theirs."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, TruncateTransform, VoidTransform

from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform
from floe_iceberg.partitioning.specs import partition_spec

__all__ = ["replace_spec"]


def replace_spec(
    table: Table, identifier: TableIdentifier, partition_by: Sequence[PartitionTransform]
) -> PartitionSpec:
    """Set the table's spec in one commit; no commit if it has the same fields, in any order."""
    wanted = {_key(field): field for field in partition_spec(partition_by, table.schema()).fields}
    named = {key: transform.name for key, transform in zip(wanted, partition_by, strict=True)}
    # A table of format 1 keeps removed fields as void fields.
    current = {_key(field): field for field in table.spec().fields if not isinstance(field.transform, VoidTransform)}
    kept = [key for key in wanted if key in current]
    renamed = {current[key].name: name for key in kept if (name := named[key]) and name != current[key].name}
    removed = [field.name for key, field in current.items() if key not in wanted]
    added = [key for key in wanted if key not in current]
    _refuse_taken(table, identifier, {name: key for key, name in named.items() if name})
    update = table.update_spec()
    for name in removed:
        update.remove_field(name)
    for old, new in renamed.items():
        update.rename_field(old, new)
    for key in added:
        source = table.schema().find_column_name(wanted[key].source_id)
        name = named[key] or _free_name(table, wanted[key])
        update.add_field(source or "", wanted[key].transform, name)
    try:
        update.commit()
    except ValidationError as exc:  # a column that existed when the spec was planned
        raise ConcurrencyConflictError(
            f"another writer dropped or changed a column that '{identifier}' was to be partitioned by; nothing was "
            f"changed: check its schema, then run it again"
        ) from exc
    return table.spec()


_Key = tuple[int, str]


def _key(field: PartitionField) -> _Key:
    return field.source_id, str(field.transform)


def _fields_by_name(table: Table) -> dict[str, PartitionField]:
    """The fields of all specs by name: readers put them into one struct, where names must be unique."""
    return {field.name: field for spec in table.specs().values() for field in spec.fields}


def _refuse_taken(table: Table, identifier: TableIdentifier, names: dict[str, _Key]) -> None:
    taken = _fields_by_name(table)
    for name, key in names.items():
        if name in taken and _key(taken[name]) != key:
            other = taken[name]
            column = table.schema().find_column_name(other.source_id)
            raise ConfigurationError(
                f"partition_by: {name!r} is the name of {other.transform} of column {column!r}; choose another: "
                f"files of '{identifier}' are or were partitioned by it"
            )


def _free_name(table: Table, field: PartitionField) -> str:
    """The field's earlier name, or Spark's default; if another field has that, Spark's name for an added field."""
    taken = _fields_by_name(table)
    same = [name for name, other in taken.items() if _key(other) == _key(field)]
    if same:
        return same[-1]
    if field.name not in taken:
        return field.name
    transform = field.transform
    stem = field.name
    if isinstance(transform, BucketTransform):
        stem = f"{field.name}_{transform.num_buckets}"
    elif isinstance(transform, TruncateTransform):
        stem = f"{field.name}_{transform.width}"
    candidates = (stem, *(f"{stem}_{number}" for number in range(2, 1000)))
    return next(name for name in candidates if name not in taken and name not in table.schema().column_names)
