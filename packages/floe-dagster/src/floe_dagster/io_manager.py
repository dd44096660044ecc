"""IcebergIOManager: the value of an asset is the content of its table."""

# No postponed annotations here: Dagster inspects those of the class when it is defined.
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dagster import (
    AssetKey,
    ConfigurableIOManager,
    DagsterInvariantViolationError,
    DataVersion,
    InitResourceContext,
    InputContext,
    MetadataValue,
    OutputContext,
    ResourceDependency,
)
from pydantic import PrivateAttr
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from floe_core.errors import ConfigurationError, FloeError, TableNotFoundError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import CommitStrategy, PartitionTransform, WriteMode
from floe_dagster._dagster.names import io_manager_of
from floe_dagster.assets.arguments import KnownArguments, names_of, refuse_unknown
from floe_dagster.assets.names import Naming, table_of
from floe_dagster.assets.options import (
    InputOptions,
    OutputOptions,
    RunOptions,
    input_options,
    output_options,
    refuse_no_keys,
    refuse_tags,
)
from floe_dagster.assets.partitions import Partitioning, partitioning
from floe_dagster.assets.values import Kind, from_scan, kind_of_annotation, kind_of_value, nothing
from floe_dagster.config import IcebergIOManagerConfig
from floe_dagster.resources import artifacts_of, lake_of
from floe_dagster.runs import cursors
from floe_dagster.runs.description import STORAGE_KIND, describe, sensitive_columns
from floe_dagster.runs.lake_branch import begin_history_of, refuse_branch_tag, refuse_other_history
from floe_dagster.runs.owners import Owner, how_to_take_over, shared_table, visible_assets
from floe_dagster.runs.partitions import partition_keys_of
from floe_dagster.runs.quarantine import moved_metadata, quarantine_of_asset
from floe_dagster.runs.step_inputs import step_inputs
from floe_dagster.runs.steps import (
    attempt_of,
    followed,
    follows,
    has_read,
    has_read_head,
    step_of,
    tags_of,
    trace,
    write_id,
)
from floe_dagster.runs.tracing import run_trace
from floe_dagster.runs.transaction import Published, current_run, refuse_atomic_tag
from floe_iceberg import Lake
from floe_iceberg.arguments import choice
from floe_iceberg.expressions import slice_filter
from floe_iceberg.quarantine import MovedRows, write_quarantined
from floe_iceberg.reading import refuse_past
from floe_iceberg.schema import refuse_early_columns, to_iceberg_schema, with_optional_columns
from floe_iceberg.snapshots import StagingBranch, unpublished_by, write_summary
from floe_iceberg.transactions import NewTable
from floe_iceberg.writing import ArrowSource, Target, WriteRequest, WriteResult, source_of

__all__ = ["IcebergIOManager"]


