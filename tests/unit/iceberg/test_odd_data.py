"""Values, names and shapes that are rare and must not cost anybody a row: NaN, UUIDs, many partitions, odd names."""

from __future__ import annotations

import gc
import math
import struct
import uuid
from datetime import datetime, time, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow.parquet import ParquetWriter
from pyiceberg.avro.decoder_fast import CythonBinaryDecoder
from pyiceberg.expressions import AlwaysTrue, EqualTo, LessThan
from pyiceberg.expressions.visitors import residual_evaluator_of
from pyiceberg.manifest import PartitionFieldStats
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, ListType, LongType, MapType, NestedField, StringType
from tests.lakes import open_manager

from floe_core.errors import ConfigurationError, FloeStorageError, PartitionMismatchError, SchemaEvolutionError
from floe_core.identifiers import Namespace, TableIdentifier, TableSlice
from floe_core.models import PartitionTransform
from floe_iceberg import IcebergTableManager
from floe_iceberg._pyiceberg.patches import ORIGINALS
from floe_iceberg.schema.changes import AddColumn, ColumnChange, RenameColumn
from floe_iceberg.schema.evolution import to_iceberg_schema
from floe_iceberg.writing import staging

# Their arguments have names of their own, which nobody writes.
EQUAL: Any = EqualTo
LESS: Any = LessThan

T = TableIdentifier.from_string("bronze.odd")


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    return open_manager(tmp_path)


def by(column: str, transform: str = "identity", **more: int) -> list[PartitionTransform]:
    return [PartitionTransform.model_validate({"source_column": column, "transform_type": transform, **more})]


def rows(manager: IcebergTableManager, **options: Any) -> list[dict[str, Any]]:
    return sorted(manager.scan(T, **options).to_arrow().to_pylist(), key=lambda row: str(row.get("v")))


def uuids(*numbers: int | None) -> pa.Array:
    values = [None if one is None else uuid.UUID(int=one).bytes for one in numbers]
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))


PARTITIONS: dict[str, tuple[pa.Array, list[PartitionTransform]]] = {
    "doubles": (pa.array([0.1, 0.2, None]), by("x")),
    "floats": (pa.array([0.1, 0.2, None], pa.float32()), by("x")),
    "infinite floats": (pa.array([math.inf, -math.inf, 3e38], pa.float32()), by("x")),
    "NaN": (pa.array([math.nan, 1.0, None]), by("x")),
    "NaN among floats": (pa.array([math.nan, 1.0, None], pa.float32()), by("x")),
    "negative zero": (pa.array([-0.0, 1.0, None]), by("x")),
    "UUIDs": (uuids(5, 6, None), by("x")),
    "buckets of UUIDs": (uuids(5, 7, None), by("x", "bucket", num_buckets=64)),
    "times": (pa.array([time(12, 30), time(1), None]), by("x")),
    "buckets of times": (pa.array([time(12, 30), time(1), None]), by("x", "bucket", num_buckets=64)),
    "binary": (pa.array([b"ab", b"bb", None]), by("x")),
    "truncated binary": (pa.array([b"ab", b"bb", None]), by("x", "truncate", width=1)),
}


# Each of them was wrong once; these four are wrong in different ways.
_FIRST = ("NaN", "negative zero", "UUIDs", "times")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in _FIRST else pytest.mark.full) for kind in PARTITIONS]
)
def test_partitions_are_found_again(manager: IcebergTableManager, kind: str) -> None:
    values, partition_by = PARTITIONS[kind]
    data = pa.table({"x": values, "v": [1, 2, 3]})
    manager.write_data(T, data, mode="append", partition_by=partition_by)
    for number, value in enumerate((11, 12, 13)):
        one = pa.table({"x": values.slice(number, 1), "v": [value]})
        for _ in range(2):
            manager.write_data(T, one, mode="overwrite", dynamic_partitions=True)
    assert [row["v"] for row in rows(manager)] == [11, 12, 13]
    manager.write_data(T, data.slice(0, 1), mode="overwrite")
    assert [row["v"] for row in rows(manager)] == [1]
    manager.write_data(T, data.slice(0, 0), mode="overwrite", allow_empty=True)
    assert rows(manager) == []


