"""The assets of definitions that are stored in a lake, and the table of each, outside of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from dagster import (
    AssetKey,
    AssetSpec,
    DagsterInstance,
    DagsterInvalidConfigError,
    Definitions,
    ResourceDefinition,
    build_resources,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from floe_core.errors import TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_core.models import WriteMode
from floe_dagster._dagster.names import wrap_resources_for_execution
from floe_dagster.assets.names import is_stored, table_of
from floe_dagster.assets.options import OutputOptions, output_options
from floe_dagster.io_manager import IcebergIOManager
from floe_dagster.resources import lake_of
from floe_iceberg import IcebergTableManager

__all__ = ["AssetInLake", "Place", "assets_in_lake", "opened"]

# The resource key under which an IO manager is opened.
_MANAGER = "floe_opened"


@dataclass(frozen=True)
class AssetInLake:
    """An asset and the IcebergIOManager that stores it, which may not be open yet."""

    spec: AssetSpec
    manager: Any
    options: OutputOptions

    @property
    def name(self) -> str:
        return str(self.spec.key.to_user_string())


@dataclass(frozen=True)
class Place:
    """Where and how an asset is stored."""

    asset: str
    manager: IcebergIOManager
    tables: IcebergTableManager
    table: TableIdentifier
    branch: str
    mode: WriteMode

    def find_table(self) -> Table | None:
        """The table as main, or the branch of the lake, shows it; None if it does not exist there."""
        table = self.tables.find_table(self.table)
        try:
            return None if table is None else self.tables.as_shown(table, self.table)
        except TableNotFoundError:
            return None

    @property
    def appends(self) -> bool:
        return self.mode is WriteMode.APPEND


def assets_in_lake(definitions: Definitions, assets: Collection[AssetKey]) -> Iterator[AssetInLake]:
    """The assets that an IcebergIOManager stores, upstream first."""
    graph, resources = definitions.resolve_asset_graph(), definitions.resources or {}
    for key in (key for key in graph.toposorted_asset_keys if key in assets):
        definition = graph.assets_def_for_key(key)
        if definition.is_executable and is_stored(definition, key):
            name = definition.get_io_manager_key_for_asset_key(key)
            # The asset's own resources (io_manager_def, resource_defs) take precedence.
            manager = definition.resource_defs.get(name, resources.get(name))
            if _is_iceberg_manager(manager):
                spec = definition.get_asset_spec(key)
                yield AssetInLake(spec, manager, output_options(spec.metadata, key.to_user_string()))


def _is_iceberg_manager(manager: Any) -> bool:
    """Whether it is an IcebergIOManager: an instance, configured at launch, or wrapped by Dagster."""
    kind = getattr(manager, "resource_cls", None) or getattr(manager, "configurable_resource_cls", None)
    return isinstance(manager, IcebergIOManager) or (isinstance(kind, type) and issubclass(kind, IcebergIOManager))


@contextmanager
def opened(stored: AssetInLake, definitions: Definitions, instance: DagsterInstance) -> Iterator[Place | None]:
    """Where an asset is stored, by the lake of its own manager, whose default namespace may differ from the project's.

    None if the manager cannot be opened without run config.
    """
    with ExitStack() as stack:
        needed = _needed(stored.manager, definitions.resources or {})
        try:
            # The manager's settings may be environment variables, which Dagster resolves.
            resources = stack.enter_context(build_resources(needed, instance=instance))
        except DagsterInvalidConfigError:
            yield None
            return
        manager: IcebergIOManager = getattr(resources, _MANAGER)
        yield Place(
            asset=stored.name,
            manager=manager,
            tables=lake_of(manager.lake, manager.table_manager).tables,
            table=table_of(stored.spec.key.path, stored.options, manager.naming),
            branch=_branch(stored, manager),
            mode=manager.mode_of(stored.options, partitioned=stored.spec.partitions_def is not None),
        )


def _branch(stored: AssetInLake, manager: IcebergIOManager) -> str:
    """The branch of its table that the asset is written to, as the lake shows the table."""
    at_branch = lake_of(manager.lake, manager.table_manager).tables.at_branch
    own = stored.options.branch or manager.branch or MAIN_BRANCH
    return own if at_branch is None else MAIN_BRANCH


def _needed(manager: Any, resources: Mapping[str, Any]) -> dict[str, ResourceDefinition]:
    """The manager and the resources it depends on; no others are opened."""
    known = wrap_resources_for_execution({**resources, _MANAGER: manager})
    needed, waiting = set(), [_MANAGER]
    while waiting:
        key = waiting.pop()
        if key not in needed:
            needed.add(key)
            waiting += known[key].get_required_resource_keys(known)
    return {key: known[key] for key in needed}