class IcebergIOManager(KnownArguments, ConfigurableIOManager):
    """Stores the values of assets in Iceberg tables, and loads them in the type of the input that reads them.

    Assets return Spark, pandas and polars frames, Arrow tables and readers. An input without an annotation is a lazy
    Spark frame, or an Arrow table if only a `table_manager` is given. A partitioned asset replaces its own partitions;
    an unpartitioned asset appends unless its metadata says `write_mode: overwrite`.

    The arguments are defaults: the metadata of an asset overrides them, and the configuration of a run overrides both.

    Args:
        lake: A LakeResource, or an open Lake.
        table_manager: An IcebergTableManager, instead of a lake.
        default_write_mode: `append`, `overwrite` or `upsert`.
        default_namespace: The namespace of assets whose key has no prefix. By default that of the project.
        ignore_key_prefix: Store all assets in the default namespace. By default as the project is set.
        schema_evolution_enabled: Add the columns of the data to the table, and widen types.
        evolve_partitions: Change the partitioning of an existing table to that of its asset.
        column_projection_enabled: Apply the metadata `columns` of inputs.
        table_properties: The properties of tables that a write creates.
        commit_strategy: `fast_append` or `merge`.
        branch: The branch to write to and to read from. By default main.
        allow_empty: Allow an overwrite of a whole table without rows.
        preview_rows: The number of rows that the UI shows; 0 for none.
        take_over: Write to tables that belong to another asset or project, and own them from then on.

    Example:
        >>> from dagster import asset, materialize
        >>> from floe_dagster import IcebergIOManager
        >>> @asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
        ... def orders() -> pa.Table:
        ...     return pa.table({"id": [1, 2, 3]})
        >>> @asset(key_prefix="gold", metadata={"write_mode": "overwrite"})
        ... def totals(orders: pa.Table) -> pa.Table:
        ...     return pa.table({"orders": [orders.num_rows]})
        >>> materialize([orders, totals], resources={"io_manager": IcebergIOManager(table_manager=tables)}).success
        True
        >>> tables.scan("gold.totals").to_arrow().to_pylist()
        [{'orders': 3}]
    """

    lake: ResourceDependency[Any] = None  # type: ignore[assignment]  # LakeResource(project=…), or an open Lake
    table_manager: ResourceDependency[Any] = None  # type: ignore[assignment]  # an IcebergTableManager, in place of a lake
    default_write_mode: str | None = None
    default_namespace: str | None = None
    ignore_key_prefix: bool | None = None
    schema_evolution_enabled: bool = True
    evolve_partitions: bool = False
    column_projection_enabled: bool = True
    table_properties: dict[str, str] = {}  # noqa: RUF012 - pydantic copies it
    commit_strategy: str | None = None
    branch: str | None = None
    allow_empty: bool = False
    preview_rows: int = 5
    take_over: bool = False

    _opened: Lake | None = PrivateAttr(default=None)
    # Cache: run id, job, and the assets of that run by table.
    _visible: tuple[str, Any, Mapping[str, Sequence[str]]] | None = PrivateAttr(default=None)
    # Cache: one attempt of a step, and the tables that it reads.
    _together: tuple[Any, Mapping[TableIdentifier, Table]] | None = PrivateAttr(default=None)

    @classmethod
    def from_config(cls, config: IcebergIOManagerConfig, root: Path | None = None) -> "IcebergIOManager":
        """A manager for a project without floe.yaml; files that the configuration names are relative to `root`."""
        return cls(
            lake=Lake(config.artifacts(root)),
            default_write_mode=config.write_mode.value if config.write_mode is not None else None,
            schema_evolution_enabled=config.schema_evolution_enabled,
            column_projection_enabled=config.column_projection_enabled,
        )

    @classmethod
    def elsewhere(cls) -> dict[str, str]:
        config = names_of(IcebergIOManagerConfig) - names_of(cls) - {"project", "write_mode"}
        return {
            name: f"a project without floe.yaml writes IcebergIOManager.from_config(IcebergIOManagerConfig({name}=…)), "
            f"any other lake=LakeResource(project=…)"
            for name in config
        }

    @classmethod
    def configure_at_launch(cls, **given: Any) -> Any:
        refuse_unknown(cls.__name__, given, names_of(cls), cls.elsewhere())
        return super().configure_at_launch(**given)

    @classmethod
    def output_config_schema(cls) -> type[RunOptions]:
        return RunOptions

    @contextmanager
    def yield_for_execution(self, context: InitResourceContext) -> Iterator["IcebergIOManager"]:
        with run_trace(context, lambda: artifacts_of(self._lake)), super().yield_for_execution(context) as manager:
            self._begin_history(context)
            yield manager

    def _begin_history(self, context: InitResourceContext) -> None:
        """Let a new Dagster instance be that of the branch of the lake that its first run writes to."""
        with suppress(FloeError):  # raised again when the lake is opened
            artifacts = artifacts_of(self._lake)
            branch = artifacts.lake_branch if artifacts is not None else None
            if branch is not None and context.run is not None and context.instance is not None:
                begin_history_of(context.instance, branch)

    @property
    def _lake(self) -> Lake:
        if self._opened is None:
            self._opened = lake_of(self.lake, self.table_manager)
        return self._opened

    @property
    def naming(self) -> Naming:
        """How the keys of assets become names of tables; the project's rule where this manager has none."""
        lake, ignored = self._lake, self.ignore_key_prefix
        return Naming(
            self.default_namespace or lake.default_namespace, lake.ignore_key_prefix if ignored is None else ignored
        )

    # Writing --------------------------------------------------------------------------------------------------------

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        asset = _asset_of(context)
        if isinstance(obj, Published):
            self._report_published(context, obj)
            return
        kind = kind_of_value(obj, asset)
        options = output_options(context.definition_metadata, asset, context.config, emitted=context.output_metadata)
        refuse_tags(tags_of(context), asset)
        refuse_atomic_tag(tags_of(context), asset)
        self._refuse_other_branch(context, asset)
        self._refuse_shared(context, table_of(context.asset_key.path, options, self.naming))
        partitions = _partitions_of(context, options, asset)
        keys = list(context.asset_partition_keys) if partitions is not None else []
        if self.mode_of(options, partitioned=partitions is not None) is WriteMode.UPSERT:
            refuse_no_keys(options, asset)
            if partitions is not None:
                partitions.refuse_keys_of_others(options.upsert_keys, asset)
        data: Any = obj if kind is Kind.SPARK else source_of(obj)
        identifier = table_of(context.asset_key.path, options, self.naming)
        target = None if partitions is None else Target(self._lake.tables.find_table(identifier))
        request = self._request(context, data, options, partitions, keys, target)
        if self.evolve_partitions if options.evolve_partitions is None else options.evolve_partitions:
            self._evolve_partitions(request, partitions)
            target = None  # the partitioning may have changed
        (request, result), moved = self._written(context, request, data, target, options, keys)
        self._report(context, request, result, options, keys, moved)

    def _written(
        self,
        context: OutputContext,
        request: WriteRequest,
        data: Any,
        target: Target | None,
        options: OutputOptions,
        keys: Sequence[str],
    ) -> tuple[tuple[WriteRequest, WriteResult], MovedRows | None]:
        """Write to main, or to the branch of the atomic run or of the lake; bad rows go to the quarantine table."""
        tables, step = self._lake.tables, step_of(context)
        quarantine = quarantine_of_asset(
            context.asset_key,
            request.identifier,
            keys,
            at_branch=tables.at_branch,
            metadata=context.definition_metadata,
            run_id=step.run_id if step is not None else request.write_id,
        )
        if quarantine is not None and isinstance(data, ArrowSource):
            data = quarantine.without_null(data)
        if current_run() is not None:
            target = Target(self._open_branch(request, data, target, options))
        request, target = tables.on_branch(request, lambda known: self._schema_of(data, known), target)
        if quarantine is not None and target is not None and target.table is not None:
            hides = bool(sensitive_columns(options, context.definition_metadata))
            result, moved = write_quarantined(
                self._lake, request, data, target.table, quarantine, shows_values=not hides
            )
            return (request, result), moved
        if isinstance(data, ArrowSource):
            return (request, tables.write(request, data, target)), None
        return (request, self._lake.write_request(data, request, target)), None

    def _evolve_partitions(self, request: WriteRequest, partitions: Partitioning | None) -> None:
        """Give an existing table the partitioning of the asset; a table that the write creates gets it anyway."""
        tables, identifier = self._lake.tables, request.identifier
        table = tables.find_table(identifier)
        if table is None:
            return
        if request.check is not None:
            request.check(table)
        transforms = partitions.transforms(table.schema()) if partitions is not None else []
        known = {field.name.lower() for field in table.schema().fields}
        if all(transform.source_column.lower() in known for transform in transforms):  # else the write adds the column
            tables.evolve_partitions(identifier, transforms)

    def _open_branch(self, request: WriteRequest, data: Any, target: Target | None, options: OutputOptions) -> Table:
        """The table with the branch of the atomic run; a new table stays unpublished until the run publishes it."""
        run, tables = current_run(), self._lake.tables
        if run is None:
            raise AssertionError("only an atomic run has a branch")
        if run.tables > 1 and not run.one_by_one and tables.refuses_many_tables is not None:
            raise ConfigurationError(
                f"{tables.refuses_many_tables}, so the {run.tables} tables of this run cannot be published together. "
                f"Nothing was written: use a catalog that can (type: sql, or a server such as Apache Polaris), or "
                f"publish one by one, so that readers may see some of the tables before the others (floe run "
                f"--one-by-one, or one_by_one=True on the group)"
            )
        table = tables.find_table(request.identifier) if target is None else target.table
        schema = self._schema_of(data, table.schema() if table is not None else None)
        if table is not None:
            if request.check is not None:
                request.check(table)
            tables.refuse_moved(table, request.identifier)
            early = run.early_columns if options.early_columns is None else options.early_columns
            refuse_early_columns(
                table,
                request.identifier,
                schema,
                evolve=request.evolve,
                allowed=early,
                how='metadata={"floe/early_columns": True}',
            )
        new = NewTable(schema, request.partition_by, request.new_table_properties)
        return tables.open_branch(request.identifier, StagingBranch.of_run(run.run_id), new, max_age=run.keep)

    def _schema_of(self, data: Any, known: Schema | None) -> Schema:
        """The columns of the value, for a table with these columns or for a new one."""
        if isinstance(data, ArrowSource):
            return to_iceberg_schema(data.schema_for(known))
        return with_optional_columns(self._lake.compute.schema_of(data))

    def _refuse_other_branch(self, context: OutputContext, asset: str) -> None:
        """Refuse a run whose history is kept where that of another branch of the lake is."""
        branch, step = self._lake.tables.at_branch, step_of(context)
        name = None if branch is None else branch.name
        refuse_branch_tag(tags_of(context), name, asset)
        if step is not None and current_run() is None:
            refuse_other_history(step.instance, name)

    def _report_published(self, context: OutputContext, published: Published) -> None:
        """Report a write that the publish step of an atomic run has moved to main."""
        if any(value is not None for value in dict(context.config or {}).values()):
            context.log.warning(
                "the options of outputs of the publish step are not read; give them to the step of the asset"
            )
        context.add_output_metadata(dict(published.metadata))

    def branch_of(self, options: OutputOptions, asset: str) -> str:
        """The branch that an asset is written to: its own, or that of the atomic run."""
        branch, run = options.branch or self.branch or MAIN_BRANCH, current_run()
        at_branch = self._lake.tables.at_branch
        if at_branch is not None and branch != MAIN_BRANCH:
            raise ConfigurationError(
                f"asset {asset} is written to branch {branch!r} of its table, and this run writes to branch "
                f"{at_branch.name!r} of the lake; leave one of them out. Nothing was written"
            )
        if run is None:
            return branch
        if branch != MAIN_BRANCH:
            raise ConfigurationError(
                f"asset {asset} is written to branch {branch!r}, and an atomic run publishes to main; leave one of "
                f"them out. Nothing was written"
            )
        return run.branch

    def _refuse_shared(self, context: OutputContext, identifier: TableIdentifier) -> None:
        """Refuse an asset whose table is the table of another asset that this run can see."""
        own = _asset_of(context)
        for other in self._assets_by_table(step_of(context)).get(identifier.full_name.lower(), ()):
            if other != own:
                raise shared_table(identifier, *sorted([own, other]))

    def _assets_by_table(self, step: Any) -> Mapping[str, Sequence[str]]:
        """The assets that this run can see, by their tables in this lake. The map is built once per run."""
        if step is None:
            return {}
        cached = self._visible
        if cached is None or cached[0] != step.run_id or cached[1] is not step.job_def:
            assets: dict[str, list[str]] = {}
            for key, manager, metadata in visible_assets(step):
                known = isinstance(manager, IcebergIOManager) and self._has_tables_of(manager)
                table = manager._place_of(key, metadata) if known else None  # noqa: SLF001 - of the same class
                if table is not None:
                    # Spark does not distinguish `Orders` from `orders`.
                    assets.setdefault(table.full_name.lower(), []).append(key.to_user_string())
            self._visible = cached = (step.run_id, step.job_def, assets)
        return cached[2]

    def _has_tables_of(self, other: "IcebergIOManager") -> bool:
        """Whether both managers store in the same lake. Another lake is not opened to find out."""
        if self.table_manager is not None:
            return other.table_manager is self.table_manager
        return other.table_manager is None and other._lake is self._lake  # noqa: SLF001 - of the same class

    def _place_of(self, key: AssetKey, metadata: Mapping[str, Any]) -> TableIdentifier | None:
        """The table of an asset; None if its options are invalid, which its own write reports."""
        with suppress(ConfigurationError):
            return table_of(key.path, output_options(metadata, key.to_user_string()), self.naming)
        return None

    def _report(
        self,
        context: OutputContext,
        request: WriteRequest,
        result: WriteResult,
        options: OutputOptions,
        keys: Sequence[str],
        moved: MovedRows | None = None,
    ) -> None:
        """Report the write to Dagster. The rows are committed: a failure here would make a retry write them again."""
        step, asset, snapshot_id = step_of(context), _asset_of(context), str(result.snapshot.snapshot_id)
        if result.deduplicated:
            context.log.warning(
                f"{asset} was written before by this run or the run it retries (snapshot {snapshot_id}); it was not "
                f"written again"
            )
        if step is not None:
            step.set_data_version(context.asset_key, DataVersion(snapshot_id))
        try:
            staged = current_run() is not None or self._lake.tables.at_branch is not None
            if step is not None and not staged:  # the publish step advances those of an atomic run
                cursors.advance(self._lake.tables, followed(step), asset, result.snapshot)
            described = describe(
                request,
                result,
                options=options,
                declared=context.definition_metadata,
                keys=keys,
            )
        except Exception as exc:  # noqa: BLE001 - the rows are committed, whatever fails here
            context.log.warning(
                f"{asset} is written (snapshot {snapshot_id}), and could not be described: {type(exc).__name__}: {exc}"
            )
            described = {
                "dagster/table_name": str(request.identifier),
                "dagster/storage_kind": STORAGE_KIND,
                "floe/snapshot_id": MetadataValue.text(snapshot_id),
            }
        context.add_output_metadata({**described, **(moved_metadata(moved) if moved is not None else {})})

    def _request(
        self,
        context: OutputContext,
        data: Any,
        options: OutputOptions,
        partitions: Partitioning | None,
        keys: Sequence[str],
        target: Target | None,
    ) -> WriteRequest:
        identifier = table_of(context.asset_key.path, options, self.naming)
        own_id = write_id(context) or uuid.uuid4().hex
        evolve = options.schema_evolution_enabled
        sources = followed(step_of(context))
        mode = self.mode_of(options, partitioned=partitions is not None)
        asset = _asset_of(context)
        branch, at_branch = self.branch_of(options, asset), self._lake.tables.at_branch
        consuming = branch if at_branch is None else at_branch.name
        return WriteRequest(
            identifier=identifier,
            mode=mode,
            write_id=own_id,
            summary=write_summary(own_id, trace(context)),
            slice=partitions.slice(keys) if partitions is not None else None,
            keys=options.upsert_keys,
            commit_strategy=self.strategy_of(options, mode),
            branch=branch,
            partition_by=self._layout(target, data, partitions, keys, asset),
            properties={**self.table_properties, **options.table_properties},
            evolve=self.schema_evolution_enabled if evolve is None else evolve,
            allow_empty=self.allow_empty if options.allow_empty is None else options.allow_empty,
            early_columns=bool(options.early_columns),
            check=_checks(
                self.check_of(identifier, options, partitions, asset=asset, how=how_to_take_over(context)),
                cursors.refuse_concurrent_consumer(sources, asset, consuming) if sources else None,
            ),
            marks=self._owner(asset).marks(take_over=self._takes_over(options)),
            sample_rows=self.preview_rows if options.preview_rows is None else options.preview_rows,
        )

    def check_of(
        self,
        identifier: TableIdentifier,
        options: OutputOptions,
        partitions: Partitioning | None,
        *,
        asset: str,
        how: str,
    ) -> Callable[[Table], None]:
        """The check of the table that an asset writes to: its owner, and the columns of its partitions.

        Args:
            identifier: The table.
            options: The options of the asset.
            partitions: How the asset is partitioned.
            asset: The asset.
            how: The run config that lets the asset take the table over.
        """
        branch = options.branch or self.branch or MAIN_BRANCH
        return _checks(
            None if self._takes_over(options) else self._owner(asset).refuse_others(identifier, how),
            partitions.refuse_without_columns(identifier, branch) if partitions is not None else None,
        )

    def _owner(self, asset: str) -> Owner:
        artifacts = self._lake.tables.artifacts
        return Owner(asset, artifacts.name if artifacts is not None else None)

    def _takes_over(self, options: OutputOptions) -> bool:
        return self.take_over if options.take_over is None else options.take_over

    def strategy_of(self, options: OutputOptions, mode: WriteMode) -> CommitStrategy | None:
        """The strategy of the asset; the manager's default applies to appends only."""
        if options.commit_strategy is not None or self.commit_strategy is None or mode is not WriteMode.APPEND:
            return options.commit_strategy
        return choice(CommitStrategy, self.commit_strategy, "commit_strategy")

    def replaced_by(self, step: Any, key: AssetKey) -> tuple[WriteMode, TableSlice | None]:
        """How a run writes to the table of an asset, and the rows that it replaces; None for the whole table.

        Args:
            step: A step of the run.
            key: The asset.
        """
        node, asset = step.job_def.asset_layer.get(key), key.to_user_string()
        options = output_options(node.metadata, asset)
        keys = partition_keys_of(step, node.partitions_def)
        mode = self.mode_of(options, partitioned=node.partitions_def is not None)
        if mode is WriteMode.APPEND and step.run_config.get("ops"):
            mode = WriteMode.OVERWRITE  # the run config may have another mode
        if not keys:
            return mode, None
        return mode, partitioning(node.partitions_def, options.partition_expr, asset).slice(keys)

    def mode_of(self, options: OutputOptions, *, partitioned: bool) -> WriteMode:
        """How a write treats the rows that the table already has, without the config of a run."""
        if options.write_mode is not None:
            return options.write_mode
        if self.default_write_mode is not None:
            return choice(WriteMode, self.default_write_mode, "default_write_mode")
        return WriteMode.OVERWRITE if partitioned else WriteMode.APPEND

    def _layout(
        self, target: Target | None, data: Any, partitions: Partitioning | None, keys: Sequence[str], asset: str
    ) -> Sequence[PartitionTransform]:
        """The hidden partitioning of a table that does not exist yet; it depends on the types of the columns."""
        if partitions is None or target is None:
            return ()
        if target.table is not None and isinstance(data, ArrowSource) and data.untyped:
            known = target.table.schema()  # all-NULL columns take their types from the table
        elif isinstance(data, ArrowSource):
            known = to_iceberg_schema(data.schema_for(None))
        else:
            known = self._lake.compute.schema_of(data)
        partitions.check(keys, known, asset)
        return () if target.table is not None else partitions.transforms(known)

    # Reading --------------------------------------------------------------------------------------------------------

    def load_input(self, context: InputContext) -> Any:
        asset = _asset_of(context)
        name = context.name if context.has_input_name else asset
        default = Kind.SPARK if self.table_manager is None else Kind.ARROW  # a table_manager alone starts no Spark
        kind = kind_of_annotation(_annotation_of(context), name, default=default)
        upstream = context.upstream_output
        options = input_options(
            upstream.definition_metadata if upstream is not None else None, context.definition_metadata, asset
        )
        if options.columns is not None and not self.column_projection_enabled:
            context.log.info(f"column projection is switched off: all columns of {asset} are read")
            options = options.model_copy(update={"columns": None})
        identifier = table_of(context.asset_key.path, options, self.naming)
        partitions = _partitions_of(context, options, asset)
        keys = list(context.asset_partition_keys) if partitions is not None else []
        if options.is_now and not options.since:  # read the branch that the asset is written to
            options = options.model_copy(update={"ref": options.branch or self.branch})
        if options.since:
            return self._read_since(context, kind, identifier, options, keys)
        if partitions is not None and not keys:  # mapped to no partition, such as the day before the first
            return self._no_rows(kind, identifier, options)
        return self._read(context, kind, identifier, options, partitions.slice(keys) if partitions else None)

    def _read(
        self,
        context: InputContext,
        kind: Kind,
        identifier: TableIdentifier,
        options: InputOptions,
        within: TableSlice | None,
    ) -> Any:
        arguments = options.model_dump(include={"columns", "row_filter", "snapshot_id", "as_of", "ref"})
        if options.is_of_main:
            table = arguments["table"] = self._loaded_together(context).get(identifier)
            if table is not None:
                arguments["ref"] = _branch_of_run(step_of(context), identifier, table)
        if kind is Kind.SPARK:
            reading = self._lake.reading(identifier, slice=within, **arguments)
            has_read(step_of(context), identifier, reading.snapshot_id)
            return reading.frame
        scan = self._lake.tables.scan(identifier, **arguments)
        if within is not None:
            scan = scan.filter(slice_filter(within, scan.update(selected_fields=("*",)).projection()))
        head = scan.snapshot()
        has_read(step_of(context), identifier, head.snapshot_id if head is not None else None)
        return from_scan(kind, scan)

    def _read_since(
        self, context: InputContext, kind: Kind, identifier: TableIdentifier, options: InputOptions, keys: Sequence[str]
    ) -> Any:
        """The rows appended since the snapshot that this asset consumed last; all rows the first time."""
        tables, step = self._lake.tables, step_of(context)
        refuse_past({"snapshot_id": options.snapshot_id, "as_of": options.as_of, "ref": options.ref})
        _refuse_some_partitions(context, keys)
        loaded = self._loaded_together(context).get(identifier) or tables.load_table(identifier)
        table = tables.as_shown(loaded, identifier)
        branch = _branch_in(table)
        since = cursors.consumed_until(tables, identifier, self._consumer(context), branch=branch)
        follows(step, identifier, since)
        head = table.snapshot_by_name(branch)
        if head is None:
            return self._no_rows(kind, identifier, options)
        if since is None:
            # Pinned to this snapshot: later appends are for the next run.
            now = options.model_copy(update={"snapshot_id": head.snapshot_id})
            return self._read(context, kind, identifier, now, None)
        if kind is Kind.SPARK:
            reading = self._lake.reading(
                identifier,
                columns=options.columns,
                row_filter=options.row_filter,
                since=since,
                until=head.snapshot_id,
                table=table,
            )
            has_read(step, identifier, reading.snapshot_id)
            return reading.frame
        has_read(step, identifier, head.snapshot_id)
        changes = tables.scan_changes(
            identifier, since=since, until=head.snapshot_id, columns=options.columns, row_filter=options.row_filter
        )
        return from_scan(kind, changes)

    def _loaded_together(self, context: InputContext) -> Mapping[TableIdentifier, Table]:
        """The tables that the step reads as they are now, all loaded at one moment; empty if it is one table.

        A publication of several tables is then in all inputs of the step or in none.
        """
        step = step_of(context)
        if step is None:
            return {}
        attempt = attempt_of(step)
        if self._together is None or self._together[0] != attempt:
            names = set(self._tables_read_now(step))
            alone = len(names) == 1 and current_run() is None
            loaded = self._lake.tables.load_at_once(names, skip_missing=True) if names and not alone else {}
            self._together = (attempt, loaded)
        return self._together[1]

    def _tables_read_now(self, step: Any) -> Iterator[TableIdentifier]:
        for one in step_inputs(step):
            with suppress(ConfigurationError):  # reported when this input is loaded
                if isinstance(one.manager, IcebergIOManager) and self._has_tables_of(one.manager):
                    options = input_options(one.upstream, one.own, one.key.to_user_string())
                    branch = options.branch or one.manager.branch
                    if options.is_now and branch in (None, MAIN_BRANCH):
                        yield table_of(one.key.path, options, one.manager.naming)

    def _consumer(self, context: InputContext) -> cursors.Consumer:
        """The asset that the step makes, and its table: rows and cursor must be written in one commit."""
        step, name = step_of(context), context.name if context.has_input_name else "input"
        keys = sorted(step.get_output_asset_keys()) if step is not None else []
        if len(keys) != 1 or len(step.step.step_outputs) != 1:
            raise ConfigurationError(
                f"input {name!r}: since is for a step that makes one asset, which keeps what was consumed; this one "
                f"makes {len(keys)}"
            )
        asset, node = keys[0].to_user_string(), step.job_def.asset_layer.get(keys[0])
        output = step.step.step_outputs[0]
        stored = not step.op_def.output_dict[output.name].dagster_type.is_nothing
        manager = io_manager_of(step, output.name) if stored else None
        if not isinstance(manager, IcebergIOManager) or manager._lake.tables is not self._lake.tables:  # noqa: SLF001
            raise ConfigurationError(
                f"input {name!r}: since is for an asset that is kept in the same lake, where it is noted what was "
                f"consumed; {asset} is not"
            )
        if node.partitions_def is not None:
            raise ConfigurationError(
                f"input {name!r}: since is for unpartitioned assets, and {asset} is partitioned: it would not be "
                f"certain which partition gets what was appended"
            )
        options = output_options(node.metadata, asset)
        return cursors.Consumer(
            asset, table_of(keys[0].path, options, manager.naming), manager.branch_of(options, asset)
        )

    def _is_shown(self, identifier: TableIdentifier) -> bool:
        """Is there a table, as main or the branch of the lake shows it?"""
        tables = self._lake.tables
        table = tables.find_table(identifier)
        try:
            return table is not None and unpublished_by(tables.as_shown(table, identifier).properties) is None
        except TableNotFoundError:
            return False

    def _no_rows(self, kind: Kind, identifier: TableIdentifier, options: InputOptions) -> Any:
        """An empty value with the table's columns; without columns if the table does not exist yet."""
        if not self._is_shown(identifier):
            return nothing(kind, lambda: self._lake.spark)
        if kind is Kind.SPARK:
            return self._lake.read(identifier, columns=options.columns).limit(0)
        return from_scan(kind, self._lake.tables.scan(identifier, columns=options.columns, limit=0))


