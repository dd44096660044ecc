"""Assets made for a test, run in this process and read back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    AssetsDefinition,
    BackfillPolicy,
    DagsterInstance,
    Definitions,
    ExecuteInProcessResult,
    PartitionMapping,
    PartitionsDefinition,
    asset,
    materialize,
)

from floe_dagster.testing.partitions import Partitions
from floe_dagster.testing.values import Values

__all__ = ["Rows", "Workbench", "annotated", "rows_of"]

Rows = list[dict[str, Any]]
# The rows that an asset stores for the partition keys of a run; no keys if it is not partitioned.
Content = Callable[[Sequence[str]], pa.Table]

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def rows_of(table: pa.Table) -> Rows:
    """The rows sorted by id: tables have no row order."""
    return sorted(table.to_pylist(), key=lambda row: int(row["id"]))


def annotated(function: Callable[..., Any], **annotations: Any) -> Callable[..., Any]:
    """The function with annotations set at run time; `returns` is the return annotation."""
    returns = {"return": annotations.pop("returns")} if "returns" in annotations else {}
    function.__annotations__ = {**function.__annotations__, **annotations, **returns}
    return function


@dataclass
class Workbench:
    """Assets under one prefix, stored by the IO manager under test."""

    io_manager: Any
    instance: DagsterInstance
    prefix: str
    metadata: Mapping[str, Any]
    seen: dict[str, pa.Table] = field(default_factory=dict)

    def key(self, name: str) -> AssetKey:
        return AssetKey([self.prefix, name])

    def options(self, partitions: Partitions | None) -> dict[str, Any]:
        """The arguments of `@asset` for these partitions, or for an unpartitioned asset."""
        if partitions is None:
            return {"metadata": dict(self.metadata)}
        return {
            "partitions_def": partitions.definition,
            "metadata": {"partition_expr": partitions.expr},
            "backfill_policy": BackfillPolicy.single_run(),
        }

    def writer(
        self,
        name: str,
        values: Values,
        content: Content,
        partitions: Partitions | None = None,
        *,
        make: Callable[[pa.Table], Any] | None = None,
        **options: Any,
    ) -> AssetsDefinition:
        """An asset that stores what `content` returns when it runs."""

        def write(context: AssetExecutionContext) -> Any:
            keys = context.partition_keys if context.has_partition_key_range or context.has_partition_key else []
            return (make or values.make)(content(keys))

        declared = {"key": self.key(name), **self.options(partitions), **options}
        made: AssetsDefinition = asset(**declared)(annotated(write, returns=values.annotation))
        return made

    def reader(
        self,
        name: str,
        values: Values,
        upstream: str,
        partitions_def: PartitionsDefinition[Any] | None = None,
        mapping: PartitionMapping | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AssetsDefinition:
        """An asset that stores nothing; the value it loads is recorded in `seen` under its name."""

        def read(upstream: Any) -> None:
            assert isinstance(upstream, values.annotation), f"{name} was given a {type(upstream)}"  # noqa: S101
            self.seen[name] = values.rows(upstream)

        made: AssetsDefinition = asset(
            key=self.key(name),
            ins={"upstream": AssetIn(self.key(upstream), partition_mapping=mapping, metadata=metadata)},
            partitions_def=partitions_def,
            backfill_policy=BackfillPolicy.single_run() if partitions_def is not None else None,
        )(annotated(read, upstream=values.annotation))
        return made

    def run(
        self,
        assets: Iterable[AssetsDefinition],
        *chosen: str,
        key: str | None = None,
        span: tuple[str, str] | None = None,
        raise_on_error: bool = True,
    ) -> ExecuteInProcessResult:
        """Run the assets chosen by name, or all; `span` is the first and last key of a range."""
        tags = {} if span is None else dict(zip(_RANGE, span, strict=True))
        return materialize(
            list(assets),
            selection=[self.key(name) for name in chosen] or None,
            partition_key=key,
            tags=tags,
            instance=self.instance,
            resources={"io_manager": self.io_manager},
            run_config=_QUIET,
            raise_on_error=raise_on_error,
        )

    def load(
        self,
        assets: Iterable[AssetsDefinition],
        name: str | AssetKey,
        values: Values,
        key: str | None = None,
        **arguments: Any,
    ) -> pa.Table:
        """The value of an asset, loaded without a run."""
        everything = Definitions(assets=list(assets), resources={"io_manager": self.io_manager})
        loaded = everything.load_asset_value(
            name if isinstance(name, AssetKey) else self.key(name),
            python_type=values.annotation,
            instance=self.instance,
            partition_key=key,
            **arguments,
        )
        return values.rows(loaded)


_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
