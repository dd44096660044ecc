"""The benchmark's assets through dagster-iceberg, in an environment of its own.

python -m benchmarks.peer FOLDER [ORDER ...]     with no order, they come line by line
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

from dagster_iceberg.config import IcebergCatalogConfig  # type: ignore[import-not-found]  # of the peer's environment
from dagster_iceberg.io_manager.arrow import PyArrowIcebergIOManager  # type: ignore[import-not-found]
from pyiceberg.catalog import load_catalog

from benchmarks.sales import DAYS, daily, days, look_at, materialize, unpartitioned
from benchmarks.worker import serve


class Peer:
    """A SQLite catalog and a warehouse in a folder."""

    def __init__(self, folder: Path) -> None:
        properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        self._catalog = load_catalog("peer", **properties)
        self._catalog.create_namespace_if_not_exists("bench")
        manager = PyArrowIcebergIOManager(name="peer", config=IcebergCatalogConfig(properties=properties))
        self._resources = {"io_manager": manager}

    def write(self, name: str) -> float:
        return materialize(unpartitioned(name), self._resources)

    def backfill(self, name: str, *keys: str) -> float:
        """Day by day: a run of several is nothing it could store."""
        one = daily(name)
        return sum(materialize(one, self._resources, partition_key=key) for key in keys or DAYS)

    def look(self, name: str) -> dict[str, Any]:
        return look_at(self._catalog.load_table(("bench", name)))


def main(folder: str, *asked: str) -> None:
    warnings.simplefilter("ignore")
    if not asked:
        days(DAYS)  # made before anything is timed
    peer = Peer(Path(folder))
    serve({"write": peer.write, "backfill": peer.backfill, "look": peer.look}, list(asked))


if __name__ == "__main__":
    main(*sys.argv[1:])
