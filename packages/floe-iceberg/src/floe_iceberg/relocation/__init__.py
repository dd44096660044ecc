"""Relocation: the paths in the metadata of an embedded lake whose folder moved."""

from floe_iceberg.relocation.move import move_namespace, move_table
from floe_iceberg.relocation.plan import MovePlan, NamespaceMove, Refusal, TableMove, plan_moves

__all__ = ["MovePlan", "NamespaceMove", "Refusal", "TableMove", "move_namespace", "move_table", "plan_moves"]
