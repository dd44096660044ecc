"""A plan with what it does to each table, for people and programs: ranges of partitions instead of lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from floe_core.formatting import counted, human_bytes
from floe_core.models import WriteMode
from floe_core.notebooks import heading_html, table_html
from floe_core.security import redact
from floe_dagster.planned_writes import PlannedWrite, SchemaPlan, planned_writes
from floe_runtime.runs.partition_keys import KeyRange, key_ranges, known_keys
from floe_runtime.runs.planning import RunPlan, RunRequest, not_atomic, plan_run
from floe_runtime.runs.reasons import Cause, Reason

if TYPE_CHECKING:
    from dagster import AssetKey

    from floe_runtime.runs.pipeline import Pipeline

__all__ = [
    "NOTHING_MISSING",
    "DescribedAsset",
    "DescribedPlan",
    "DescribedReason",
    "describe",
    "effect_text",
    "plan_with_effects",
    "ranges_text",
    "reason_texts",
    "schema_text",
]

NOTHING_MISSING = "nothing is missing: everything was materialized before"
_OF_DATA = ". Nothing was written to "  # begins the hint of a schema mismatch: to cast the data
_RANGES = 4  # ranges of partitions that one line names


class _Ranges:
    """Turns partitions of a plan into ranges; each set of partitions once, because most assets share theirs."""

    def __init__(self, pipeline: Pipeline, plan: RunPlan) -> None:
        self._instance = pipeline.instance
        # Those that run share their partitions; if none does, the plan may still name what is outdated.
        keys = [*(asset.key for asset in plan.assets if asset.partitions), *plan.selected]
        definitions = (pipeline.graph.get(key).partitions_def for key in keys)
        self._definition = next((definition for definition in definitions if definition is not None), None)
        self._known = known_keys(self._definition, self._instance) if self._definition is not None else []
        self._found: dict[tuple[str, ...], tuple[KeyRange, ...]] = {}

    def of(self, partitions: tuple[str, ...]) -> tuple[KeyRange, ...]:
        if self._definition is None or not partitions:
            return ()
        if partitions not in self._found:
            self._found[partitions] = tuple(key_ranges(self._definition, self._instance, partitions, self._known))
        return self._found[partitions]


@dataclass(frozen=True)
class DescribedReason:
    """Why an asset runs for these partitions; none if it is not partitioned."""

    reason: str
    detail: str
    partitions: tuple[KeyRange, ...]


@dataclass(frozen=True)
class DescribedAsset:
    """An asset that runs, and its write; None if Floe does not store the asset."""

    asset: str
    partitions: tuple[KeyRange, ...]
    reasons: tuple[DescribedReason, ...]
    runs: int
    write: PlannedWrite | None

    @property
    def refused(self) -> tuple[str, ...]:
        return self.write.refused if self.write is not None else ()


@dataclass(frozen=True)
class DescribedPlan:
    """A plan with its effects. `plan` has the partitions one by one."""

    plan: RunPlan
    partitions: tuple[KeyRange, ...]
    assets: tuple[DescribedAsset, ...]
    outdated: tuple[tuple[str, DescribedReason], ...]

    @property
    def refusal(self) -> str | None:
        """Why the run, or a part of it, would be refused; None if nothing would."""
        if self.plan.refused is not None:
            return self.plan.refused
        refused = [asset.asset for asset in self.assets if asset.refused]
        return f"{', '.join(refused)} would be refused" if refused else None

    @property
    def created(self) -> list[str]:
        """The tables that the run creates."""
        return [asset.write.table for asset in self.assets if asset.write is not None and asset.write.creates]

    def _repr_html_(self) -> str:
        if not self.plan.batches and self.refusal is None:
            return heading_html(NOTHING_MISSING)
        why = [
            "\n".join(f"{partitions}: {reasons}" if partitions else reasons for partitions, reasons in texts)
            for texts in (reason_texts(asset.reasons) for asset in self.assets)
        ]
        effects = ["\n".join((effect_text(asset.write), *map(redact, asset.refused))) for asset in self.assets]
        columns = [("asset", [asset.asset for asset in self.assets]), ("why", why), ("what it does", effects)]
        refused = heading_html(f"refused: {redact(self.refusal)}") if self.refusal is not None else ""
        return table_html(columns) + refused

    @property
    def causes(self) -> Mapping[str, int]:
        """The number of assets for each cause but the request itself."""
        return Counter(
            reason
            for asset in self.assets
            for reason in dict.fromkeys(one.reason for one in asset.reasons)
            if reason != Cause.REQUESTED.value
        )


def plan_with_effects(pipeline: Pipeline, request: RunRequest, *, atomic: bool = False) -> DescribedPlan:
    """Plan a run and what it does to the tables; nothing is materialized, and no data file is read.

    Args:
        pipeline: The pipeline.
        request: What the run is asked for.
        atomic: Refuse a run that would not be published as a whole.
    """
    plan = plan_run(pipeline, request, compare=True)
    if atomic and plan.refused is None:
        plan = replace(plan, refused=not_atomic(pipeline, plan))
    wanted = {asset.key: asset.partitions for asset in plan.assets}
    writes = planned_writes(pipeline.definitions, wanted, pipeline.instance)
    return describe(pipeline, plan, {key: _of_declaration(write) for key, write in writes.items()})


def _of_declaration(write: PlannedWrite) -> PlannedWrite:
    """The write with refusals in words of a plan: the columns that do not fit are declared, and no data exists yet."""
    texts = (text.partition(_OF_DATA) for text in write.refused)
    hint = ". The declared columns do not fit the table: correct the declaration, or write to a new table"
    return replace(write, refused=tuple(f"{reason}{hint}" if found else reason for reason, found, _ in texts))


def describe(pipeline: Pipeline, plan: RunPlan, writes: Mapping[AssetKey, PlannedWrite] | None = None) -> DescribedPlan:
    """Describe a plan, with what is known of its writes."""
    ranges = _Ranges(pipeline, plan)

    def described(reason: Reason) -> DescribedReason:
        return DescribedReason(reason.cause.value, reason.detail, ranges.of(reason.partitions))

    return DescribedPlan(
        plan=plan,
        partitions=ranges.of(plan.partitions),
        assets=tuple(
            DescribedAsset(
                asset=asset.name,
                partitions=ranges.of(asset.partitions),
                reasons=tuple(map(described, asset.reasons)),
                runs=asset.runs,
                write=(writes or {}).get(asset.key),
            )
            for asset in plan.assets
        ),
        outdated=tuple((name, described(reason)) for name, reason in plan.outdated),
    )


def effect_text(write: PlannedWrite | None) -> str:
    """What a write does to its table."""
    if write is None:
        return "is not stored by Floe"
    if not write.table:
        return "its table is known when it runs: its IO manager needs the configuration of a run"
    table = write.table if write.branch == "main" else f"{write.table} (branch {write.branch})"
    if write.refused:
        return f"-> {table}"
    if write.creates:
        return f"creates {table}"
    if write.mode == WriteMode.APPEND.value:
        return f"appends to {table}"
    replaced = write.replaces
    if write.mode == WriteMode.UPSERT.value or replaced is None:
        return f"upserts {table}: the rows that it changes are known when it runs"
    if not replaced.files:
        return f"adds to {table}"
    files = f"{counted(replaced.files, 'file')} ({human_bytes(replaced.bytes)})"
    return f"replaces {'' if replaced.exact else 'at most '}{counted(replaced.rows, 'row')} in {files} of {table}"


def reason_texts(reasons: Iterable[DescribedReason]) -> Iterator[tuple[str, str]]:
    """The partitions, and why they run; reasons for the same partitions are put together."""
    together: dict[tuple[KeyRange, ...], list[str]] = {}
    for reason in reasons:
        detail = f" ({reason.detail})" if reason.detail else ""
        together.setdefault(reason.partitions, []).append(f"{reason.reason}{detail}")
    for partitions, texts in together.items():
        yield ranges_text(partitions), ", ".join(texts)


def schema_text(schema: SchemaPlan) -> str:
    """The change of the schema; empty if an asset declares its columns and they fit."""
    if not schema.known:
        return "schema: known when it runs" + (f" ({schema.note})" if schema.note else "")
    if schema.columns:
        return f"columns: {', '.join(schema.columns)}"
    note = f" ({schema.note})" if schema.note else ""
    return f"schema: {', '.join(schema.changes)}{note}" if schema.changes else ""


def ranges_text(ranges: Sequence[KeyRange], *, with_counts: bool = True) -> str:
    """Ranges of partitions; of many, the first ones and how many partitions are left."""
    shown = [str(one) if with_counts or one.count == 1 else f"{one.first}...{one.last}" for one in ranges[:_RANGES]]
    rest = sum(one.count for one in ranges[_RANGES:])
    return ", ".join(shown) + (f" and {counted(rest, 'other')}" if rest else "")