def _branch_in(table: Table) -> str:
    """The branch of a table that the current step reads: that of its atomic run if the run has written to it."""
    run = current_run()
    return run.branch if run is not None and run.branch in table.metadata.refs else MAIN_BRANCH


def _branch_of_run(step: Any, identifier: TableIdentifier, table: Table) -> str | None:
    """The branch of the atomic run, if it has written to the table; otherwise the head of main is recorded as read."""
    branch = _branch_in(table)
    if branch != MAIN_BRANCH:
        return branch
    if current_run() is not None:
        head = table.current_snapshot()
        has_read_head(step, identifier, head.snapshot_id if head is not None else None)
    return None


def _checks(*checks: Callable[[Table], None] | None) -> Callable[[Table], None]:
    """One check that runs all of these in order."""

    def check(table: Table) -> None:
        for part in checks:
            if part is not None:
                part(table)

    return check


def _asset_of(context: InputContext | OutputContext) -> str:
    if context.has_asset_key:
        return str(context.asset_key.to_user_string())
    role = "output" if isinstance(context, OutputContext) else "input"
    raise ConfigurationError(
        f"{role} {context.name!r} of op {context.op_def.name!r} is no asset, so it has no table; give it an IO manager "
        f'of its own, such as Out(io_manager_key="mem_io_manager")'
    )


