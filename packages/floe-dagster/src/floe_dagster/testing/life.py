"""The life cycle of a partitioned asset: all partitions written, read in every way, one rewritten, one emptied."""

# ruff: noqa: S101 - these are tests

from collections.abc import Sequence

import pyarrow as pa
from dagster import SpecificPartitionsPartitionMapping

from floe_dagster.testing.partitions import Partitions
from floe_dagster.testing.values import Values
from floe_dagster.testing.workbench import Rows, Workbench, rows_of

__all__ = ["live"]


def live(bench: Workbench, values: Values, partitions: Partitions) -> None:
    """The facts that must hold for each kind of values and partitions; each assertion states one."""
    written = dict.fromkeys(partitions.keys, "first")
    emptied: set[str] = set()

    def content(keys: Sequence[str]) -> pa.Table:
        full = [key for key in keys if key not in emptied]
        return pa.concat_tables([partitions.table([], ""), *(partitions.table([key], written[key]) for key in full)])

    def expected(*keys: str) -> Rows:
        return rows_of(content(keys))

    first, changed, *_, last = partitions.keys
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
    assert seen("apart") == expected(first, last), "partitions that are not adjacent come without those between"

    written[changed] = "second"
    bench.run(assets, "events", "own", "all", key=changed)
    assert seen("own") == expected(changed), "a partitioned asset gets its own partition"
    assert seen("all") == expected(*everything), "rewriting one partition leaves the others unchanged"

    bench.run(assets, "events", "all", key=changed)
    assert seen("all") == expected(*everything), "writing a partition twice gives the same rows"
    assert rows_of(bench.load(assets, "events", values, last)) == expected(last), "a partition loads without a run"

    emptied.add(changed)
    bench.run(assets, "events", "own", "all", key=changed)
    assert bench.seen["own"].schema.names == content([]).schema.names, "an empty partition keeps the columns"
    assert seen("own") == [], "an empty frame empties its partition"
    assert seen("all") == expected(*everything), "an empty frame empties no other partition"
