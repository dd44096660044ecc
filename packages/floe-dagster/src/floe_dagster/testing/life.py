"""The life of a partitioned asset: written as a whole, read in every way, written again in part, emptied."""

# ruff: noqa: S101 - these are tests

from collections.abc import Sequence

import pyarrow as pa
from dagster import SpecificPartitionsPartitionMapping

from floe_dagster.testing.partitions import Partitions
from floe_dagster.testing.values import Values
from floe_dagster.testing.workbench import Rows, Workbench, rows_of

__all__ = ["live"]


def live(bench: Workbench, values: Values, partitions: Partitions) -> None:
    """What must hold for each kind of values and each kind of partitions; the assertions say it."""
    written = dict.fromkeys(partitions.keys, "first")
    emptied: set[str] = set()

    def content(keys: Sequence[str]) -> pa.Table:
        full = [key for key in keys if key not in emptied]
        return pa.concat_tables([partitions.table([], ""), *(partitions.table([key], written[key]) for key in full)])

    def expected(*keys: str) -> Rows:
        return rows_of(content(keys))

    first, one, *_, last = partitions.keys
    everything = partitions.keys
    apart = SpecificPartitionsPartitionMapping([first, last])
    assets = [
        bench.writer("events", values, content, partitions),
        bench.reader("own", values, "events", partitions.definition),
        bench.reader("all", values, "events"),
        bench.reader("apart", values, "events", mapping=apart),
    ]

    def seen(name: str) -> Rows:
        return rows_of(bench.seen.pop(name))

    bench.run(assets, span=(first, last))
    assert seen("all") == expected(*everything), "an unpartitioned asset gets every partition"
    assert seen("own") == expected(*everything), "a run of all partitions gets every partition"
    assert seen("apart") == expected(first, last), "partitions that are no neighbours come without those between"

    written[one] = "second"
    bench.run(assets, "events", "own", "all", key=one)
    assert seen("own") == expected(one), "a partitioned asset gets its own partition"
    assert seen("all") == expected(*everything), "one partition again leaves the others as they were"

    bench.run(assets, "events", "all", key=one)
    assert seen("all") == expected(*everything), "one partition twice gives the same rows"
    assert rows_of(bench.load(assets, "events", values, last)) == expected(last), "a partition loads without a run"

    emptied.add(one)
    bench.run(assets, "events", "own", "all", key=one)
    assert bench.seen["own"].schema.names == content([]).schema.names, "an empty partition keeps the columns"
    assert seen("own") == [], "an empty frame empties its partition"
    assert seen("all") == expected(*everything), "an empty frame empties no other partition"