@pytest.mark.parametrize("kind", [kind for kind in PARTITIONS if "NaN" not in kind])
@pytest.mark.parametrize("is_partitioned", [True, False], ids=["partitioned", "flat"])
def test_keys_are_found_again(manager: IcebergTableManager, kind: str, is_partitioned: bool) -> None:
    values, partition_by = PARTITIONS[kind]
    data = pa.table({"x": values, "v": [1, 2, 3]}).slice(0, 2)
    manager.write_data(T, data, mode="append", partition_by=partition_by if is_partitioned else [])
    manager.write_data(T, data.set_column(1, "v", pa.array([7, 8])), mode="upsert", keys=["x"])
    assert [row["v"] for row in rows(manager)] == [7, 8]


@pytest.mark.parametrize("others", [0, 300])
def test_nan_is_no_key(manager: IcebergTableManager, others: int) -> None:
    data = pa.table({"x": [math.nan, *map(float, range(others))]})
    manager.write_data(T, data, mode="append")
    with pytest.raises(FloeStorageError, match=r"by x: 1 row has NaN as x\. .*Nothing was written"):
        manager.write_data(T, data, mode="upsert", keys=["x"])


def test_rows_of_five_fields_with_many_values_lie_in_their_partitions(manager: IcebergTableManager) -> None:
    # Partitions were numbered up to the product of all, 2**65; so these two got one number, 2**64 apart.
    alike = {"a": [0, 4096], **{name: [5, 5] for name in "bcde"}}
    names = "abcde"
    data = pa.table({name: [*range(8192), *alike[name]] for name in names})
    found = manager.begin_table(T, to_iceberg_schema(data.schema), partition_by=[by(name)[0] for name in names])
    stager = staging.Stager(found.table_metadata, manager.storage_plugin.get_pyiceberg_fileio())  # type: ignore[arg-type]
    wrong = [
        (partition, part.to_pylist())
        for partition, part in stager.split(data.combine_chunks().to_batches()[0])
        if [tuple(row.values()) for row in part.to_pylist()] != [tuple(partition[at] for at in range(5))]
    ]
    assert wrong == []


@pytest.mark.full
def test_the_writers_of_closed_files_are_forgotten(
    manager: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_OPEN_FILES", 2)
    alive = []

    def batches() -> Any:
        for number in range(20):
            yield pa.record_batch({"x": [number], "v": ["x" * 1000]})
            if number % 5 == 4:
                alive.append(sum(isinstance(one, ParquetWriter) for one in gc.get_objects()))

    monkeypatch.setattr(staging, "_WAITING_BYTES", 1)
    reader = pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64()), ("v", pa.string())]), batches())
    before = sum(isinstance(one, ParquetWriter) for one in gc.get_objects())
    manager.write_data(T, reader, mode="append", partition_by=by("x"))
    assert max(alive) - before <= 2 + staging._WRITERS + 1


def test_pyiceberg_still_needs_the_patches_of_partition_values() -> None:
    assert CythonBinaryDecoder(struct.pack("<d", 0.1)).read_double() != 0.1, "_read_double can go"
    with pytest.raises(ValueError, match="NaN"):
        EQUAL("x", math.nan)  # otherwise _partition_predicate can go
    stats = PartitionFieldStats(DoubleType())
    for zero in (0.0, -0.0):
        ORIGINALS["pyiceberg.manifest:PartitionFieldStats.update"](stats, zero)
    assert str(stats._min) == "0.0", "_update_bounds can go"
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "n"))
    schema = Schema(NestedField(1, "n", LongType()))
    theirs: Any = type(residual_evaluator_of(spec, AlwaysTrue(), True, schema)).__bases__[0]
    with pytest.raises(TypeError):  # otherwise _NullSafeResidualEvaluator can go
        theirs(schema, spec, True, LESS("n", 5)).residual_for(Record(None))


