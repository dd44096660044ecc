"""Branches, as a terminal shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from floe_core.formatting import counted, moment_text
from floe_runtime.console.tables import fitted_table

if TYPE_CHECKING:
    from rich.console import Console

    from floe_iceberg.branches import BranchPublication, BranchStatus, BranchTable, PublishedTable

__all__ = ["print_branch", "print_branches", "print_publication"]

_COLOURS = {"ready": "green", "behind": "yellow", "conflict": "red", "lost": "red", "gone": "red"}
_MEANING = {
    "unchanged": "no commit on the branch",
    "ready": "can be published",
    "behind": "main has moved in other rows; the branch is put on top when it is published",
}


def print_branches(out: Console, found: Sequence[BranchStatus]) -> None:
    columns: dict[str, list[str | Text]] = {
        "branch": [one.name for one in found],
        "tables": [f"{len(one.tables):,}" for one in found],
        "reads main as of": [moment_text(one.pinned_at) for one in found],
        "last used": [moment_text(one.used_at) for one in found],
        "expires": [moment_text(one.expires_at) for one in found],
        "state": [_summary(one) for one in found],
    }
    numbers = ("tables", "reads main as of", "last used", "expires")
    out.print(fitted_table(columns, out, numbers=numbers, optional=("last used", "expires")))


def _summary(branch: BranchStatus) -> Text:
    if branch.problems:
        return Text(f"{counted(len(branch.problems), 'table')} in conflict", style="red")
    if all(one.state.value == "unchanged" for one in branch.tables):
        return Text("nothing to publish", style="dim")
    return Text("can be published", style="green")


def print_branch(out: Console, branch: BranchStatus) -> None:
    out.print(
        f"branch {branch.name} reads main as of {moment_text(branch.pinned_at)} UTC; expires "
        f"{moment_text(branch.expires_at)} UTC",
        soft_wrap=True,
    )
    if not branch.tables:
        out.print(f"no tables yet; write to it with floe run --branch {branch.name}")
        return
    columns: dict[str, list[str | Text]] = {
        "table": [f"{one.table} (new)" if one.created else one.table for one in branch.tables],
        "commits": [f"{one.commits:,}" for one in branch.tables],
        "state": [Text(one.state.value, style=_COLOURS.get(one.state.value, "dim")) for one in branch.tables],
        "what it means": [_meaning(one) for one in branch.tables],
    }
    out.print(fitted_table(columns, out, numbers=("commits",)))
    if branch.problems:
        out.print(
            f"it cannot be published as it is: floe branches update {branch.name} --restart begins these tables again",
            soft_wrap=True,
        )


def _meaning(table: BranchTable) -> str:
    return table.problem or _MEANING[table.state.value]


def print_publication(out: Console, published: BranchPublication) -> None:
    for table in published.tables:
        out.print(f"  {table.table}: {_effect(table)}", markup=False, soft_wrap=True)
    out.print(f"published branch {published.branch}: {counted(len(published.tables), 'table')}")


def _effect(table: PublishedTable) -> str:
    how = "created" if table.created else "on top of what main has gained" if table.replayed else "main moved to it"
    return f"{how}, {counted(len(table.writes), 'commit')}, snapshot {table.snapshot_id}"
