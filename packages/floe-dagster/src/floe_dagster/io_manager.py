"""IcebergIOManager: the value of an asset is the content of its table."""

# No postponed annotations here: Dagster looks at those of the class while it is made.
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
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from floe_core.errors import ConfigurationError
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
from floe_dagster.runs.description import STORAGE_KIND, describe
from floe_dagster.runs.owners import Owner, how_to_take_over, shared_table, visible_assets
from floe_dagster.runs.steps import followed, follows, has_read, step_of, tags_of, trace, write_id
from floe_dagster.runs.tracing import run_trace
from floe_iceberg import Lake
from floe_iceberg.arguments import choice
from floe_iceberg.expressions import slice_filter
from floe_iceberg.reading import refuse_past
from floe_iceberg.schema import to_iceberg_schema
from floe_iceberg.snapshots import write_summary
from floe_iceberg.writing import ArrowSource, Target, WriteRequest, WriteResult, source_of

__all__ = ["IcebergIOManager"]


class IcebergIOManager(KnownArguments, ConfigurableIOManager):
    """Stores what assets return as Iceberg tables, and reads it back as what their consumers ask for.

    Assets return Spark, pandas and polars frames, Arrow tables and readers; inputs arrive as they are annotated. Where
    they are not, they are lazy Spark frames, or Arrow tables if there is only a `table_manager`. A partitioned asset
    replaces its own partitions; an unpartitioned one appends unless its metadata says `write_mode: overwrite`.

    The fields are defaults: the metadata of an asset goes over them, and the configuration of a run over both.
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
    # The assets by table, of one run and its job.
    _visible: tuple[str, Any, Mapping[str, Sequence[str]]] | None = PrivateAttr(default=None)

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
        with run_trace(context, lambda: artifacts_of(self._lake)), super().yield_for_execution(context) as made:
            yield made

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
        kind = kind_of_value(obj, asset)
        options = output_options(context.definition_metadata, asset, context.config, emitted=context.output_metadata)
        refuse_tags(tags_of(context), asset)
        self._refuse_shared(context, table_of(context.asset_key.path, options, self.naming))
        partitions = _partitions_of(context, options, asset)
        keys = list(context.asset_partition_keys) if partitions is not None else []
        if self._mode(options, partitioned=partitions is not None) is WriteMode.UPSERT:
            refuse_no_keys(options, asset)
            if partitions is not None:
                partitions.refuse_keys_of_others(options.upsert_keys, asset)
        data: Any = obj if kind is Kind.SPARK else source_of(obj)
        identifier = table_of(context.asset_key.path, options, self.naming)
        target = None if partitions is None else Target(self._lake.tables.find_table(identifier))
        request = self._request(context, data, options, partitions, keys, target)
        if self.evolve_partitions if options.evolve_partitions is None else options.evolve_partitions:
            self._follow(request, partitions)
            target = None  # it may have changed
        if kind is Kind.SPARK:
            result = self._lake.write_request(data, request, target)
        else:
            result = self._lake.tables.write(request, data, target)
        self._tell(context, request, result, options, keys)

    def _follow(self, request: WriteRequest, partitions: Partitioning | None) -> None:
        """Partition what is written from now on as the asset is; a table that the write creates is anyway."""
        tables, identifier = self._lake.tables, request.identifier
        table = tables.find_table(identifier)
        if table is None:
            return
        if request.check is not None:
            request.check(table)
        transforms = partitions.transforms(table.schema()) if partitions is not None else []
        known = {one.name.lower() for one in table.schema().fields}
        if all(one.source_column.lower() in known for one in transforms):  # else the write adds the column
            tables.evolve_partitions(identifier, transforms)

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
        kept = self._visible
        if kept is None or kept[0] != step.run_id or kept[1] is not step.job_def:
            found: dict[str, list[str]] = {}
            for key, manager, metadata in visible_assets(step):
                known = isinstance(manager, IcebergIOManager) and self._has_tables_of(manager)
                table = manager._place_of(key, metadata) if known else None  # noqa: SLF001 - of the same class
                if table is not None:
                    # Spark does not distinguish `Orders` from `orders`.
                    found.setdefault(table.full_name.lower(), []).append(key.to_user_string())
            self._visible = kept = (step.run_id, step.job_def, found)
        return kept[2]

    def _has_tables_of(self, other: "IcebergIOManager") -> bool:
        """Do both store in the same tables? Another lake is not opened to find out."""
        if self.table_manager is not None:
            return other.table_manager is self.table_manager
        return other.table_manager is None and other._lake is self._lake  # noqa: SLF001 - of the same class

    def _place_of(self, key: AssetKey, metadata: Mapping[str, Any]) -> TableIdentifier | None:
        """The table of an asset; None if its options are wrong, for which it is refused when it is written."""
        with suppress(ConfigurationError):
            return table_of(key.path, output_options(metadata, key.to_user_string()), self.naming)
        return None

    def _tell(
        self,
        context: OutputContext,
        request: WriteRequest,
        result: WriteResult,
        options: OutputOptions,
        keys: Sequence[str],
    ) -> None:
        """Tell Dagster what was written. It is: nothing here may fail the step, which would write it again."""
        step, asset, snapshot_id = step_of(context), _asset_of(context), str(result.snapshot.snapshot_id)
        if result.deduplicated:
            context.log.warning(
                f"{asset} was written before by this run or the run it retries (snapshot {snapshot_id}); it was not "
                f"written again"
            )
        if step is not None:
            step.set_data_version(context.asset_key, DataVersion(snapshot_id))
        try:
            if step is not None:
                cursors.advance(self._lake.tables, followed(step), asset, result.snapshot)
            described = describe(
                request,
                result,
                options=options,
                declared=context.definition_metadata,
                keys=keys,
            )
        except Exception as exc:  # noqa: BLE001 - whatever it is, the rows are there
            context.log.warning(
                f"{asset} is written (snapshot {snapshot_id}), and could not be described: {type(exc).__name__}: {exc}"
            )
            described = {
                "dagster/table_name": str(request.identifier),
                "dagster/storage_kind": STORAGE_KIND,
                "floe/snapshot_id": MetadataValue.text(snapshot_id),
            }
        context.add_output_metadata(described)

    def _request(
        self,
        context: OutputContext,
        data: Any,
        options: OutputOptions,
        partitions: Partitioning | None,
        keys: Sequence[str],
        target: Target | None,
    ) -> WriteRequest:
        tables = self._lake.tables
        identifier = table_of(context.asset_key.path, options, self.naming)
        own_id = write_id(context) or uuid.uuid4().hex
        evolve = options.schema_evolution_enabled
        branch = options.branch or self.branch or MAIN_BRANCH
        sources = followed(step_of(context))
        mode = self._mode(options, partitioned=partitions is not None)
        artifacts = tables.artifacts
        owner = Owner(_asset_of(context), artifacts.name if artifacts is not None else None)
        take_over = self.take_over if options.take_over is None else options.take_over
        return WriteRequest(
            identifier=identifier,
            mode=mode,
            write_id=own_id,
            summary=write_summary(own_id, trace(context)),
            slice=partitions.slice(keys) if partitions is not None else None,
            keys=options.upsert_keys,
            commit_strategy=self._strategy(options, mode),
            branch=branch,
            partition_by=self._layout(target, data, partitions, keys, _asset_of(context)),
            properties={**self.table_properties, **options.table_properties},
            evolve=self.schema_evolution_enabled if evolve is None else evolve,
            allow_empty=self.allow_empty if options.allow_empty is None else options.allow_empty,
            check=_checks(
                None if take_over else owner.refuse_others(identifier, how_to_take_over(context)),
                partitions.refuse_without_columns(identifier, branch) if partitions is not None else None,
                cursors.still_there(sources, _asset_of(context), branch) if sources else None,
            ),
            marks=owner.marks(take_over=take_over),
            sample_rows=self.preview_rows if options.preview_rows is None else options.preview_rows,
        )

    def _strategy(self, options: OutputOptions, mode: WriteMode) -> CommitStrategy | None:
        """What the asset asks for; the manager's own default is for the assets that append."""
        if options.commit_strategy is not None or self.commit_strategy is None or mode is not WriteMode.APPEND:
            return options.commit_strategy
        return choice(CommitStrategy, self.commit_strategy, "commit_strategy")

    def _mode(self, options: OutputOptions, *, partitioned: bool) -> WriteMode:
        if options.write_mode is not None:
            return options.write_mode
        if self.default_write_mode is not None:
            return choice(WriteMode, self.default_write_mode, "default_write_mode")
        return WriteMode.OVERWRITE if partitioned else WriteMode.APPEND

    def _layout(
        self, target: Target | None, data: Any, partitions: Partitioning | None, keys: Sequence[str], asset: str
    ) -> Sequence[PartitionTransform]:
        """The hidden partitioning of a table that is not there yet; it depends on the types of the columns."""
        if partitions is None or target is None:
            return ()
        if target.table is not None and isinstance(data, ArrowSource) and data.untyped:
            known = target.table.schema()  # columns of NULLs alone take their types from the table
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
        unsaid = Kind.SPARK if self.table_manager is None else Kind.ARROW  # tables alone start no Spark
        kind = kind_of_annotation(_annotation_of(context), name, unsaid=unsaid)
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
        if options.is_now and not options.since:  # where the asset is written is where it is read
            options = options.model_copy(update={"ref": options.branch or self.branch})
        if options.since:
            return self._read_since(context, kind, identifier, options, keys)
        if partitions is not None and not keys:  # such as the day before the first day
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
        said = options.model_dump(include={"columns", "row_filter", "snapshot_id", "as_of", "ref"})
        if kind is Kind.SPARK:
            found = self._lake.reading(identifier, slice=within, **said)
            has_read(step_of(context), identifier, found.snapshot_id)
            return found.frame
        scan = self._lake.tables.scan(identifier, **said)
        if within is not None:
            scan = scan.filter(slice_filter(within, scan.update(selected_fields=("*",)).projection()))
        head = scan.snapshot()
        has_read(step_of(context), identifier, head.snapshot_id if head is not None else None)
        return from_scan(kind, scan)

    def _read_since(
        self, context: InputContext, kind: Kind, identifier: TableIdentifier, options: InputOptions, keys: Sequence[str]
    ) -> Any:
        """What was appended after what this asset consumed last; the first time, everything."""
        tables, step = self._lake.tables, step_of(context)
        refuse_past({"snapshot_id": options.snapshot_id, "as_of": options.as_of, "ref": options.ref})
        _refuse_some_partitions(context, keys)
        since = cursors.consumed_until(tables, identifier, self._consumer(context))
        follows(step, identifier, since)
        head = tables.current_snapshot(identifier)
        if head is None:
            return self._no_rows(kind, identifier, options)
        if since is None:
            # At this snapshot and no other: what comes later is for the next run.
            now = options.model_copy(update={"snapshot_id": head.snapshot_id})
            return self._read(context, kind, identifier, now, None)
        if kind is Kind.SPARK:
            found = self._lake.reading(identifier, columns=options.columns, row_filter=options.row_filter, since=since)
            has_read(step, identifier, found.snapshot_id)
            return found.frame
        has_read(step, identifier, head.snapshot_id)
        changes = tables.scan_changes(
            identifier, since=since, until=head.snapshot_id, columns=options.columns, row_filter=options.row_filter
        )
        return from_scan(kind, changes)

    def _consumer(self, context: InputContext) -> cursors.Consumer:
        """The asset that the step makes, and where it is kept: rows and cursor must come in one commit."""
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
            asset, table_of(keys[0].path, options, manager.naming), options.branch or manager.branch or MAIN_BRANCH
        )

    def _no_rows(self, kind: Kind, identifier: TableIdentifier, options: InputOptions) -> Any:
        """The table's columns without a row; nothing at all if there is no table yet."""
        if not self._lake.tables.table_exists(identifier):
            return nothing(kind, lambda: self._lake.spark)
        if kind is Kind.SPARK:
            return self._lake.read(identifier, columns=options.columns).limit(0)
        return from_scan(kind, self._lake.tables.scan(identifier, columns=options.columns, limit=0))


def _checks(*checks: Callable[[Table], None] | None) -> Callable[[Table], None]:
    """All of them, one after the other."""

    def check(table: Table) -> None:
        for one in checks:
            if one is not None:
                one(table)

    return check


def _asset_of(context: InputContext | OutputContext) -> str:
    if context.has_asset_key:
        return str(context.asset_key.to_user_string())
    what = "output" if isinstance(context, OutputContext) else "input"
    raise ConfigurationError(
        f"{what} {context.name!r} of op {context.op_def.name!r} is no asset, so it has no table; give it an IO manager "
        f'of its own, such as Out(io_manager_key="mem_io_manager")'
    )


def _annotation_of(context: InputContext) -> Any:
    """The type annotation of the input; None where the context was built for the asset alone, without an op."""
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
    """What is appended to partitions that are not read would never be read: the cursor passes it."""
    if not context.has_asset_partitions:
        return
    step = step_of(context)
    store = step.instance if step is not None else None
    if set(keys) != set(context.asset_partitions_def.get_partition_keys(dynamic_partitions_store=store)):
        raise ConfigurationError(
            f"input {context.name!r}: since reads what was appended to all partitions, and this input is mapped to "
            f"some of them; leave out since, or the partition mapping"
        )
