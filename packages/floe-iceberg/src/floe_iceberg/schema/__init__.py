"""Schemas: the mapping of Arrow types, evolution by writes, explicit changes and drift."""

from floe_iceberg.schema.columns import no_column
from floe_iceberg.schema.evolution import SchemaChange, to_iceberg_schema
from floe_iceberg.schema.types import column_problems

__all__ = ["SchemaChange", "column_problems", "no_column", "to_iceberg_schema"]