# The rows are numbered; the filters say which are meant. Of NULL nothing is true, and NaN is neither more nor less.
NUMBERS = pa.table({"n": pa.array([1, 2, 3, None]), "x": [0.5, math.nan, 1.5, None], "v": [1, 2, 3, 4]})
FILTERS = {
    "n not in (1, 2)": [3],
    "n not in (1)": [2, 3],
    "n != 1": [2, 3],
    "NOT (n = 1)": [2, 3],
    "NOT (n in (1, 2))": [3],
    "NOT (n < 2)": [2, 3],
    "NOT (n < 2 AND v > 0)": [2, 3],
    "n < 2 OR v = 4": [1, 4],
    "n >= 3 OR v = 4": [3, 4],
    "NOT (n >= 3 OR v = 2)": [1],
    "x >= 1": [3],
    "NOT (x >= 1)": [1],
    "x is nan": [2],
    "n is null": [4],
}


@pytest.mark.parametrize(
    ("row_filter", "partition_by"),
    [*((one, "x") for one in FILTERS), *((one, by) for one in ("n != 1", "x is nan", "n is null") for by in ("n", ""))],
)
def test_scans_and_overwrites_mean_the_same_rows(
    manager: IcebergTableManager, row_filter: str, partition_by: str
) -> None:
    manager.write_data(T, NUMBERS, mode="append", partition_by=by(partition_by) if partition_by else [])
    meant = [row["v"] for row in rows(manager, row_filter=row_filter)]
    assert meant == FILTERS[row_filter]
    assert manager.scan(T, row_filter=row_filter).count() == len(meant)
    manager.write_data(T, NUMBERS.slice(0, 0), mode="overwrite", overwrite_filter=row_filter)
    assert [row["v"] for row in rows(manager)] == [one for one in (1, 2, 3, 4) if one not in meant]
    inside = NUMBERS.take([one - 1 for one in meant])
    manager.write_data(T, inside, mode="overwrite", overwrite_filter=row_filter)
    assert [row["v"] for row in rows(manager)] == [1, 2, 3, 4]


@pytest.mark.parametrize("is_partitioned", [True, False], ids=["partitioned", "flat"])
def test_a_float_is_found_by_the_number_that_was_written(manager: IcebergTableManager, is_partitioned: bool) -> None:
    data = pa.table({"x": pa.array([0.1, 0.2, math.inf], pa.float32()), "v": [1, 2, 3]})
    manager.write_data(T, data, mode="append", partition_by=by("x") if is_partitioned else [])
    for row_filter, found in (("x = 0.1", 1), ("x in (0.1, 5.5)", 1), ("x <= 0.1", 1), ("x > 0.2", 3)):
        assert sum(row["v"] for row in rows(manager, row_filter=row_filter)) == found, row_filter
    assert [row["v"] for row in rows(manager, row_filter=EQUAL("x", math.inf))] == [3]
    manager.write_data(T, data.slice(0, 1), mode="overwrite", overwrite_filter="x = 0.1")
    assert [row["v"] for row in rows(manager)] == [1, 2, 3]


@pytest.mark.parametrize("partition_by", ["u", "a.b", ""])
def test_a_name_with_a_dot_and_a_uuid_can_be_filtered_by(manager: IcebergTableManager, partition_by: str) -> None:
    data = pa.table({"a.b": [1, 2], "s": [{"x.y": 1}, {"x.y": 2}], "u": uuids(1, 2), "v": [1, 2]})
    manager.write_data(T, data, mode="append", partition_by=by(partition_by) if partition_by else [])
    for row_filter in ("a.b = 1", "s.x.y = 1", f"u = '{uuid.UUID(int=1)}'", f"u in ('{uuid.UUID(int=1)}')"):
        manager.write_data(T, data.slice(0, 1), mode="overwrite", overwrite_filter=row_filter)
        assert [row["v"] for row in rows(manager)] == [1, 2]
        if row_filter.startswith("u"):
            with pytest.raises(ConfigurationError, match="row_filter compares 'u', which is a uuid"):
                rows(manager, row_filter=row_filter)
            continue
        assert [row["v"] for row in rows(manager, row_filter=row_filter)] == [1]
        assert [row["v"] for row in rows(manager, row_filter=f"NOT ({row_filter})")] == [2]
    with pytest.raises(PartitionMismatchError, match=r"with a\.b = 2;"):
        manager.write_data(T, data, mode="overwrite", overwrite_filter="a.b = 1")
    assert [row["v"] for row in rows(manager, row_filter="a.b = 1")] == [1]


