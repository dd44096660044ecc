"""What the metadata of a table says about it, on a real embedded lake, without Spark."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, ListType, NestedField, StringType, StructType
from tests.lakes import open_manager

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, FloeStorageError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, SnapshotInfo, SortField
from floe_iceberg import AddColumn, DropColumn, IcebergTableManager, MakeOptional, RenameColumn, WidenColumn
from floe_iceberg.inspection import Partition, similar
from floe_iceberg.snapshots import CURSOR_PREFIX
from floe_iceberg.snapshots.refs import snapshot_at

T = "bronze.raw.orders"
ORDERS = TableIdentifier.from_string(T)


@pytest.fixture
def tables(tmp_path: Path) -> IcebergTableManager:
    return open_manager(tmp_path)


def append(tables: IcebergTableManager, *numbers: int, name: str = T, branch: str | None = None) -> int:
    return tables.write_data(name, pa.table({"n": list(numbers)}), mode="append", branch=branch).snapshot_id


def at(snapshot: SnapshotInfo) -> datetime:
    return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, timezone.utc)


def by(column: str, transform: str = "identity") -> list[PartitionTransform]:
    return [PartitionTransform(source_column=column, transform_type=transform)]


def test_a_table_is_described_by_its_metadata(tables: IcebergTableManager) -> None:
    inner = StructType(NestedField(5, "street", StringType(), required=False, doc="with number"))
    schema = Schema(
        NestedField(1, "at", DoubleType(), required=True, doc="[red]when[/red]"),
        NestedField(2, "homes", ListType(element_id=4, element=inner, element_required=False), required=False),
    )
    tables.create_table(T, schema, partition_by=by("at"), sort_by=[SortField(column="at")], comment="all orders")
    empty = tables.describe(T)
    assert (empty.summary.rows, empty.summary.files, empty.summary.bytes, empty.current) == (0, 0, 0, None)
    assert [(column.name, column.type, column.required, column.comment) for column in empty.columns] == [
        ("at", "double", True, "[red]when[/red]"),
        ("homes", "list<struct<street: string>>", False, None),
        ("homes.element.street", "string", False, "with number"),
    ]
    assert [(field.name, field.column, field.transform) for field in empty.partitioned_by] == [("at", "at", "identity")]
    assert [(order.column, order.direction) for order in empty.sorted_by] == [("at", "asc")]
    assert empty.properties["comment"] == "all orders"
    written = tables.write_data(T, pa.table({"at": [1.0, 2.0]}), mode="append")
    tables.create_tag(T, "v1", max_ref_age=timedelta(days=1.5))
    described = tables.describe(T)
    assert described.current is not None
    assert (described.current.snapshot_id, described.current.refs) == (written.snapshot_id, ("main", "v1"))
    assert [(ref.name, ref.type, ref.max_age_days) for ref in described.refs] == [
        ("main", "branch", None),
        ("v1", "tag", 1.5),
    ]
    assert (described.summary.rows, described.summary.files, described.snapshots) == (2, 2, 1)
    assert described.summary.bytes == sum(file.bytes for file in tables.list_files(T).files)


def test_the_last_change_is_that_of_main(tables: IcebergTableManager) -> None:
    tables.create_table(T, pa.schema({"n": pa.int64()}))
    empty = tables.summarize(T).last_change
    head = append(tables, 1)
    written = tables.summarize(T).last_change
    assert empty <= written == at(tables.find_snapshot(T, head))
    tables.create_branch(T, "trial")
    append(tables, 2, branch="trial")
    assert tables.summarize(T).last_change == written


def test_history_has_every_snapshot_and_says_which_lead_to_the_head(tables: IcebergTableManager) -> None:
    first, second = append(tables, 1), append(tables, 2, 3)
    tables.create_branch(T, "audit", snapshot_id=first)
    on_branch = append(tables, 4, branch="audit")
    tables.rollback_to_snapshot(T, first)
    third = tables.write_data(
        T, pa.table({"n": [5]}), mode="overwrite", snapshot_properties={"floe.asset": "orders", "floe.run-id": "r1"}
    ).snapshot_id
    shown = [(one.snapshot_id, one.on_main, one.refs, one.rows_added, one.total_rows) for one in tables.history(T)]
    assert shown == [
        (third, True, ("main",), 1, 1),
        (on_branch, False, ("audit",), 1, 2),
        (second, False, (), 2, 3),
        (first, True, (), 1, 1),
    ]
    head = tables.history(T)[0]
    assert (head.asset, head.run_id, head.operation, head.rows_deleted) == ("orders", "r1", "overwrite", 1)
    assert head.write_id is not None


def test_tables_of_format_version_1_are_inspected_too(tables: IcebergTableManager) -> None:
    rows = pa.table({"day": [date(2026, 1, 1), date(2026, 1, 2)], "n": [1, 2]})
    tables.create_table(T, rows.schema, partition_by=by("day"), properties={"format-version": "1"})
    snapshots = [tables.write_data(T, rows, mode="append").snapshot_id for _ in range(2)]
    tables.evolve_partitions(T, [])  # format version 1 keeps the field, with the transform void
    snapshots.append(tables.write_data(T, rows, mode="append").snapshot_id)
    assert tables.describe(T).format_version == 1
    assert [commit.snapshot_id for commit in tables.history(T)] == snapshots[::-1]
    assert [(one.partition, one.rows, one.files) for one in tables.list_partitions(T)] == [
        ({"day": "2026-01-01"}, 2, 2),
        ({"day": "2026-01-02"}, 2, 2),
        ({}, 2, 1),
    ]
    assert [commit.total_rows for commit in tables.history(T)] == [6, 4, 2]


def shown_partitions(tables: IcebergTableManager, values: pa.Array, transform: str = "identity") -> list[Partition]:
    tables.create_table(T, pa.schema([("p", values.type)]), partition_by=by("p", transform))
    for _ in range(2):
        tables.write_data(T, pa.table({"p": values}), mode="append")
    return list(tables.list_partitions(T))


@pytest.mark.parametrize(
    ("values", "transform", "shown"),
    [
        (pa.array([10, None, -3, 9]), "identity", [None, "-3", "9", "10"]),
        (pa.array([math.nan, 1.5, -0.0, 0.0]), "identity", ["-0.0", "0.0", "1.5", "nan"]),
        (pa.array(["-0.0", "b/=c", "a\x1b[2J", ""]), "identity", ["", "-0.0", "a\x1b[2J", "b/=c"]),
        (pa.array([True, False]), "identity", ["false", "true"]),
        (pa.array([b"\xff", b"a"]), "identity", ["YQ==", "/w=="]),
        (pa.array([UUID(int=2).bytes, UUID(int=1).bytes], pa.uuid()), "identity", [str(UUID(int=1)), str(UUID(int=2))]),
        (
            pa.array([datetime(2026, 1, 2, 3, tzinfo=timezone.utc), datetime(1969, 12, 31, tzinfo=timezone.utc)]),
            "hour",
            ["1969-12-31-00", "2026-01-02-03"],
        ),
        (pa.array([date(2026, 1, 31)]), "month", ["2026-01"]),
        (pa.array([Decimal("10.50"), Decimal("9.00")]), "identity", ["9.00", "10.50"]),
    ],
)
def test_partitions_are_shown_as_their_values_in_order(
    tables: IcebergTableManager, values: pa.Array, transform: str, shown: list[str | None]
) -> None:
    partitions = shown_partitions(tables, values, transform)
    assert [next(iter(one.partition.values())) for one in partitions] == shown
    assert [(one.rows, one.files) for one in partitions] == [(2, 2)] * len(shown)


def test_a_partition_names_its_newest_file_and_the_snapshot_decides(tables: IcebergTableManager) -> None:
    rows = pa.table({"city": ["Oslo", "Bergen"], "n": [1, 2]})
    first = tables.write_data(T, rows, mode="append", partition_by=by("city"))
    second = tables.write_data(T, rows.slice(0, 1), mode="append")
    bergen, oslo = tables.list_partitions(T)
    assert (bergen.last_change, oslo.last_change) == (at(first), at(second))
    (before,) = (
        one for one in tables.list_partitions(T, snapshot=first.snapshot_id) if one.partition != {"city": "Bergen"}
    )
    assert (before.rows, before.last_change) == (1, at(first))
    assert tables.list_partitions(T, snapshot=str(second.snapshot_id)) == (bergen, oslo)


def test_a_limit_of_files_reads_no_further_and_still_counts_all(tables: IcebergTableManager, tmp_path: Path) -> None:
    for number in range(3):
        append(tables, number)
    listing = tables.list_files(T, limit=1)
    assert (len(listing.files), listing.total) == (1, 3)
    manifests = tables.load_table(T).inspect.manifests().column("path").to_pylist()
    for manifest in manifests[1:]:
        Path(manifest.removeprefix("file://")).unlink()
    assert tables.list_files(T, limit=1) == listing
    with pytest.raises(FloeStorageError, match="not where the catalog expects them"):
        tables.list_files(T)


def test_a_comparison_counts_the_files_of_each_partition_once(tables: IcebergTableManager) -> None:
    rows = pa.table({"city": ["Oslo", "Bergen"], "n": [1, 2]})
    start = tables.write_data(T, rows, mode="append", partition_by=by("city"))
    tables.write_data(T, rows.slice(0, 1), mode="append", commit_strategy="merge")
    tables.write_data(T, pa.table({"city": ["Oslo"], "n": [7]}), mode="overwrite", overwrite_filter="city = 'Oslo'")
    tables.evolve_schema(T, AddColumn("note", pa.string()))
    diff = tables.compare_snapshots(T, start.snapshot_id)
    assert diff.commits == 2
    assert [(one.change, one.column, one.after) for one in diff.columns] == [("added", "note", "string optional")]
    (change,) = diff.partitions
    assert change.partition == {"city": "Oslo"}
    assert (change.rows_added, change.rows_removed, change.files_added, change.files_removed) == (1, 1, 1, 1)
    back = tables.compare_snapshots(T, "main", start.snapshot_id)
    assert (back.commits, back.partitions[0].rows_added, back.partitions[0].bytes_removed) == (
        None,
        1,
        change.bytes_added,
    )
    assert tables.compare_snapshots(T, "main", "main").partitions == ()


def test_a_comparison_names_each_change_of_a_column(tables: IcebergTableManager) -> None:
    schema = pa.schema(
        [pa.field("a", pa.int32()), pa.field("b", pa.int64(), nullable=False), ("c", pa.int64()), ("d", pa.int64())]
    )
    tables.create_table(T, schema)
    start = tables.write_data(T, pa.table([[1], [2], [3], [4]], schema=schema), mode="append")
    tables.evolve_schema(
        T,
        WidenColumn("a", pa.int64()),
        MakeOptional("b"),
        RenameColumn("c", "e"),
        DropColumn("d"),
        allow_incompatible_changes=True,
    )
    changes = tables.compare_snapshots(T, start.snapshot_id).columns
    assert [(one.change, one.column, one.before, one.after) for one in changes] == [
        ("type", "a", "int", "long"),
        ("nullability", "b", "required", "optional"),
        ("renamed", "e", "c", "e"),
        ("dropped", "d", "long optional", None),
    ]


def test_a_snapshot_is_found_by_id_ref_or_time(tables: IcebergTableManager) -> None:
    first, second = append(tables, 1), append(tables, 2)
    tables.load_table(T).manage_snapshots().create_tag(first, "20260131").commit()  # by another tool
    committed = {commit.snapshot_id: commit.committed_at for commit in tables.history(T)}
    for revision in (first, str(first), "20260131", committed[first], committed[first].isoformat()):
        assert tables.find_snapshot(T, revision).snapshot_id == first
    assert tables.find_snapshot(T).snapshot_id == second
    assert tables.find_snapshot(T, f"{committed[second]:%Y-%m-%dT%H:%M:%S.%f}Z").snapshot_id == second


def test_every_time_that_is_shown_finds_its_own_snapshot(tables: IcebergTableManager) -> None:
    append(tables, 1)
    table = tables.load_table(T)
    (entry,) = table.metadata.snapshot_log
    for stamp in range(1_767_607_872_000, 1_767_607_872_999):  # as floating-point seconds, some are a little less
        log = [entry.model_copy(update={"timestamp_ms": stamp})]
        table.metadata = table.metadata.model_copy(update={"snapshot_log": log})
        snapshot_at(table, ORDERS, datetime.fromtimestamp(stamp / 1000, timezone.utc))


@pytest.mark.parametrize(
    ("revision", "problem"),
    [
        ("v11", "no tag, branch or snapshot 'v11' .*tags: v1, v2; branches: main; .*Did you mean v1"),
        ("4711", "no tag, branch or snapshot '4711'"),
        ("1234567890123456789", "no snapshot 1234567890123456789; it may have expired"),
        ("2026-01-31", r"no time zone; write it with one, for example 2026-01-31T00:00:00\+00:00"),
        ("2001-01-31T00:00:00Z", "had no snapshot at 2001"),
        ("", "no tag, branch or snapshot ''"),
    ],
)
def test_a_snapshot_that_does_not_exist_is_an_error_that_lists_what_does(
    tables: IcebergTableManager, revision: str, problem: str
) -> None:
    snapshot_id = append(tables, 1)
    for tag in ("v1", "v2"):
        tables.create_tag(T, tag)
    with pytest.raises(ConfigurationError, match=problem):
        tables.find_snapshot(T, revision)
    tables.rollback_to_snapshot(T, snapshot_id, expected_head=snapshot_id)  # nothing was changed


@pytest.mark.parametrize("revision", [None, "main", "v1", "2026-01-31T00:00:00Z"])
def test_a_table_without_a_snapshot_says_so(tables: IcebergTableManager, revision: str | None) -> None:
    tables.create_table(T, pa.schema([("n", pa.int64())]))
    with pytest.raises(ConfigurationError, match="has no snapshot yet; write to it first"):
        tables.find_snapshot(T, revision)
    with pytest.raises(ConfigurationError, match="no snapshot yet"):
        tables.plan_rollback(T, "main")
    assert (tables.history(T), tables.list_partitions(T), tables.list_files(T).files) == ((), (), ())


def test_a_rollback_is_planned_and_then_bound_to_that_plan(tables: IcebergTableManager) -> None:
    first, second = append(tables, 1), append(tables, 2)
    tables.move_tag(T, f"{CURSOR_PREFIX}gold", second)
    plan = tables.plan_rollback(T, first)
    assert [commit.snapshot_id for commit in plan.commits] == [second]
    assert plan.cursors == (f"{CURSOR_PREFIX}gold",)
    third = append(tables, 3)
    with pytest.raises(ConcurrencyConflictError, match="nothing was rolled back"):
        tables.rollback_to_snapshot(T, first, expected_head=plan.head.snapshot_id)
    assert tables.find_snapshot(T).snapshot_id == third
    tables.rollback_to_snapshot(T, first, expected_head=third)
    with pytest.raises(ConfigurationError, match=f"{third} is not in the history .*in its history: {first}.*ahead"):
        tables.plan_rollback(T, third)
    assert tables.plan_rollback(T, "main").commits == ()


def test_a_table_is_dropped_only_as_it_was_when_that_was_decided(tables: IcebergTableManager) -> None:
    append(tables, 1)
    looked_at = tables.describe(T).metadata_location
    append(tables, 2)
    for purge in (False, True):
        with pytest.raises(ConcurrencyConflictError, match="changed in the meantime, so it was not dropped"):
            tables.drop_table(T, purge=purge, expected_metadata=looked_at)
    assert tables.scan(T).to_arrow().num_rows == 2
    current = tables.describe(T).metadata_location
    tables.drop_table(T, expected_metadata=current)
    with pytest.raises(TableNotFoundError):
        tables.drop_table(T, expected_metadata=current)
    tables.register_table(T, current)
    assert tables.drop_table(T, purge=True, expected_metadata=current) == ()
    assert not list(Path(current.removeprefix("file://")).parents[1].rglob("*.parquet"))


def test_removing_a_tag_returns_where_it_was(tables: IcebergTableManager) -> None:
    first, _ = append(tables, 1), append(tables, 2)
    tables.create_tag(T, "v1", snapshot_id=first)
    assert tables.remove_tag(T, "v1") == first
    with pytest.raises(ConfigurationError, match="has no tag 'v1' to remove"):
        tables.remove_tag(T, "v1")


def test_tables_are_found_below_a_namespace(tables: IcebergTableManager) -> None:
    for name in ("bronze.orders", "bronze.raw.orders", "bronze.raw.deep.er.x", "silver.orders"):
        append(tables, 1, name=name)
    assert [str(one) for one in tables.find_tables("bronze.raw")] == ["bronze.raw.deep.er.x", "bronze.raw.orders"]
    assert len(tables.find_tables()) == 4
    assert tables.similar_tables("orders") == ["bronze.orders", "bronze.raw.orders", "silver.orders"]
    assert tables.similar_tables("silver.ordres") == ["silver.orders", "bronze.orders", "bronze.raw.orders"]


def test_the_nearest_names_are_suggested_and_unlike_ones_are_not() -> None:
    known = ["bronze.orders", "silver.orders", "gold.daily_revenue"]
    assert similar("orders", known) == ["bronze.orders", "silver.orders"]
    assert similar("gold.dayly_revenue", known) == ["gold.daily_revenue"]
    assert similar("xyz", known) == []
    assert similar("", known) == []
