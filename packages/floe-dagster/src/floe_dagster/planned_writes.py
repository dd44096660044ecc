"""What a run would do to the tables of its assets, by their metadata: nothing is computed, and no data file is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dagster import AssetKey, DagsterInstance, Definitions
from pyiceberg.table import Table

from floe_core.errors import (
    CatalogConnectionError,
    ConfigurationError,
    FloeError,
    FloeStorageError,
    NamespaceNotFoundError,
    SchemaEvolutionError,
)
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import WriteMode
from floe_dagster.assets.declared_schema import declared_schema
from floe_dagster.assets.options import refuse_no_keys, refuse_tags
from floe_dagster.assets.partitions import Partitioning, partitioning
from floe_dagster.runs.owners import take_over_config
from floe_dagster.stored import AssetInLake, Place, assets_in_lake, opened
from floe_iceberg.inspection import ReplacedRows, replaced_rows
from floe_iceberg.schema import plan_change
from floe_iceberg.snapshots import unpublished_by, write_summary
from floe_iceberg.writing import WriteRequest, check_branch, check_table

__all__ = ["PlannedWrite", "SchemaPlan", "new_tables", "planned_writes"]


@dataclass(frozen=True)
class SchemaPlan:
    """How a write changes the schema of its table.

    Attributes:
        known: Whether the asset declares its columns; otherwise the change is known when it runs.
        columns: The declared columns with their types, for a table that the write creates.
        changes: The changes that the declared columns need, such as `+discount double`.
        note: What the declaration leaves open.
    """

    known: bool
    columns: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class PlannedWrite:
    """What the write of an asset does to its table.

    Attributes:
        table: The table; empty if only the configuration of a run tells it.
        branch: The branch that is written to.
        mode: append, overwrite or upsert.
        creates: The table does not exist.
        schema: How the schema changes.
        replaces: The rows that are replaced; None for writes that replace none, or that find them by key.
        refused: Why the write would be refused.
    """

    table: str
    branch: str
    mode: str
    creates: bool
    schema: SchemaPlan
    replaces: ReplacedRows | None = None
    refused: tuple[str, ...] = ()


def planned_writes(
    definitions: Definitions, wanted: Mapping[AssetKey, Sequence[str]], instance: DagsterInstance
) -> dict[AssetKey, PlannedWrite]:
    """The writes of these assets, upstream first; assets that Floe does not store are left out.

    Args:
        definitions: The definitions of the project.
        wanted: The assets with the partitions to write; none for unpartitioned assets.
        instance: The Dagster instance, which resources may need.
    """
    slices: dict[Any, TableSlice] = {}  # most assets share their partitions, and thousands of windows take time
    writes: dict[AssetKey, PlannedWrite] = {}
    for stored in assets_in_lake(definitions, wanted):
        with opened(stored, definitions, instance) as place:
            if place is None:
                writes[stored.spec.key] = PlannedWrite("", "", "", creates=False, schema=SchemaPlan(known=False))
            else:
                op = definitions.resolve_asset_graph().assets_def_for_key(stored.spec.key)
                how = take_over_config(op.get_output_name_for_asset_key(stored.spec.key), [op.node_def.name])
                writes[stored.spec.key] = _Writer(stored, place, how, slices).plan(wanted[stored.spec.key])
    return writes


def _refusal(check: Callable[[], object]) -> str | None:
    """The error that a check ends in."""
    try:
        check()
    except CatalogConnectionError:
        raise
    except (ConfigurationError, FloeStorageError) as exc:
        return str(exc)
    return None


@dataclass(frozen=True)
class _Writer:
    """Plans the write of one asset with the checks that the write itself makes."""

    stored: AssetInLake
    place: Place
    how_to_take_over: str
    slices: dict[Any, TableSlice]

    def plan(self, keys: Sequence[str]) -> PlannedWrite:
        table = self.place.find_table()
        if table is not None and unpublished_by(table.properties) is not None:
            table = None
        refused = list(self._refusals(table, keys))
        schema = SchemaPlan(known=False)
        replaces = None
        try:
            schema = self._schema(table)
            if table is not None and self.place.mode is WriteMode.OVERWRITE and not refused:
                replaces = self._replaced(table, keys)
        except (ConfigurationError, SchemaEvolutionError) as exc:
            refused.append(str(exc))
        return PlannedWrite(
            table=str(self.place.table),
            branch=self.place.branch,
            mode=self.place.mode.value,
            creates=table is None,
            schema=schema,
            replaces=replaces,
            refused=tuple(dict.fromkeys(refused)),
        )

    def _refusals(self, table: Table | None, keys: Sequence[str]) -> Iterator[str]:
        """The errors that the write would end in, by what is known before it."""
        checks: list[Callable[[], object]] = [
            lambda: refuse_tags(self.stored.spec.tags, self.stored.name),
            self._refuse_keys,
            self._refuse_not_shown,
            lambda: check_branch(table, self.place.table, self.place.branch),
        ]
        if table is not None:
            checks.append(lambda: self.place.tables.refuse_moved(table, self.place.table))
            checks.append(lambda: check_table(self._request(keys), table))
        yield from filter(None, map(_refusal, checks))

    def _refuse_not_shown(self) -> None:
        """Refuse a table of main that the branch of the lake does not have."""
        table = self.place.tables.find_table(self.place.table)
        if table is not None:
            self.place.tables.as_shown(table, self.place.table)

    def _refuse_keys(self) -> None:
        if self.place.mode is WriteMode.UPSERT:
            refuse_no_keys(self.stored.options, self.stored.name)
            partitions = self._partitions()
            if partitions is not None:
                partitions.refuse_keys_of_others(self.stored.options.upsert_keys, self.stored.name)

    def _partitions(self) -> Partitioning | None:
        definition = self.stored.spec.partitions_def
        if definition is None:
            return None
        return partitioning(definition, self.stored.options.partition_expr, self.stored.name)

    def _slice(self, keys: Sequence[str]) -> TableSlice | None:
        partitions = self._partitions()
        if partitions is None:
            return None
        of = (partitions.definition, str(self.stored.options.partition_expr), tuple(keys))
        if of not in self.slices:
            self.slices[of] = partitions.slice(keys)
        return self.slices[of]

    def _request(self, keys: Sequence[str]) -> WriteRequest:
        options, manager = self.stored.options, self.place.manager
        return WriteRequest(
            identifier=self.place.table,
            mode=self.place.mode,
            write_id="planned",
            summary=write_summary("planned"),
            slice=self._slice(keys),
            keys=options.upsert_keys,
            commit_strategy=manager.strategy_of(options, self.place.mode),
            branch=self.place.branch,
            check=manager.check_of(
                self.place.table, options, self._partitions(), asset=self.stored.name, how=self.how_to_take_over
            ),
        )

    def _schema(self, table: Table | None) -> SchemaPlan:
        """The change that the declared columns need; raises if the write would refuse it."""
        declared = declared_schema(self.stored.spec.metadata)
        if declared is None:
            return SchemaPlan(known=False)
        if table is None:
            return SchemaPlan(
                known=True, columns=tuple(f"{column.name} {column.type}" for column in declared.columns.values())
            )
        data, unknown = declared.as_data_for(table.schema())
        evolve = self.stored.options.schema_evolution_enabled
        evolve = self.place.manager.schema_evolution_enabled if evolve is None else evolve
        try:
            change = plan_change(table.schema(), data, name=self.place.table, evolve=evolve)
        except SchemaEvolutionError as exc:
            if declared.has_types:
                raise
            return SchemaPlan(known=False, note=f"the asset declares no types: {exc}")
        changes = [*change.texts(), *(f"+{name} {kind}" for name, kind in unknown.items())]
        note = f"the type of {', '.join(unknown)} is known when it runs" if unknown else ""
        return SchemaPlan(known=True, changes=tuple(changes), note=note)

    def _replaced(self, table: Table, keys: Sequence[str]) -> ReplacedRows:
        within = self._slice(keys)
        known = {field.name.lower() for field in table.schema().fields}
        if within is not None and not {column.lower() for column in within.columns} <= known:
            return ReplacedRows(0, 0, 0, exact=True)  # the table is empty: with rows, the write is refused
        return replaced_rows(table, within, branch=self.place.branch)


def new_tables(definitions: Definitions, assets: Collection[AssetKey], instance: DagsterInstance) -> list[str] | None:
    """The tables of these assets that do not exist, by one request for each namespace; None if that is unknown.

    Args:
        definitions: The definitions of the project.
        assets: The assets.
        instance: The Dagster instance, which resources may need.
    """
    listed: dict[tuple[int, tuple[str, ...]], set[TableIdentifier]] = {}
    missing: list[str] = []
    try:
        for stored in assets_in_lake(definitions, assets):
            with opened(stored, definitions, instance) as place:
                if place is None:
                    continue
                at = (id(place.tables), place.table.namespace)
                if at not in listed:
                    listed[at] = _tables_in(place)
                if place.table not in listed[at]:
                    missing.append(str(place.table))
    except FloeError:  # a run says what is wrong, with the asset that it stops
        return None
    return missing


def _tables_in(place: Place) -> set[TableIdentifier]:
    with suppress(NamespaceNotFoundError):
        return set(place.tables.list_tables(".".join(place.table.namespace)))
    return set()
