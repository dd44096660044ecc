"""IcebergIOManager: the value of an asset is the content of its table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from dagster import (
    ConfigurableIOManager,
    InputContext,
    MetadataValue,
    OutputContext,
    TableColumn,
    TableSchema,
)
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_core.models import MaterializationMetadata, SnapshotInfo, WriteMode
from floe_dagster.partitions import partition_transform, table_slice
from floe_dagster.resources import LakeResource
from floe_iceberg.slices import slice_filter
from floe_spark import Lake, WriteResult

__all__ = ["IcebergIOManager", "table_of"]


# What Dagster puts on a run that goes on where another one failed; a deliberate re-execution has none of them.
_RETRY_TAGS = {"dagster/retry_number", "dagster/is_resume_retry", "dagster/is_asset_resume_retry"}


class IcebergIOManager(ConfigurableIOManager):
    """Writes Spark DataFrames to the table named by the asset key, and reads them back lazily.

    A partitioned asset replaces its own partitions; an unpartitioned one appends unless its metadata says
    `write_mode: overwrite`.
    """

    lake: LakeResource

    @property
    def _lake(self) -> Lake:
        return self.lake.lake

    def handle_output(self, context: OutputContext, obj: DataFrame) -> None:
        if not context.has_asset_key:
            raise ConfigurationError(
                f"output {context.name!r} of op {context.op_def.name!r} is no asset, so it has no table; give it an "
                f'IO manager of its own, such as Out(io_manager_key="mem_io_manager")'
            )
        asset = context.asset_key.to_user_string()
        if not isinstance(obj, DataFrame):
            raise ConfigurationError(
                f"asset {asset} returned {type(obj).__name__}; return a Spark DataFrame, "
                f"or annotate the function with -> None if it has nothing to store"
            )
        if not context.has_asset_partitions and _is_partitioned(context):
            raise ConfigurationError(
                f"asset {asset} is partitioned, but this run names no partition; run it with one, such as "
                f"floe run --partition KEY. Nothing was written"
            )
        metadata = context.definition_metadata
        column = _partition_column(context, metadata, asset)
        mode = _write_mode(metadata, asset, partitioned=column is not None)
        written = _slice(context, column, asset)
        result = self._lake.write(
            obj,
            table_of(context.asset_key.path, self._lake),
            mode=mode,
            slice=written,
            partition_by=[partition_transform(context.asset_partitions_def, column=column, asset=asset)]
            if column
            else (),
            write_id=_write_id(context),
            snapshot_properties=_trace(context),
            allow_empty=bool(metadata.get("allow_empty", False)),
        )
        if result.deduplicated:
            context.log.warning(
                f"{asset} was written before by this run or the run it retries (snapshot "
                f"{result.snapshot.snapshot_id}); it was not written again"
            )
        self._describe(context, mode, result, written)

    def load_input(self, context: InputContext) -> DataFrame:
        asset = context.asset_key.to_user_string()
        upstream = context.upstream_output
        metadata = {
            **(upstream.definition_metadata if upstream is not None else {}),
            **(context.definition_metadata or {}),
        }
        column = _partition_column(context, metadata, asset)
        table = table_of(context.asset_key.path, self._lake)
        if column is not None and not context.asset_partition_keys:
            # Such as the day before the first day: nothing to read. The table's columns, if there is a table yet.
            if not self._lake.tables.table_exists(table):
                return self._lake.spark.createDataFrame([], StructType([]))
            return self._lake.read(table).limit(0)
        return self._lake.read(table, slice=_slice(context, column, asset))

    def _describe(
        self, context: OutputContext, mode: WriteMode, result: WriteResult, written: TableSlice | None
    ) -> None:
        identifier = table_of(context.asset_key.path, self._lake)
        table = self._lake.tables.load_table(identifier)
        snapshot = result.snapshot
        facts = MaterializationMetadata(
            table=str(identifier),
            num_rows=snapshot.count("added-records"),
            snapshot_id=snapshot.snapshot_id,
            write_mode=mode,
            partition_key=_partition_label(context),
            schema_evolved=bool(result.schema_change),
        )
        context.add_output_metadata(
            {
                **self._row_count(context, snapshot, written),
                "dagster/table_name": facts.table,
                "dagster/uri": table.location(),
                "dagster/column_schema": TableSchema(
                    columns=[TableColumn(field.name, str(field.field_type)) for field in table.schema().fields]
                ),
                # As text: a snapshot id has more digits than a browser's numbers.
                "floe/snapshot_id": MetadataValue.text(str(facts.snapshot_id)),
                "floe/write_mode": facts.write_mode.value,
                "floe/rows_added": facts.num_rows,
                "floe/rows_removed": snapshot.count("deleted-records"),
                "floe/files_added": snapshot.count("added-data-files"),
                "floe/files_removed": snapshot.count("deleted-data-files"),
                "floe/bytes_added": snapshot.count("added-files-size"),
                "floe/schema_evolved": facts.schema_evolved,
                "floe/schema_change": str(result.schema_change),
                "floe/deduplicated": result.deduplicated,
                "floe/partitions": facts.partition_key or "",
            }
        )

    def _row_count(self, context: OutputContext, snapshot: SnapshotInfo, written: TableSlice | None) -> dict[str, int]:
        """Dagster's own key for the number of rows, where it is true: of several partitions only the sum is known.

        Counted in the table: the rows a commit added may include neighbours that lay in the same file.
        """
        if written is None:
            return {"dagster/row_count": snapshot.count("total-records")}
        if len(context.asset_partition_keys) > 1:
            return {}
        tables, identifier = self._lake.tables, table_of(context.asset_key.path, self._lake)
        inside = slice_filter(written, tables.load_table(identifier).schema())
        rows = tables.scan(identifier, row_filter=inside, snapshot_id=snapshot.snapshot_id).count()
        return {"dagster/partition_row_count": rows}


def table_of(key: Any, lake: Lake) -> TableIdentifier:
    """The table of an asset key."""
    return TableIdentifier.from_asset_key(list(key), lake.artifacts.tables.default_namespace)


def _partition_column(context: InputContext | OutputContext, metadata: Mapping[str, Any], asset: str) -> str | None:
    """The column that holds the partition; None for an unpartitioned asset."""
    if not context.has_asset_partitions:
        return None
    column = metadata.get("partition_expr")
    if not isinstance(column, str):
        raise ConfigurationError(
            f"asset {asset} is partitioned, but its metadata does not name the column of the partition: "
            f'add metadata={{"partition_expr": "COLUMN"}}'
        )
    return column


def _is_partitioned(context: OutputContext) -> bool:
    return context.step_context.partitions_def_for_output(context.name) is not None


def _slice(context: InputContext | OutputContext, column: str | None, asset: str) -> TableSlice | None:
    if column is None:
        return None
    return table_slice(context.asset_partitions_def, context.asset_partition_keys, column=column, asset=asset)


def _write_mode(metadata: Mapping[str, Any], asset: str, *, partitioned: bool) -> WriteMode:
    said = metadata.get("write_mode")
    if said is None:
        return WriteMode.OVERWRITE if partitioned else WriteMode.APPEND
    try:
        return WriteMode(said)
    except ValueError:
        modes = ", ".join(mode.value for mode in WriteMode)
        raise ConfigurationError(f"asset {asset}: write_mode {said!r} is not one of {modes}") from None


def _partition_label(context: OutputContext) -> str | None:
    if not context.has_asset_partitions:
        return None
    keys = list(context.asset_partition_keys)
    return keys[0] if len(keys) == 1 else f"{keys[0]}...{keys[-1]}"


def _run_of_write(context: OutputContext) -> str:
    """The run a write belongs to: a retry goes on with the writes of its parent, a re-execution makes new ones."""
    run = context.step_context.dagster_run
    while run.parent_run_id is not None and _RETRY_TAGS & run.tags.keys():
        parent = context.step_context.instance.get_run_by_id(run.parent_run_id)
        if parent is None:
            return run.parent_run_id
        run = parent
    return run.run_id


def _write_id(context: OutputContext) -> str:
    parts = [
        _run_of_write(context),
        context.asset_key.to_user_string(),
        context.name,
        context.mapping_key or "",
        context.step_context.job_def.asset_layer.get(context.asset_key).code_version or "",
        *(context.asset_partition_keys if context.has_asset_partitions else ()),
    ]
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def _trace(context: OutputContext) -> dict[str, str]:
    label = _partition_label(context)
    return {
        "floe.run-id": context.run_id,
        "floe.asset": context.asset_key.to_user_string(),
        **({"floe.partition": label} if label else {}),
    }
