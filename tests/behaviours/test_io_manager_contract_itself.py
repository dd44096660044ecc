"""The contract is about Dagster alone: an IO manager without Iceberg keeps it, and one with a fault does not."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    DagsterError,
    DagsterInstance,
    InputContext,
    IOManager,
    MultiPartitionsDefinition,
    OutputContext,
    PartitionsDefinition,
    TimeWindowPartitionsDefinition,
)

from floe_dagster.testing import ODD_PARTITIONS, PARTITIONS, VALUES, IOManagerContract, Workbench

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

KINDS = {made.annotation: made for made in (make() for make in VALUES.values())}


class Memory(IOManager):
    """Tables in memory; `fault` is what it does wrong."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.tables: dict[str, pa.Table] = {}

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        kind = next(made for annotation, made in KINDS.items() if isinstance(obj, annotation))
        place = self._place(context.asset_key.path)
        if self.fault == "stores what came before a failure" and kind.name == "reader":
            obj = self._as_far_as_it_comes(obj)
        new = kind.rows(obj)
        old = self.tables.get(place, new.slice(0, 0))
        kept = self._kept(context, old)
        self.tables[place] = pa.concat_tables([kept, new.cast(kept.schema)] if len(new) else [kept])
        if self.fault != "says nothing":
            context.add_output_metadata({"rows": len(new)})

    def _place(self, path: Sequence[str]) -> str:
        return path[-1] if self.fault == "looks at the last part of a key" else "/".join(path)

    def _as_far_as_it_comes(self, stream: pa.RecordBatchReader) -> pa.RecordBatchReader:
        batches = []
        try:
            batches.extend(iter(stream))
        except RuntimeError:
            return pa.Table.from_batches(batches, stream.schema).to_reader()
        return pa.Table.from_batches(batches, stream.schema).to_reader()

    def _kept(self, context: OutputContext, old: pa.Table) -> pa.Table:
        """What was there before, without what is replaced."""
        if self.fault == "appends" or (
            self.fault == "adds what a retry brings again" and not context.has_asset_partitions
        ):
            return old
        if not context.has_asset_partitions or self.fault == "replaces everything":
            return old.slice(0, 0)
        expr = context.definition_metadata["partition_expr"]
        return _filtered(old, context.asset_partitions_def, context.asset_partition_keys, expr, inside=False)

    def load_input(self, context: InputContext) -> Any:
        upstream = context.upstream_output
        found = self.tables.get(self._place(context.asset_key.path), pa.table({"id": pa.array([], pa.int64())}))
        if context.has_asset_partitions and self.fault != "gives all partitions":
            keys = list(context.asset_partition_keys)
            if self.fault == "takes first and last for all":
                keys = sorted({keys[0], keys[-1]}) if keys else []
            if self.fault == "reads its own partition whatever is mapped" and context.has_partition_key:
                keys = [context.partition_key]
            expr: Any = upstream.definition_metadata["partition_expr"] if upstream is not None else ""
            if self.fault == "knows one dimension of two":
                expr = {**expr, "city": ""}
            found = _filtered(found, context.asset_partitions_def, keys, expr, inside=True)
        if "columns" in context.definition_metadata and self.fault != "gives all columns":
            found = found.select(context.definition_metadata["columns"])
        if self.fault == "loses the columns of no rows" and not len(found):
            found = pa.table({"id": pa.array([], pa.int64())})
        annotation = pa.Table if self.fault == "ignores the annotation" else context.dagster_type.typing_type
        return KINDS[annotation].make(found)


def _filtered(
    rows: pa.Table, definition: PartitionsDefinition[Any], keys: Sequence[str], expr: Any, *, inside: bool
) -> pa.Table:
    chosen = [any(_belongs(row, definition, key, expr) for key in keys) == inside for row in rows.to_pylist()]
    return rows.filter(pa.array(chosen, pa.bool_()))


def _belongs(row: Mapping[str, Any], definition: PartitionsDefinition[Any], key: str, expr: Any) -> bool:
    if isinstance(definition, MultiPartitionsDefinition):
        parts = definition.get_partition_key_from_str(str(key)).keys_by_dimension
        dimensions = {one.name: one.partitions_def for one in definition.partitions_defs}
        return all(_belongs(row, dimensions[name], part, expr[name]) for name, part in parts.items())
    if not expr:
        return True
    value = row[expr]
    if not isinstance(definition, TimeWindowPartitionsDefinition):
        return str(value) == key
    window = definition.time_window_for_partition_key(key)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return window.start.timestamp() <= value.timestamp() < window.end.timestamp()
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return bool(window.start.replace(tzinfo=None) <= value < window.end.replace(tzinfo=None))


class TestInMemory(IOManagerContract):
    values = (VALUES["pandas"](), VALUES["reader"]())
    partitions = (*PARTITIONS.values(), *ODD_PARTITIONS.values())

    def pairs(self) -> Iterable[Any]:
        pandas, reader = self.values
        for by in self.partitions:
            yield pytest.param(reader, by, id=f"reader-{by.name}")
            yield pytest.param(pandas, by, id=f"pandas-{by.name}", marks=pytest.mark.full)

    @pytest.fixture
    def io_manager(self) -> Memory:
        return Memory()


# Each fault, and the test that finds it.
FAULTS = {
    "appends": "each_partition_is_stored_and_read_by_itself",
    "replaces everything": "each_partition_is_stored_and_read_by_itself",
    "gives all partitions": "each_partition_is_stored_and_read_by_itself",
    "takes first and last for all": "each_partition_is_stored_and_read_by_itself",
    "knows one dimension of two": "each_partition_is_stored_and_read_by_itself",
    "reads its own partition whatever is mapped": "days_are_mapped_to_the_days_before_to_the_last_and_to_all",
    "adds what a retry brings again": "a_retry_after_the_value_was_stored_does_not_store_it_twice",
    "loses the columns of no rows": "an_empty_value_keeps_its_columns",
    "gives all columns": "a_value_comes_back_as_it_was_and_as_each_other_kind",
    "ignores the annotation": "a_value_comes_back_as_it_was_and_as_each_other_kind",
    "stores what came before a failure": "a_step_that_fails_changes_nothing",
    "looks at the last part of a key": "each_output_and_each_key_has_a_place_of_its_own",
    "says nothing": "a_materialization_is_described",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    by = {"by": PARTITIONS["time-static"]} if "each_partition" in FAULTS[fault] else {}
    with DagsterInstance.ephemeral() as instance:
        bench = Workbench(Memory(fault), instance, "contract", {})
        with pytest.raises((AssertionError, DagsterError)):
            getattr(TestInMemory(), f"test_{FAULTS[fault]}")(bench, kind=VALUES["reader"](), **by)
