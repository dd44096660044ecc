"""Who decides how short the history of a table may be kept. Maintenance asks; the tables themselves enforce nothing."""

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
    """What one level of an organisation demands: history is kept at least this long."""

    minimum: timedelta
    said_by: str


@runtime_checkable
class PolicyEnforcer(Protocol):
    """Resolves the retention of a table over the levels that have a say."""

    def get_snapshot_retention(
        self,
        table: TableIdentifier,
        asked: timedelta,
        *,
        enterprise_policy: RetentionRule,
        domain_policy: RetentionRule | None,
        product_policy: RetentionRule | None,
    ) -> timedelta:
        """How long history is kept: as asked, longer, or a ConfigurationError that says who does not allow it."""


class FloorEnforcer:
    """Takes what is asked for, and refuses anything that is shorter than a level demands."""

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
                    f"{rule.said_by}), not for {duration_text(asked)}; nothing was done: keep it longer, or ask "
                    f"whoever owns that rule"
                )
        return asked


def validated_retention(
    enforcer: PolicyEnforcer, floor: RetentionFloor, table: TableIdentifier, asked: timedelta
) -> timedelta:
    """What the enforcer makes of the retention asked for, given the rules of floe.yaml for this table."""
    lineage = [str(one) for one in Namespace(levels=table.namespace).lineage()]
    domain = max((one for one in lineage if one in floor.domains), key=lambda one: floor.domains[one], default=None)
    product = str(table) if str(table) in floor.products else None
    found = enforcer.get_snapshot_retention(
        table,
        asked,
        enterprise_policy=RetentionRule(floor.enterprise, "maintenance.floor.enterprise"),
        domain_policy=RetentionRule(floor.domains[domain], f"maintenance.floor.domains.{domain}") if domain else None,
        product_policy=RetentionRule(floor.products[product], f"maintenance.floor.products.{product}")
        if product
        else None,
    )
    if not isinstance(found, timedelta) or found < asked:
        raise ConfigurationError(
            f"the policy enforcer answered {found!r} for '{table}'; it must be a timedelta, and not shorter than the "
            f"{duration_text(asked)} that were asked for. Nothing was done"
        )
    return found
