"""Schemas: the mapping of Arrow types, evolution by writes, explicit changes and drift."""

from floe_iceberg.schema.columns import no_column, with_optional_columns
from floe_iceberg.schema.early_columns import refuse_early_columns
from floe_iceberg.schema.evolution import SchemaChange, fits_schema, plan_change, to_iceberg_schema
from floe_iceberg.schema.types import column_problems

__all__ = [
    "SchemaChange",
    "column_problems",
    "fits_schema",
    "no_column",
    "plan_change",
    "refuse_early_columns",
    "to_iceberg_schema",
    "with_optional_columns",
]
