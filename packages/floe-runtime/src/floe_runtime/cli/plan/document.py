"""A plan as one JSON document; docs/guides/plan.md describes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from floe_runtime.cli.common import document

if TYPE_CHECKING:
    from floe_core.config import CompiledArtifacts
    from floe_runtime.runs.described_plan import DescribedAsset, DescribedPlan, DescribedReason
    from floe_runtime.runs.partition_keys import KeyRange

__all__ = ["plan_document"]


def plan_document(artifacts: CompiledArtifacts, described: DescribedPlan) -> dict[str, Any]:
    """The plan with ranges of partitions."""
    plan, refusal = described.plan, described.refusal
    return {
        "ok": refusal is None,
        "error": refusal,
        "project": artifacts.name,
        "environment": artifacts.environment,
        "protected": artifacts.protected,
        "runs": len(plan.batches),
        "partitions": len(plan.partitions),
        "partition_ranges": _ranges(described.partitions),
        "creates": described.created,
        "assets": [_asset(asset) for asset in described.assets],
        "left_out": [dataclasses.asdict(asset) for asset in plan.left_out],
        "outdated": [{"asset": name, **_reason(reason)} for name, reason in described.outdated],
        "differences": [dataclasses.asdict(difference) for difference in plan.differences],
        "refused": plan.refused,
    }


def _asset(asset: DescribedAsset) -> dict[str, Any]:
    return {
        "asset": asset.asset,
        "partitions": sum(one.count for one in asset.partitions),
        "partition_ranges": _ranges(asset.partitions),
        "runs": asset.runs,
        "reasons": [_reason(reason) for reason in asset.reasons],
        "write": document(asset.write),
    }


def _reason(reason: DescribedReason) -> dict[str, Any]:
    return {"reason": reason.reason, "detail": reason.detail or None, "partition_ranges": _ranges(reason.partitions)}


def _ranges(ranges: Sequence[KeyRange]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(one) for one in ranges]