@pytest.mark.parametrize("said", ["n = '1.5'", "n > '1.9'", "n in ('1', '2.5')"])
def test_a_fraction_in_quotes_is_one_too(manager: IcebergTableManager, said: str) -> None:
    manager.write_data(T, NUMBERS, mode="append")
    with pytest.raises(ConfigurationError, match="n is long and is never a fraction"):
        manager.scan(T, row_filter=said)
    assert len(rows(manager, row_filter="n = '1'")) == 1


def test_only_whole_columns_are_offered_as_keys_and_partitions(manager: IcebergTableManager) -> None:
    data = pa.table({"s": [{"x": 1}], "v": [1]})
    with pytest.raises(ConfigurationError, match=r"no column 's\.x' to upsert by \(there: s, v\)"):
        manager.write_data(T, data, mode="upsert", keys=["s.x"])
    day = TableSlice.of_windows(
        "s.x", [(datetime(2026, 1, 1, tzinfo=timezone.utc), datetime.max.replace(tzinfo=timezone.utc))]
    )
    with pytest.raises(ConfigurationError, match=r"'s\.x' is not in the data \(there: s, v\)"):
        manager.write_data(T, data, mode="overwrite", slice=day)


ODD_NAMES = {
    "two columns": (pa.schema([("a", pa.int64()), ("A", pa.int64())]), r"more than one column 'a' \(upper and lower"),
    "one twice": (pa.schema([("a", pa.int64()), ("a", pa.int64())]), "more than one column 'a'"),
    "two fields": (
        pa.schema([("s", pa.list_(pa.struct([("a", pa.int64()), ("A", pa.int64())])))]),
        r"column 's\.element' has more than one field 'a'",
    ),
    "no name": (pa.schema([("", pa.int64())]), "a column without a name"),
    "a field without a name": (pa.schema([("s", pa.struct([("", pa.int64())]))]), "'s' has a field without a name"),
    "an empty struct": (pa.schema([("s", pa.struct([]))]), "'s' is a struct without fields"),
    "a dot": (pa.schema([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())]))]), "multiple fields for name a.b"),
    "a scale": (pa.schema([("d", pa.decimal128(5, -2))]), "'d' is .*no decimals of negative scale"),
}


@pytest.mark.parametrize("kind", ODD_NAMES)
def test_no_table_is_made_of(manager: IcebergTableManager, kind: str) -> None:
    schema, words = ODD_NAMES[kind]
    with pytest.raises(SchemaEvolutionError, match=words):
        manager.create_table(T, schema)
    with pytest.raises(SchemaEvolutionError, match=rf"{words}.*Nothing was written"):
        manager.write_data(T, schema.empty_table(), mode="append")
    assert not manager.table_exists(T)


def test_no_table_is_made_of_iceberg_names_that_differ_in_case(manager: IcebergTableManager) -> None:
    with pytest.raises(SchemaEvolutionError, match=r"'bronze\.odd' was not created: the schema has more than one"):
        manager.create_table(T, Schema(NestedField(1, "a", LongType()), NestedField(2, "A", LongType())))


def test_names_that_parquet_cannot_tell_apart_are_refused(manager: IcebergTableManager) -> None:
    with pytest.raises(SchemaEvolutionError, match=r"a_x20b.*Nothing was written"):
        manager.write_data(T, pa.table({"a b": [1], "a_x20b": [2]}), mode="append")


