"""The benchmark's assets through Floe.

python -m benchmarks.ours FOLDER [ORDER ...]     with no order, they come line by line
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from dagster import BackfillPolicy

from benchmarks.sales import DAYS, SCHEMA, daily, day, days, look_at, materialize, unpartitioned
from benchmarks.worker import serve
from floe_core.config import CompiledArtifacts
from floe_core.identifiers import TableIdentifier
from floe_dagster import LakeResource, create_iceberg_resources

_ALL_DAYS = {"dagster/asset_partition_range_start": DAYS[0], "dagster/asset_partition_range_end": DAYS[-1]}


class Ours:
    """A project in a folder."""

    def __init__(self, folder: Path) -> None:
        self._source = folder / "source"
        self._resources = create_iceberg_resources(CompiledArtifacts.load(folder))
        lake = self._resources["lake"]
        assert isinstance(lake, LakeResource)
        self._lake = lake

    def write(self, name: str) -> float:
        return materialize(unpartitioned(name), self._resources)

    def backfill(self, name: str) -> float:
        return self._backfill(name, days)

    def backfill_as_stream(self, name: str) -> float:
        return self._backfill(name, _stream)

    def backfill_with_spark(self, name: str) -> float:
        return self._backfill(name, lambda keys: self._lake.spark.read.parquet(*(self._file(key) for key in keys)))

    def replace_day_with_spark(self, name: str) -> float:
        """One day of a table that has all of them."""
        one = daily(name, lambda keys: self._lake.spark.read.parquet(self._file(keys[0])))
        return materialize(one, self._resources, partition_key=DAYS[0])

    def _backfill(self, name: str, value: Callable[[Sequence[str]], Any]) -> float:
        """All days in one run."""
        one = daily(name, value, backfill_policy=BackfillPolicy.single_run())
        return materialize(one, self._resources, tags=_ALL_DAYS)

    def _file(self, key: str) -> str:
        """A day's rows where Spark finds them."""
        return str(self._source / f"{key}.parquet")

    def prepare_spark(self) -> None:
        self._source.mkdir()
        for key in DAYS:
            pq.write_table(day(key), self._file(key))

    def look(self, name: str) -> dict[str, Any]:
        return look_at(self._lake.lake.tables.load_table(TableIdentifier.from_string(f"bench.{name}")))


def _stream(keys: Sequence[str]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, (batch for key in keys for batch in day(key).to_batches()))


def main(folder: str, *asked: str) -> None:
    warnings.simplefilter("ignore")
    if not asked:
        days(DAYS)  # made before anything is timed
    ours = Ours(Path(folder))
    orders: dict[str, Callable[..., Any]] = {
        "write": ours.write,
        "backfill": ours.backfill,
        "backfill_as_stream": ours.backfill_as_stream,
        "backfill_with_spark": ours.backfill_with_spark,
        "prepare_spark": ours.prepare_spark,
        "replace_day_with_spark": ours.replace_day_with_spark,
        "look": ours.look,
    }
    serve(orders, list(asked))


if __name__ == "__main__":
    main(*sys.argv[1:])
