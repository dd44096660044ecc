"""Which asset of which project a table belongs to: any other asset would overwrite its rows.

The owner is two properties of the table. A table without them (made by `lake.write`, `create_table` or another engine)
belongs to the first asset that writes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dagster import AssetKey, OutputContext
from pyiceberg.table import Table

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier
from floe_dagster._dagster.names import CheckError
from floe_dagster.assets.names import is_stored
from floe_dagster.runs.steps import step_of
from floe_dagster.runs.transaction import current_run

__all__ = [
    "ASSET",
    "PROJECT",
    "Owner",
    "how_to_take_over",
    "owner_of",
    "shared_table",
    "take_over_config",
    "visible_assets",
]

ASSET = "floe.asset"
PROJECT = "floe.project"


@dataclass(frozen=True)
class Owner:
    """An asset, and its project if known: tables can be opened without a project."""

    asset: str
    project: str | None

    def __str__(self) -> str:
        return f"asset {self.asset} of project {self.project}" if self.project else f"asset {self.asset}"

    def marks(self, *, take_over: bool) -> dict[str, str]:
        """The properties of a table that belongs to this owner."""
        # The project of a previous owner must not remain.
        return {ASSET: self.asset, **({PROJECT: self.project or ""} if self.project or take_over else {})}

    def refuse_others(self, identifier: TableIdentifier, how: str) -> Callable[[Table], None]:
        """A check that the table belongs to this owner, or to none."""

        def check(table: Table) -> None:
            owner = owner_of(table.properties)
            if owner is None or owner.is_same(self):
                return
            raise ConfigurationError(
                f"table '{identifier}' belongs to {owner} (table properties {ASSET}, {PROJECT}); {self} must not "
                f"write to it, so nothing was written. Name another table in its metadata (floe/table), or let it take "
                f'this one over: with metadata={{"floe/take_over": True}} until it has run, or for one run with the '
                f"run config {how}"
            )

        return check

    def is_same(self, other: Owner) -> bool:
        """Whether it is the same asset; projects are compared only if both are known."""
        unnamed = not self.project or not other.project
        return self.asset == other.asset and (unnamed or self.project == other.project)


def owner_of(properties: Mapping[str, str]) -> Owner | None:
    """The owner named in the properties of a table; None if there is none."""
    return Owner(properties[ASSET], properties.get(PROJECT) or None) if properties.get(ASSET) else None


def how_to_take_over(context: OutputContext) -> str:
    """The run config that lets this output take a table over."""
    step = step_of(context)
    run = current_run()
    if step is not None and run is not None:  # the step of a group has the outputs by the keys of their assets
        return take_over_config(context.asset_key.to_python_identifier(), [run.group, *step.step.node_handle.path])
    # A context built for a test may have no output name.
    return take_over_config(*((context.name, step.step.node_handle.path) if step is not None else ("result", ["OP"])))


def take_over_config(output: str, path: Sequence[str]) -> str:
    """The run config that lets an output take a table over; the path leads to its op."""
    text = f"{{outputs: {{{output}: {{take_over: true}}}}}}"
    for name in reversed(path):
        text = f"{{ops: {{{name}: {text}}}}}"
    return text


def shared_table(table: TableIdentifier, *assets: str) -> ConfigurationError:
    """The error for two assets of one project that would be stored in one table."""
    return ConfigurationError(
        f"assets {' and '.join(assets)} would both be stored in table '{table}'; rename one of them, or "
        f"give it another table with metadata floe/table. If one of them stores nothing, annotate what it returns: "
        f"-> None or -> MaterializeResult[None]"
    )


def visible_assets(step: Any) -> Iterator[tuple[AssetKey, Any, Mapping[str, Any]]]:
    """The stored assets that the run can see, each with its IO manager (None if not loaded here) and its metadata.

    These are all assets of the code location if Dagster provides it, otherwise those of the run.
    """
    graph = step.job_def.asset_layer.asset_graph
    with suppress(CheckError):  # a job executed in-process belongs to no repository
        graph = step.repository_def.asset_graph
    managers = step.scoped_resources_builder.resource_instance_dict
    for definition in graph.assets_defs:
        for key in definition.keys:  # not `specs`, which also lists assets that the run did not select
            if is_stored(definition, key):
                manager = managers.get(definition.get_io_manager_key_for_asset_key(key))
                yield key, manager, definition.get_asset_spec(key).metadata
