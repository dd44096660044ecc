"""A plan as Markdown, for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from floe_core.security import redact
from floe_runtime.cli.plan.text import summary_lines
from floe_runtime.runs.described_plan import effect_text, ranges_text, reason_texts, schema_text

if TYPE_CHECKING:
    from floe_runtime.runs.described_plan import DescribedAsset, DescribedPlan

__all__ = ["markdown_lines"]


def markdown_lines(described: DescribedPlan, name: str) -> Iterator[str]:
    """A heading, the summary, a table of the assets, and what would be refused."""
    yield f"### floe plan: {_cell(name)}"
    yield ""
    if not described.plan.batches:
        yield "Nothing is missing: everything was materialized before."
        yield from _refused(described)
        return
    first, *others = summary_lines(described, name, described.created)
    yield _cell(first.plain.removeprefix(f"{name}: "))
    yield ""
    for line in others:
        yield f"- {_cell(line.plain.strip())}"
    if others:
        yield ""
    yield "| asset | why | what it does | schema |"
    yield "|---|---|---|---|"
    for asset in described.assets:
        yield _row(asset)
    yield from _refused(described)


def _row(asset: DescribedAsset) -> str:
    why = "<br>".join(
        _cell(f"{partitions}: {reasons}" if partitions else reasons)
        for partitions, reasons in reason_texts(asset.reasons)
    )
    effect = _cell(effect_text(asset.write))
    schema = schema_text(asset.write.schema) if asset.write is not None and not asset.refused else ""
    shown = _cell(schema.removeprefix("schema: ").removeprefix("columns: "))
    return f"| `{asset.asset}` | {why} | {'**refused** ' if asset.refused else ''}{effect} | {shown} |"


def _refused(described: DescribedPlan) -> Iterator[str]:
    reasons = [f"`{asset.asset}`: {_cell(reason)}" for asset in described.assets for reason in asset.refused]
    if described.plan.refused is not None:
        reasons.insert(0, _cell(described.plan.refused))
    for name, reason in described.outdated:
        partitions = f" ({ranges_text(reason.partitions)})" if reason.partitions else ""
        yield ""
        yield f"Not recomputed, {reason.reason}: `{name}`{_cell(partitions)}, {_cell(reason.detail)}"
    for difference in described.plan.differences:
        yield ""
        yield f"Warning: {_cell(redact(difference.message))}"
    if reasons:
        yield ""
        yield "**Refused**"
        yield ""
        yield from (f"- {reason}" for reason in reasons)


def _cell(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    escaped = redact(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    return " ".join(escaped.replace("_", "\\_").replace("`", "\\`").split())
