"""The minimum retention of a table's history. Maintenance enforces it; the tables themselves do not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, runtime_checkable

from floe_core.config.policy import RetentionFloor
from floe_core.config.settings import duration_text
from floe_core.errors import ConfigurationError
from floe_core.identifiers import Namespace, TableIdentifier

__all__ = ["FloorEnforcer", "PolicyEnforcer", "RetentionRule", "validated_retention"]


@dataclass(frozen=True)
class RetentionRule:
    """The minimum retention that one level of an organisation requires, and its key in floe.yaml."""

    minimum: timedelta
    source: str


@runtime_checkable
class PolicyEnforcer(Protocol):
    """Decides the retention of a table by the rules of all levels."""

    def get_snapshot_retention(
        self,
        table: TableIdentifier,
        asked: timedelta,
        *,
        enterprise_policy: RetentionRule,
        domain_policy: RetentionRule | None,
        product_policy: RetentionRule | None,
    ) -> timedelta:
        """The retention, as asked or longer. A ConfigurationError names the rule that forbids it."""


class FloorEnforcer:
    """Accepts the retention asked for, unless it is shorter than the minimum of a rule."""

    def get_snapshot_retention(
        self,
        table: TableIdentifier,
        asked: timedelta,
        *,
        enterprise_policy: RetentionRule,
        domain_policy: RetentionRule | None,
        product_policy: RetentionRule | None,
    ) -> timedelta:
        for rule in (product_policy, domain_policy, enterprise_policy):
            if rule is not None and asked < rule.minimum:
                raise ConfigurationError(
                    f"the history of '{table}' must be kept for {duration_text(rule.minimum)} at least (floe.yaml: "
                    f"{rule.source}), not for {duration_text(asked)}; nothing was done: keep it longer, or ask "
                    f"whoever owns that rule"
                )
        return asked


def validated_retention(
    enforcer: PolicyEnforcer, floor: RetentionFloor, table: TableIdentifier, asked: timedelta
) -> timedelta:
    """The enforcer's decision on the retention asked for, by the rules of floe.yaml for this table."""
    lineage = [str(namespace) for namespace in Namespace(levels=table.namespace).lineage()]
    domains = [name for name in lineage if name in floor.domains]
    domain = max(domains, key=lambda name: floor.domains[name], default=None)
    product = str(table) if str(table) in floor.products else None
    retention = enforcer.get_snapshot_retention(
        table,
        asked,
        enterprise_policy=RetentionRule(floor.enterprise, "maintenance.floor.enterprise"),
        domain_policy=RetentionRule(floor.domains[domain], f"maintenance.floor.domains.{domain}") if domain else None,
        product_policy=RetentionRule(floor.products[product], f"maintenance.floor.products.{product}")
        if product
        else None,
    )
    if not isinstance(retention, timedelta) or retention < asked:
        raise ConfigurationError(
            f"the policy enforcer answered {retention!r} for '{table}'; it must be a timedelta, and not shorter than "
            f"the {duration_text(asked)} that were asked for. Nothing was done"
        )
    return retention