@pytest.mark.parametrize(
    "change",
    [AddColumn("A", pa.int64()), RenameColumn("b", "A"), RenameColumn("b", ""), AddColumn("s.X", pa.int64())],
    ids=str,
)
def test_no_change_makes_a_name_that_differs_in_case_only(manager: IcebergTableManager, change: ColumnChange) -> None:
    before = manager.create_table(T, pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", STRUCT)])).schema()
    with pytest.raises(SchemaEvolutionError, match=r"cannot be changed: .*Nothing was changed"):
        manager.evolve_schema(T, change)
    assert manager.load_table(T).schema() == before
    manager.evolve_schema(T, RenameColumn("b", "B"), AddColumn("s.y", pa.int64()))


STRUCT = pa.struct([("x", pa.int64())])


@pytest.fixture
def foreign(manager: IcebergTableManager) -> IcebergTableManager:
    """A table of somebody else that holds `a` and `A`."""
    both = Schema(NestedField(1, "a", LongType()), NestedField(2, "A", LongType()), NestedField(3, "v", LongType()))
    manager.ensure_namespace(Namespace(levels=T.namespace))
    manager._catalog.create_table((*T.namespace, T.name), both, manager.new_location(T))
    return manager


def test_a_column_goes_to_its_own_name_only(foreign: IcebergTableManager) -> None:
    foreign.write_data(T, pa.table({"A": [2], "v": [1]}), mode="append")
    foreign.write_data(T, pa.table({"a": [1], "v": [2]}), mode="append")
    assert rows(foreign) == [{"a": None, "A": 2, "v": 1}, {"a": 1, "A": None, "v": 2}]
    foreign.write_data(T, pa.table({"a": [5], "v": [1]}), mode="upsert", keys=["v"])
    assert rows(foreign) == [{"a": 5, "A": 2, "v": 1}, {"a": 1, "A": None, "v": 2}]
    foreign.evolve_schema(T, AddColumn("w", pa.int64()))  # what is there may stay


@pytest.mark.parametrize("make", [pa.list_view, pa.large_list_view, pa.list_, pa.large_list])
def test_lists_of_any_kind_are_written(manager: IcebergTableManager, make: Any) -> None:
    values: list[list[int] | None] = [[1, 2], None, [], [3]] * 50
    data = pa.table({"l": pa.array(values, make(pa.int64()))})
    manager.write_data(T, data.slice(1), mode="append")
    assert manager.scan(T).to_arrow()["l"].to_pylist() == values[1:]


def test_a_list_view_whose_lists_overlap_is_written(manager: IcebergTableManager) -> None:
    overlapping = pa.ListViewArray.from_arrays([2, 0, 1], [1, 2, 2], pa.array([1, 2, 3]))
    manager.write_data(T, pa.table({"l": overlapping}), mode="append")
    assert manager.scan(T).to_arrow()["l"].to_pylist() == [[3], [1, 2], [2, 3]]


@pytest.mark.parametrize("batch", [{"b": [1]}, {"a": ["x"]}, {"a": [1], "b": [2]}, {}])
def test_a_stream_keeps_what_its_schema_promised(manager: IcebergTableManager, batch: dict[str, Any]) -> None:
    batches = [pa.record_batch({"a": [1]}), pa.RecordBatch.from_pydict(batch)]
    reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), iter(batches))
    with pytest.raises(SchemaEvolutionError, match=r"declares a int64, but a batch has .*Nothing was written"):
        manager.write_data(T, reader, mode="append")
    assert not manager.table_exists(T)


@pytest.mark.parametrize(
    "index",
    [pd.date_range("2026-01-01", periods=2), pd.Index(["a", "b"]), pd.MultiIndex.from_tuples([(1, 2), (3, 4)])],
    ids=["moments", "texts", "levels"],
)
def test_an_index_without_a_name_that_means_something_is_not_lost(manager: IcebergTableManager, index: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"index of \S+ would be lost.*reset_index.*Nothing was written"):
        manager.write_data(T, pd.DataFrame({"v": [1, 2]}, index=index), mode="append")
    frame = pd.DataFrame({"v": [1, 2, 3]})
    manager.write_data(T, frame[frame["v"] > 1], mode="append")
    assert [row["v"] for row in rows(manager)] == [2, 3]


def test_columns_of_pandas_named_alike_are_refused(manager: IcebergTableManager) -> None:
    with pytest.raises(SchemaEvolutionError, match=r"Duplicate column names.*Nothing was written"):
        manager.write_data(T, pd.DataFrame([[1, 2]], columns=["a", "a"]), mode="append")


@pytest.mark.parametrize("lazy", [False, True])
def test_python_objects_are_no_data(manager: IcebergTableManager, lazy: bool) -> None:
    frame = pl.DataFrame({"v": pl.Series([object()], dtype=pl.Object)})
    with pytest.raises(SchemaEvolutionError, match=r"'v' holds Python objects.*Nothing was written"):
        manager.write_data(T, frame.lazy() if lazy else frame, mode="append")


