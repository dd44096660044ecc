"""The tests that every IO manager for tables must pass."""

# ruff: noqa: S101 - these are tests

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    AllPartitionMapping,
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    AssetOut,
    DagsterInstance,
    LastPartitionMapping,
    MultiToSingleDimensionPartitionMapping,
    Output,
    PartitionMapping,
    RetryRequested,
    StaticPartitionMapping,
    StaticPartitionsDefinition,
    TimeWindowPartitionMapping,
    asset,
    multi_asset,
)

from floe_dagster.testing.kinds import PARTITIONS
from floe_dagster.testing.life import live
from floe_dagster.testing.partitions import Partitions
from floe_dagster.testing.values import Values
from floe_dagster.testing.workbench import Workbench, annotated, rows_of

__all__ = ["IOManagerContract"]

_AT = datetime(2026, 1, 31, 23, 30, tzinfo=timezone.utc)
SAMPLE = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "flag": pa.array([True, False, True, False]),
        "price": pa.array([0.1, -2.5, 0.0, 1e300]),
        "day": pa.array([date(2026, 1, 31), date(1969, 12, 31), date(2024, 2, 29), date(9999, 1, 1)]),
        "at": pa.array([_AT, None, _AT + timedelta(microseconds=1), _AT], pa.timestamp("us", "UTC")),
        "clock": pa.array([_AT.replace(tzinfo=None), None, datetime(1969, 7, 20), None], pa.timestamp("us")),
        "note": pa.array(["", None, "grün ☃ 東京", 'it\'s "quoted"']),
    }
)


@pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")
class IOManagerContract:
    """Subclass it in a test module; give it the fixture `io_manager` and the kinds of values that are stored.

    class TestMyIOManager(IOManagerContract):
        values = (VALUES["pandas"](), VALUES["arrow"]())

        @pytest.fixture
        def io_manager(self, tmp_path):
            return MyIOManager(folder=str(tmp_path))

    Args:
        values: The kinds of values that the IO manager stores; each is loaded as every other.
        partitions: The kinds of partitions to test with.
        metadata: The metadata of an asset whose materialization replaces all rows.
    """

    values: Sequence[Values] = ()
    partitions: Sequence[Partitions] = tuple(PARTITIONS.values())
    metadata: Mapping[str, Any] = {}

    # Overridden by subclasses ---------------------------------------------------------------------------------------

    @pytest.fixture
    def io_manager(self) -> Any:
        """The resource under test."""
        raise NotImplementedError("override the fixture io_manager: return the IO manager under test")

    @pytest.fixture
    def prefix(self) -> str:
        """The first part of the keys of all assets of one test."""
        return f"contract_{uuid.uuid4().hex[:10]}"

    def each(self) -> Iterable[Any]:
        """The kinds of values, as pytest's parameters; override it to mark some of them."""
        return [pytest.param(values, id=values.name) for values in self.values]

    def pairs(self) -> Iterable[Any]:
        """The kinds of values with the kinds of partitions, as pytest's parameters; override it to mark some."""
        return [
            pytest.param(values, partitions, id=f"{values.name}-{partitions.name}")
            for values in self.values
            for partitions in self.partitions
        ]

    # Set-up ---------------------------------------------------------------------------------------------------------

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if {"kind", "by"} <= set(metafunc.fixturenames):
            metafunc.parametrize(("kind", "by"), list(self.pairs()))
        elif "kind" in metafunc.fixturenames:
            metafunc.parametrize("kind", list(self.each()))

    @pytest.fixture
    def instance(self) -> Iterator[DagsterInstance]:
        with DagsterInstance.ephemeral() as ephemeral:
            for by in self.partitions:
                for name, keys in by.dynamic.items():
                    ephemeral.add_dynamic_partitions(name, list(keys))
            yield ephemeral

    @pytest.fixture
    def bench(self, io_manager: Any, instance: DagsterInstance, prefix: str) -> Workbench:
        return Workbench(io_manager, instance, prefix, self.metadata)

    # Partitioned assets ---------------------------------------------------------------------------------------------

    def test_each_partition_is_stored_and_read_by_itself(self, bench: Workbench, kind: Values, by: Partitions) -> None:
        live(bench, kind, by)

    def test_days_are_mapped_to_the_days_before_to_the_last_and_to_all(self, bench: Workbench, kind: Values) -> None:
        days = PARTITIONS["daily"]
        mappings: dict[str, PartitionMapping] = {
            "before": TimeWindowPartitionMapping(start_offset=-1, end_offset=-1),
            "both": TimeWindowPartitionMapping(start_offset=-1),
            "last": LastPartitionMapping(),
            "all": AllPartitionMapping(),
        }
        events = bench.writer("events", kind, days.table, days)
        readers = [bench.reader(name, kind, "events", days.definition, mapping) for name, mapping in mappings.items()]
        first, second, *_, last = days.keys
        bench.run([events, *readers], "events", span=(first, last))
        expected = {
            first: {"before": [], "both": [first], "last": [last], "all": days.keys},
            second: {"before": [first], "both": [first, second], "last": [last], "all": days.keys},
        }
        for key, mapped in expected.items():
            bench.run([events, *readers], *mappings, key=key)
            assert {name: rows_of(bench.seen[name]) for name in mappings} == {
                name: rows_of(days.table(keys)) for name, keys in mapped.items()
            }

    def test_static_partitions_are_mapped_to_others(self, bench: Workbench, kind: Values) -> None:
        cities = PARTITIONS["static"]
        first, second, third, *_ = cities.keys
        countries = StaticPartitionsDefinition(["x", "y"])
        mapping = StaticPartitionMapping({first: "x", third: "x", second: "y"})
        assets = [
            bench.writer("events", kind, cities.table, cities),
            bench.reader("country", kind, "events", countries, mapping),
        ]
        bench.run(assets, "events", span=(first, cities.keys[-1]))
        bench.run(assets, "country", key="x")
        assert rows_of(bench.seen["country"]) == rows_of(cities.table([first, third]))

    def test_one_dimension_of_two_is_mapped_to_the_other_asset(self, bench: Workbench, kind: Values) -> None:
        both, days = PARTITIONS["time-static"], PARTITIONS["daily"]
        assets = [
            bench.writer("events", kind, both.table, both),
            bench.reader("day", kind, "events", days.definition, MultiToSingleDimensionPartitionMapping("day")),
            bench.writer("days", kind, days.table, days),
            bench.reader("city", kind, "days", both.definition, MultiToSingleDimensionPartitionMapping("day")),
        ]
        bench.run(assets, "events", span=(both.keys[0], both.keys[-1]))
        bench.run(assets, "days", span=(days.keys[0], days.keys[-1]))
        bench.run(assets, "day", key=days.keys[1])
        assert rows_of(bench.seen["day"]) == rows_of(both.table(key for key in both.keys if days.keys[1] in key))
        bench.run(assets, "city", key=both.keys[0])
        assert rows_of(bench.seen["city"]) == rows_of(days.table([days.keys[0]]))

    def test_an_asset_reads_its_own_yesterday(self, bench: Workbench, kind: Values) -> None:
        days = PARTITIONS["daily"]
        yesterday = AssetIn(
            bench.key("sums"), partition_mapping=TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
        )

        def sums(context: AssetExecutionContext, before: Any) -> Any:
            known = kind.rows(before)
            count = max((int(row["note"]) for row in known.to_pylist()), default=0)
            return kind.make(days.table([context.partition_key], str(count + 1)))

        made: Any = asset(key=bench.key("sums"), ins={"before": yesterday}, **bench.options(days))(
            annotated(sums, before=kind.annotation, returns=kind.annotation)
        )
        for key in days.keys[:3]:
            bench.run([made], key=key)
        assert [row["note"] for row in rows_of(bench.load([made], "sums", kind))] == ["1"] * 3 + ["2"] * 3 + ["3"] * 3

    # Values ---------------------------------------------------------------------------------------------------------

    def test_a_value_comes_back_as_it_was_and_as_each_other_kind(self, bench: Workbench, kind: Values) -> None:
        assets = [
            bench.writer("events", kind, lambda _: SAMPLE),
            *(bench.reader(other.name, other, "events") for other in self.values),
            bench.reader("some", kind, "events", metadata={"columns": ["note", "id"]}),
        ]
        bench.run(assets)
        assert {name: rows_of(table) for name, table in bench.seen.items() if name != "some"} == {
            other.name: rows_of(SAMPLE) for other in self.values
        }
        assert rows_of(bench.seen["some"]) == rows_of(SAMPLE.select(["id", "note"]))
        assert rows_of(bench.load(assets, "events", kind)) == rows_of(SAMPLE), "a value loads without a run"
        bench.run(assets, "events")
        assert rows_of(bench.load(assets, "events", kind)) == rows_of(SAMPLE), "a value stored twice is there once"

    def test_an_empty_value_keeps_its_columns(self, bench: Workbench, kind: Values) -> None:
        empty = SAMPLE.select(["id", "price", "at", "note"]).slice(0, 0)
        assets = [bench.writer("empty", kind, lambda _: empty), bench.reader("none", kind, "empty")]
        bench.run(assets)
        assert (bench.seen["none"].schema.names, bench.seen["none"].num_rows) == (empty.schema.names, 0)

    def test_a_step_that_fails_changes_nothing(self, bench: Workbench, kind: Values) -> None:
        days = PARTITIONS["daily"]
        first, *_, last = days.keys

        def fail(rows: pa.Table) -> Any:
            raise RuntimeError(f"no value of {rows.num_rows} rows")

        good = bench.writer("events", kind, lambda keys: days.table(keys, "good"), days)
        bench.run([good], span=(first, last))
        for make in filter(None, (fail, kind.failing)):
            bad = bench.writer("events", kind, lambda keys: days.table(keys, "bad"), days, make=make)
            assert not bench.run([bad], span=(first, last), raise_on_error=False).success
        assert rows_of(bench.load([good], "events", kind)) == rows_of(days.table(days.keys, "good"))

    # Assets ---------------------------------------------------------------------------------------------------------

    def test_each_output_and_each_key_has_a_place_of_its_own(self, bench: Workbench, kind: Values) -> None:
        keys = [bench.key("one"), bench.key("two"), AssetKey([f"{bench.prefix}_x", "s", "t"])]
        keys.append(AssetKey([f"{bench.prefix}_y", "s", "t"]))
        names = [f"out{place}" for place in range(len(keys))]
        metadata = dict(bench.metadata)

        def several() -> Iterator[Output[Any]]:
            for place, name in enumerate(names):
                yield Output(kind.make(SAMPLE.slice(place, 1)), name)

        outs = {name: AssetOut(key=key, metadata=metadata) for name, key in zip(names, keys, strict=True)}
        made: Any = multi_asset(outs=outs)(several)
        bench.run([made])
        for place, key in enumerate(keys):
            # The key is absolute here: the last two differ in their first part, outside the prefix of the test.
            loaded = bench.load([made], key, kind)
            assert rows_of(loaded) == rows_of(SAMPLE.slice(place, 1)), key

    def test_an_asset_that_returns_nothing_stores_nothing_and_others_wait_for_it(self, bench: Workbench) -> None:
        ran: list[str] = []

        @asset(key=bench.key("does"))
        def does() -> None:
            ran.append("does")

        @asset(key=bench.key("after"), deps=[bench.key("does")])
        def after() -> None:
            ran.append("after")

        assert bench.run([does, after]).success
        assert ran == ["does", "after"]

    def test_a_retry_after_the_value_was_stored_does_not_store_it_twice(self, bench: Workbench, kind: Values) -> None:
        made = self.retried(bench, kind, bench.metadata)
        bench.run([made])
        assert rows_of(bench.load([made], "one", kind)) == rows_of(SAMPLE)
        assert rows_of(bench.load([made], "two", kind)) == rows_of(SAMPLE)

    def retried(self, bench: Workbench, kind: Values, metadata: Mapping[str, Any]) -> Any:
        """Two outputs of one step, which is retried after the first was stored."""

        def twice(context: AssetExecutionContext) -> Iterator[Output[Any]]:
            yield Output(kind.make(SAMPLE), "one")
            if context.retry_number == 0:
                raise RetryRequested(max_retries=1)
            yield Output(kind.make(SAMPLE), "two")

        outs = {name: AssetOut(key=bench.key(name), metadata=dict(metadata)) for name in ("one", "two")}
        return multi_asset(outs=outs)(twice)

    def test_a_materialization_is_described(self, bench: Workbench, kind: Values) -> None:
        def described(context: AssetExecutionContext) -> Any:
            context.add_output_metadata({"mine": "kept"})
            return kind.make(SAMPLE)

        made: Any = asset(key=bench.key("events"), **bench.options(None))(annotated(described, returns=kind.annotation))
        (event,) = bench.run([made]).get_asset_materialization_events()
        metadata = event.materialization.metadata
        assert metadata["mine"].value == "kept"
        assert set(metadata) - {"mine"}, "the IO manager describes what it stored"
