"""Reading only what was appended since a snapshot."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_core.errors import ConfigurationError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, PartitionTransformType
from floe_iceberg import IcebergTableManager
from floe_iceberg.schema.changes import AddColumn

T = TableIdentifier.from_string("bronze.orders")
SCHEMA = pa.schema([("n", pa.int64()), ("note", pa.string())])


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    """A table by note with four snapshots, of which each appended two rows: 0 and 1, 10 and 11, and so on."""
    opened = open_manager(tmp_path)
    by_note = PartitionTransform(source_column="note", transform_type=PartitionTransformType.IDENTITY)
    opened.create_table(T, SCHEMA, partition_by=[by_note])
    for number in range(4):
        append(opened, 10 * number)
    return opened


def append(manager: IcebergTableManager, first: int, branch: str = "main") -> int:
    table = manager.load_table(T)
    table.append(pa.table({"n": [first, first + 1], "note": ["even", "odd"]}, SCHEMA), branch=branch)
    snapshot = table.snapshot_by_name(branch)
    assert snapshot is not None
    return snapshot.snapshot_id


def snapshots(manager: IcebergTableManager) -> list[int]:
    return [one.snapshot_id for one in manager.list_snapshots(T)]


def numbers(manager: IcebergTableManager, **options: Any) -> list[int]:
    return sorted(manager.scan_changes(T, **options).to_arrow()["n"].to_pylist())


def expire(manager: IcebergTableManager, *ids: int) -> None:
    manager.load_table(T).maintenance.expire_snapshots().by_ids(list(ids)).commit()


def test_rows_after_since_up_to_the_head_or_until_are_read(manager: IcebergTableManager) -> None:
    first, second, third, fourth = snapshots(manager)
    assert numbers(manager, since=first) == [10, 11, 20, 21, 30, 31]
    assert numbers(manager, since=third) == [30, 31]
    assert numbers(manager, since=first, until=third) == [10, 11, 20, 21]
    assert numbers(manager, since=second, until=fourth) == [20, 21, 30, 31]


def test_steps_add_up_to_the_whole(manager: IcebergTableManager) -> None:
    ids = snapshots(manager)
    first = manager.scan(T, snapshot_id=ids[0]).to_arrow()["n"].to_pylist()
    steps = [numbers(manager, since=since, until=until) for since, until in itertools.pairwise(ids)]
    assert sorted([*first, *itertools.chain(*steps)]) == sorted(manager.scan(T).to_arrow()["n"].to_pylist())


def test_a_snapshot_up_to_itself_has_no_rows_and_the_right_columns(manager: IcebergTableManager) -> None:
    first, *_, head = snapshots(manager)
    empty: tuple[dict[str, Any], ...] = (
        {"since": head},
        {"since": head, "until": head},
        {"since": first, "until": first},
    )
    for options in empty:
        changes = manager.scan_changes(T, **options)
        assert changes.to_arrow().num_rows == 0
        assert changes.to_arrow().column_names == ["n", "note"]
        assert changes.to_arrow_batch_reader().read_all().num_rows == 0
        assert list(changes.to_pandas().columns) == ["n", "note"]
    assert manager.scan_changes(T, since=head, columns=["n"]).to_arrow().column_names == ["n"]


def test_columns_and_filter_are_pushed_down(manager: IcebergTableManager) -> None:
    first, *_ = snapshots(manager)
    changes = manager.scan_changes(T, since=first, columns=["n"], row_filter="note = 'odd'")
    assert changes.to_arrow().column_names == ["n"]
    assert sorted(changes.to_arrow()["n"].to_pylist()) == [11, 21, 31]
    assert len(list(changes.plan_files())) == 3


def test_every_form_has_the_same_rows(manager: IcebergTableManager) -> None:
    changes = manager.scan_changes(T, since=snapshots(manager)[1])
    expected = [20, 21, 30, 31]
    assert sorted(changes.to_arrow_batch_reader().read_all()["n"].to_pylist()) == expected
    assert sorted(changes.to_pandas()["n"]) == expected
    assert sorted(changes.to_polars()["n"]) == expected


def test_appends_that_merge_manifests_are_told_one_by_one(manager: IcebergTableManager) -> None:
    merged = TableIdentifier.from_string("bronze.merged")
    merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    manager.create_table(merged, SCHEMA, properties=merging)
    for number in range(5):
        manager.load_table(merged).append(pa.table({"n": [number], "note": ["x"]}, SCHEMA))
    assert manager.inspect(merged).manifests().num_rows < 5
    ids = [one.snapshot_id for one in manager.list_snapshots(merged)]
    for number, (since, until) in enumerate(itertools.pairwise(ids), start=1):
        rows = manager.scan_changes(merged, since=since, until=until).to_arrow()
        assert rows["n"].to_pylist() == [number]
    assert sorted(manager.scan_changes(merged, since=ids[0]).to_arrow()["n"].to_pylist()) == [1, 2, 3, 4]


def test_a_column_that_came_later_is_there(manager: IcebergTableManager) -> None:
    since = snapshots(manager)[2]
    manager.evolve_schema(T, AddColumn("price", pa.float64()))
    assert manager.scan_changes(T, since=since).to_arrow().column_names == ["n", "note", "price"]
    assert manager.scan_changes(T, since=since, columns=["price"]).to_arrow()["price"].to_pylist() == [None, None]


def test_an_expired_or_unknown_start_names_the_full_refresh(manager: IcebergTableManager) -> None:
    first, second, third, head = snapshots(manager)
    expire(manager, first)
    refresh = (
        rf"full refresh is needed: read all of it once with scan\(snapshot_id={head}\), then continue with since={head}"
    )
    with pytest.raises(ConfigurationError, match=rf"no longer has snapshot {first}; a {refresh}"):
        manager.scan_changes(T, since=first)
    with pytest.raises(ConfigurationError, match=rf"no longer has snapshot 42; a {refresh}"):
        manager.scan_changes(T, since=42)
    assert numbers(manager, since=second, until=third) == [20, 21]


def test_a_gap_that_expiry_left_is_an_error_and_not_fewer_rows(manager: IcebergTableManager) -> None:
    first, _, third, head = snapshots(manager)
    manager.create_tag(T, "kept", snapshot_id=first)
    expire(manager, third)
    with pytest.raises(
        ConfigurationError, match=f"{first} .* {head}.* snapshots in between have expired; a full refresh"
    ):
        manager.scan_changes(T, since=first)


def test_snapshots_in_the_wrong_order_or_on_another_branch_are_refused(manager: IcebergTableManager) -> None:
    first, second, *_ = snapshots(manager)
    with pytest.raises(ConfigurationError, match=f"{second} of 'bronze.orders' is not an ancestor of {first}"):
        manager.scan_changes(T, since=second, until=first)
    manager.create_branch(T, "audit")
    on_branch = append(manager, 90, branch="audit")
    assert numbers(manager, since=second, until=on_branch) == [20, 21, 30, 31, 90, 91]
    with pytest.raises(ConfigurationError, match="is not an ancestor of"):
        manager.scan_changes(T, since=on_branch)
    manager.rollback_to_snapshot(T, first)
    with pytest.raises(ConfigurationError, match=r"the table was rolled back, .*; a full refresh"):
        manager.scan_changes(T, since=second)


def test_snapshots_that_replaced_or_deleted_rows_are_counted_in_a_warning(
    manager: IcebergTableManager, caplog: pytest.LogCaptureFixture
) -> None:
    since = snapshots(manager)[-1]
    append(manager, 40)
    with caplog.at_level(logging.WARNING, logger="floe"):
        assert numbers(manager, since=since) == [40, 41]
        assert caplog.records == []
        manager.load_table(T).delete("n = 40")
        manager.load_table(T).delete("note = 'odd'")
        append(manager, 50)
        assert numbers(manager, since=since) == [40, 41, 50, 51]
    assert "2 snapshot(s) in between replaced or deleted rows" in caplog.text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"until": 42}, r"no snapshot 42; it may have expired \(there: "),
        ({"columns": ["nots"]}, r"no column 'nots'; did you mean 'note'\?"),
        ({"row_filter": "nots = 1"}, r"no column 'nots'; did you mean 'note'\?"),
        ({"row_filter": "n ="}, "cannot be read at character"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(
    manager: IcebergTableManager, options: Any, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        manager.scan_changes(T, since=snapshots(manager)[0], **options)


def test_an_empty_or_missing_table_is_told_as_such(manager: IcebergTableManager) -> None:
    empty = TableIdentifier.from_string("bronze.empty")
    manager.create_table(empty, SCHEMA)
    with pytest.raises(ConfigurationError, match="it holds no rows: start again after its next write"):
        manager.scan_changes(empty, since=1)
    with pytest.raises(TableNotFoundError, match=r"bronze\.nothing"):
        manager.scan_changes(TableIdentifier.from_string("bronze.nothing"), since=1)