def test_nanoseconds_are_cut_downwards_before_1970_too(manager: IcebergTableManager) -> None:
    data = pa.table({"at": pa.array([-1, -1000, -1001, 1999, None], pa.timestamp("ns", "UTC"))})
    made = manager.write_data(T, data, mode="append", truncate_nanoseconds=True)
    assert manager.scan(T).to_arrow()["at"].cast(pa.int64()).to_pylist() == [-1, -1, -2, 1, None]
    assert made.summary["floe.truncated-nanoseconds"] == "3"


REQUIRED = {
    "element": (ListType(5, LongType(), element_required=True), pa.array([[1, None]])),
    "value": (
        MapType(5, StringType(), 6, LongType(), value_required=True),
        pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64())),
    ),
}


@pytest.mark.parametrize("inside", REQUIRED)
def test_null_where_a_nested_value_is_required_names_the_place(manager: IcebergTableManager, inside: str) -> None:
    kind, values = REQUIRED[inside]
    manager.create_table(T, Schema(NestedField(1, "x", kind)))
    with pytest.raises(SchemaEvolutionError, match=rf"column 'x\.{inside}' holds 1 NULL.*Nothing was written"):
        manager.write_data(T, pa.table({"x": values}), mode="append")
    manager.write_data(T, pa.table({"x": values.filter(pa.array([False]))}), mode="append")


@pytest.mark.parametrize("path", ["a", "s.a"])
def test_null_where_the_data_itself_said_there_is_none_names_the_column(
    manager: IcebergTableManager, path: str
) -> None:
    inner = pa.field("a", pa.int64(), nullable=False)
    if path == "a":
        data = pa.Table.from_arrays([pa.array([1, None])], schema=pa.schema([inner]))
    else:
        values = pa.StructArray.from_arrays([pa.array([1, None])], fields=[inner])
        data = pa.table({"s": values})
    with pytest.raises(SchemaEvolutionError, match=rf"column '{path}' holds 1 NULL.*Nothing was written"):
        manager.write_data(T, data, mode="append")


def test_a_struct_may_be_null_whose_fields_are_required(manager: IcebergTableManager) -> None:
    kind = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    data = pa.table({"s": pa.array([{"a": 1}, None], kind), "v": [1, 2]})
    for _ in range(2):
        manager.write_data(T, data, mode="append")
    assert [row["s"] for row in rows(manager)] == [{"a": 1}, {"a": 1}, None, None]


def test_null_in_what_identifies_a_row_names_the_column(manager: IcebergTableManager) -> None:
    key = NestedField(1, "id", LongType(), required=True)
    manager.create_table(T, Schema(key, NestedField(2, "v", LongType()), identifier_field_ids=[1]))
    for data in (pa.table({"id": [1, None], "v": [1, 2]}), pa.table({"id": [1], "v": [1]}).to_reader()):
        with pytest.raises(SchemaEvolutionError, match=r"id: identifies the table's rows and is never NULL"):
            manager.write_data(T, data, mode="append")
    manager.write_data(T, pa.table({"id": [1], "v": [1]}), mode="append")


def test_a_new_column_named_like_a_partition_field_is_refused(manager: IcebergTableManager) -> None:
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    both = [*by("g"), *by("at", "day")]
    manager.write_data(T, pa.table({"g": ["a"], "at": [at]}), mode="append", partition_by=both)
    manager.evolve_schema(T, RenameColumn("g", "h"))
    for name, source in (("g", "h"), ("at_day", "at")):
        with pytest.raises(SchemaEvolutionError, match=rf"column '{name}', which is .* of '{source}'.*Nothing was wri"):
            manager.write_data(T, pa.table({"at": [at], name: ["a"]}), mode="append")


def test_a_new_column_named_like_a_nested_field_is_refused(manager: IcebergTableManager) -> None:
    manager.write_data(T, pa.table({"s": [{"x": 1}]}), mode="append")
    with pytest.raises(SchemaEvolutionError, match=r"s\.x: is the name of another field already"):
        manager.write_data(T, pa.table({"s.x": [1]}), mode="append")
