"""A plan as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from floe_core.formatting import counted
from floe_core.security import redact
from floe_runtime.runs.described_plan import NOTHING_MISSING, effect_text, ranges_text, reason_texts, schema_text
from floe_runtime.runs.reasons import Cause

if TYPE_CHECKING:
    from rich.console import Console

    from floe_runtime.runs.described_plan import DescribedAsset, DescribedPlan
    from floe_runtime.runs.partition_keys import KeyRange

__all__ = ["left_out_lines", "print_plan", "summary_lines"]

_COMMANDS = 4  # ranges of partitions, each recomputed by a command of its own
_NAMES = 5  # tables and assets that one line names


def print_plan(
    out: Console, described: DescribedPlan, name: str, *, arguments: Sequence[str] = (), where: Sequence[str] = ()
) -> None:
    """Print the summary, each asset with its reasons and effects, and what is left out.

    Args:
        arguments: The arguments with which floe run does it.
        where: The options that name the project and the environment, for other commands.
    """
    plan = described.plan
    if not plan.batches:
        out.print(NOTHING_MISSING)
    else:
        for line in summary_lines(described, name, described.created):
            out.print(line)
        out.print()
    for asset in described.assets:
        _print_asset(out, asset)
    for line in _footer(described, arguments, where):
        out.print(line, soft_wrap=line.no_wrap)


def summary_lines(described: DescribedPlan, name: str, created: Sequence[str] | None) -> Iterator[Text]:
    """What the run does, in a few lines.

    Args:
        created: The tables that it creates; None if that is unknown.
    """
    plan = described.plan
    parts = [counted(len(described.assets), "asset")]
    if described.partitions:
        count = f"{len(plan.partitions):,} partitions " if len(plan.partitions) > 1 else "partition "
        parts.append(f"{count}{ranges_text(described.partitions, with_counts=False)}")
    parts.append(counted(len(plan.batches), "run"))
    yield Text.assemble((name, "bold"), f": {', '.join(parts)}")
    if created:
        yield Text(f"  creates {_names(created)}")
    if described.causes:
        yield Text("  " + "; ".join(f"{cause}: {counted(count, 'asset')}" for cause, count in described.causes.items()))
    yield from left_out_lines(described)


def left_out_lines(described: DescribedPlan) -> Iterator[Text]:
    """The selected assets that do not run, and how to include them."""
    by_reason: dict[str, list[str]] = {}
    for asset in described.plan.left_out:
        by_reason.setdefault(asset.reason, []).append(asset.asset)
    for reason, names in by_reason.items():
        hint = "; --with-unpartitioned includes them" if reason == "not partitioned" else ""
        yield Text(f"  left out, {reason}: {_names(names)}{hint}", style="dim")


def _print_asset(out: Console, asset: DescribedAsset) -> None:
    sign, colour = ("!", "red") if asset.refused else ("+", "green") if _creates(asset) else ("~", "yellow")
    head = Text.assemble((f"{sign} ", colour), (asset.asset, "bold"), f" {effect_text(asset.write)}")
    out.print(_indented(head, 0))
    for partitions, reasons in reason_texts(asset.reasons):
        out.print(_indented(Text(f"{partitions}: {reasons}" if partitions else reasons), 4))
    if asset.runs > 1 and not asset.partitions:
        out.print(_indented(Text(f"it runs {asset.runs:,} times, once in each run"), 4))
    if asset.write is not None and not asset.refused:
        schema = schema_text(asset.write.schema)
        if schema:
            out.print(_indented(Text(schema, style="" if asset.write.schema.known else "dim"), 4))
    for reason in asset.refused:
        out.print(_indented(Text.assemble(("refused: ", "red"), redact(reason)), 4))


def _indented(text: Text, indent: int) -> Padding:
    return Padding(text, (0, 0, 0, indent), expand=False)


def _creates(asset: DescribedAsset) -> bool:
    return asset.write is not None and asset.write.creates


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _footer(described: DescribedPlan, arguments: Sequence[str], where: Sequence[str]) -> Iterator[Text]:
    for asset, reason in described.outdated:
        partitions = f" ({ranges_text(reason.partitions)})" if reason.partitions else ""
        yield Text(f"{Cause.CODE.value}, not in this run: {asset}{partitions}, {reason.detail}; recompute it with:")
        for options in _options_for(reason.partitions):
            yield _command(shlex.join(["floe", "run", asset, *options, *where]))
    for difference in described.plan.differences:
        yield Text.assemble(("warning: ", "yellow"), redact(difference.message))
    refused = [asset.asset for asset in described.assets if asset.refused]
    if described.plan.refused is not None:
        yield Text.assemble(("refused: ", "red"), redact(described.plan.refused))
    elif refused:
        yield Text.assemble(
            ("refused: ", "red"), f"{counted(len(refused), 'asset')} of {len(described.assets)}; exit 3"
        )
    elif described.plan.batches:
        yield Text("run it with:")
        yield _command(shlex.join(["floe", "run", *arguments]))


def _command(text: str) -> Text:
    """A command on one line, so that it can be copied."""
    return Text(f"  {text}", style="cyan", no_wrap=True)


def _options_for(partitions: Sequence[KeyRange]) -> list[list[str]]:
    """The options of each command: one range around several would recompute others too."""
    if len(partitions) > _COMMANDS:
        return [["--partition-range", "START...END"]]
    return [
        ["--partition", one.first] if one.first == one.last else ["--partition-range", f"{one.first}...{one.last}"]
        for one in partitions
    ] or [[]]
