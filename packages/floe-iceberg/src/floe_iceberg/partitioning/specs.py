"""The layout of a new table: its partition spec and its sort order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.table.sorting import SortField as IcebergSortField
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import NestedField

from floe_core.errors import ConfigurationError
from floe_core.models import PartitionTransform, PartitionTransformType, SortField
from floe_iceberg.arguments import check_transforms
from floe_iceberg.schema.columns import no_column

__all__ = ["partition_spec", "sort_order", "transforms_of"]


def partition_spec(transforms: Sequence[PartitionTransform], schema: Schema) -> PartitionSpec:
    """The spec of these transforms, its fields named as Spark names them."""
    check_transforms(transforms)
    fields = []
    for number, requested in enumerate(transforms):
        source = _column(requested.source_column, schema, "partition_by")
        _refuse_inside_list(source, requested.source_column, schema)
        transform = _iceberg_transform(requested)
        if not transform.can_transform(source.field_type):
            raise ConfigurationError(
                f"partition_by: column {source.name!r} is {source.field_type}, which {transform} cannot take"
            )
        fields.append(
            PartitionField(
                source_id=source.field_id,
                field_id=PARTITION_FIELD_ID_START + number,
                transform=transform,
                name=requested.field_name,
            )
        )
    _refuse_duplicates(fields, schema)
    return PartitionSpec(*fields)


def transforms_of(spec: PartitionSpec, schema: Schema) -> list[PartitionTransform]:
    """The transforms of a spec, for another table with these columns; without those that Floe does not create."""
    kinds = {type(transform): kind for kind, transform in _PLAIN.items()}
    found = []
    for field in spec.fields:
        column, transform = schema.find_column_name(field.source_id), field.transform
        if column is None:
            continue
        if isinstance(transform, BucketTransform):
            kind, size = PartitionTransformType.BUCKET, {"num_buckets": transform.num_buckets}
        elif isinstance(transform, TruncateTransform):
            kind, size = PartitionTransformType.TRUNCATE, {"width": transform.width}
        elif type(transform) in kinds:
            kind, size = kinds[type(transform)], {}
        else:
            continue
        found.append(PartitionTransform(source_column=column, transform_type=kind, name=field.name, **size))
    return found


def _refuse_inside_list(source: NestedField, name: str, schema: Schema) -> None:
    try:
        schema.accessor_for_field(source.field_id)
    except ValueError:
        raise ConfigurationError(
            f"partition_by: {name!r} lies inside a list or a map, so a row may have several values of it; name a column"
        ) from None


def _refuse_duplicates(fields: Sequence[PartitionField], schema: Schema) -> None:
    names = [field.name for field in fields]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigurationError(
            f"partition_by: the fields {', '.join(sorted(twice))} are given twice; name one of them"
        )
    for number, field in enumerate(fields):
        column = schema.find_column_name(field.source_id)
        for other in (earlier for earlier in fields[:number] if earlier.source_id == field.source_id):
            if other.transform == field.transform:
                raise ConfigurationError(f"partition_by: {field.transform} of {column!r} is given twice")
            if isinstance(other.transform, TimeTransform) and isinstance(field.transform, TimeTransform):
                raise ConfigurationError(
                    f"partition_by: {other.transform} and {field.transform} of {column!r} are redundant; "
                    f"keep the finer one"
                )
        is_itself = isinstance(field.transform, IdentityTransform) and field.name == column
        if field.name in schema.column_names and not is_itself:
            raise ConfigurationError(
                f"partition_by: {field.transform} of {column!r} cannot be named {field.name!r}: {field.name!r} is a "
                f"column; choose another name"
            )


def sort_order(fields: Sequence[SortField], schema: Schema) -> SortOrder:
    """The order of the rows within a file."""
    return SortOrder(
        *(
            IcebergSortField(
                source_id=_column(field.column, schema, "sort_by").field_id,
                transform=IdentityTransform(),
                direction=SortDirection.DESC if field.descending else SortDirection.ASC,
                null_order=NullOrder.NULLS_LAST if field.nulls_last else NullOrder.NULLS_FIRST,
            )
            for field in fields
        )
    )


def _column(name: str, schema: Schema, argument: str) -> NestedField:
    unknown = no_column([name], schema)
    if unknown:
        raise ConfigurationError(f"{argument}: there is {unknown}")
    return schema.find_field(name)


def _iceberg_transform(requested: PartitionTransform) -> Transform[Any, Any]:
    kind = requested.transform_type
    if kind is PartitionTransformType.BUCKET:
        return BucketTransform(requested.num_buckets or 0)
    if kind is PartitionTransformType.TRUNCATE:
        return TruncateTransform(requested.width or 0)
    return _PLAIN[kind]


_PLAIN: dict[PartitionTransformType, Transform[Any, Any]] = {
    PartitionTransformType.IDENTITY: IdentityTransform(),
    PartitionTransformType.YEAR: YearTransform(),
    PartitionTransformType.MONTH: MonthTransform(),
    PartitionTransformType.DAY: DayTransform(),
    PartitionTransformType.HOUR: HourTransform(),
}