def _annotation_of(context: InputContext) -> Any:
    """The type annotation of the input; None if the context was built without an op."""
    try:
        return context.dagster_type.typing_type
    except DagsterInvariantViolationError:
        return None


def _partitions_of(
    context: InputContext | OutputContext, options: OutputOptions | InputOptions, asset: str
) -> Partitioning | None:
    """How the asset is partitioned; None if it is not."""
    if context.has_asset_partitions:
        return partitioning(context.asset_partitions_def, options.partition_expr, asset)
    step = step_of(context)
    written = isinstance(context, OutputContext) and step is not None
    if written and step.partitions_def_for_output(context.name) is not None:
        raise ConfigurationError(
            f"asset {asset} is partitioned, but this run names no partition; run it with one, such as "
            f"floe run --partition KEY. Nothing was written"
        )
    return None


def _refuse_some_partitions(context: InputContext, keys: Sequence[str]) -> None:
    """Refuse `since` on some partitions only: the cursor would skip rows appended to the others."""
    if not context.has_asset_partitions:
        return
    step = step_of(context)
    store = step.instance if step is not None else None
    if set(keys) != set(context.asset_partitions_def.get_partition_keys(dynamic_partitions_store=store)):
        raise ConfigurationError(
            f"input {context.name!r}: since reads what was appended to all partitions, and this input is mapped to "
            f"some of them; leave out since, or the partition mapping"
        )
