"""A lake whose folder moved: its paths are rewritten, table by table, and nothing else is."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import AddSnapshotUpdate, AssertTableUUID, SetSnapshotRefUpdate

from floe_core.compiler import compile_project
from floe_core.errors import ConcurrencyConflictError, FloeStorageError
from floe_core.models import PartitionTransform
from floe_iceberg import IcebergTableManager
from floe_iceberg.files import reached_files
from floe_iceberg.relocation import MovePlan, move_namespace, move_table, plan_moves
from floe_iceberg.relocation.delete_files import moved_deletes
from floe_iceberg.relocation.paths import MovedFolder, MovedPaths
from floe_iceberg.relocation.rewrite import TableRewrite
from floe_iceberg.snapshots.refs import LEASE

ORDERS, PRICES = "bronze.orders", "silver.prices"
PATH, POSITION = 2147483546, 2147483545
DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION)}),
    ]
)

pytestmark = pytest.mark.usefixtures("configured_logs")


class DeleteManifest(ManifestWriterV2):
    """PyIceberg writes manifests of data files only."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two tables: partitions, replaced rows, deletes, tag, branch, statistics; and format version 1."""
    root = tmp_path_factory.mktemp("made") / "shop"
    root.mkdir()
    (root / "floe.yaml").write_text("name: shop\n")
    tables = opened(root)
    by_city = [PartitionTransform(source_column="city", transform_type="identity")]
    tables.write_data(ORDERS, rows(0, 1, 2, 3), mode="append", partition_by=by_city)
    tables.create_tag(ORDERS, "first")
    tables.write_data(ORDERS, rows(4, 5, 6, 7), mode="append")
    tables.create_branch(ORDERS, "audit")
    tables.load_table(ORDERS).append(rows(50, 51), branch="audit")
    tables.write_data(ORDERS, rows(8, 10), mode="overwrite", overwrite_filter="city = 'Oslo'")
    delete_rows(tables, [1, 7])
    add_statistics(tables.load_table(ORDERS))
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(9, 2))])
    by_both = [
        PartitionTransform(source_column="at", transform_type="day"),
        PartitionTransform(source_column="price", transform_type="identity"),
    ]
    tables.create_table(PRICES, schema, partition_by=by_both, properties={"format-version": "1"})
    for day in (1, 2):
        values = {"at": [datetime(2026, 1, day, tzinfo=timezone.utc)], "price": [Decimal(day)]}
        tables.load_table(PRICES).append(pa.table(values, schema))
    tables.update_namespace("bronze", set={"location": f"file://{root}/.floe/warehouse/raw"})
    tables.close()
    return root


@pytest.fixture
def moved(made: Path, tmp_path: Path) -> Iterator[Path]:
    """The same project, moved: the folder in which it was made is gone while the test runs."""
    hidden = made.with_name("hidden")
    made.rename(hidden)
    root = tmp_path / "moved shop"
    shutil.copytree(hidden, root)
    yield root
    hidden.rename(made)


def opened(root: Path) -> IcebergTableManager:
    return IcebergTableManager.open(compile_project(root).artifacts)


def rows(*numbers: int) -> pa.Table:
    cities = ["Rome" if number % 2 else "Oslo" for number in numbers]
    return pa.table({"id": list(numbers), "city": cities})


def local(address: str) -> Path:
    return Path(address.removeprefix("file://"))


def delete_rows(tables: IcebergTableManager, ids: list[int]) -> None:
    """A snapshot with a position delete file, as engines write them in merge-on-read mode."""
    table = tables.load_table(ORDERS)
    head = table.current_snapshot()
    assert head is not None
    found: list[tuple[str, int]] = []
    partitions = {}
    for file in (task.file for task in table.scan().plan_files()):
        there = pq.ParquetFile(local(file.file_path)).read()["id"].to_pylist()
        found += [(file.file_path, there.index(number)) for number in ids if number in there]
        partitions[file.file_path] = file.partition
    io_, snapshot_id, number = table.io, 4711, (head.sequence_number or 0) + 1
    path = f"{table.location()}/data/city=Rome/00000-0-6f1c0d3e-8f7b-4a51-9d0c-2b7e6c1f0a55-00001-deletes.parquet"
    columns = zip(*sorted(found), strict=True)
    pq.write_table(pa.table([pa.array(column) for column in columns], schema=DELETES), local(path), compression="gzip")
    bounds = [{PATH: edge(place for place, _ in found).encode()} for edge in (min, max)]
    file = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partitions[found[0][0]],
        record_count=len(found),
        file_size_in_bytes=local(path).stat().st_size,
        column_sizes={PATH: 1, POSITION: 1},
        lower_bounds=bounds[0],
        upper_bounds=bounds[1],
        split_offsets=[4],
    )
    name = f"{table.location()}/metadata/6f1c0d3e-8f7b-4a51-9d0c-2b7e6c1f0a55-m0.avro"
    with DeleteManifest(table.spec(), table.schema(), io_.new_output(name), snapshot_id, "deflate") as writer:
        writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file))
    listed = f"{table.location()}/metadata/snap-{snapshot_id}-0-6f1c0d3e-8f7b-4a51-9d0c-2b7e6c1f0a55.avro"
    with write_manifest_list(2, io_.new_output(listed), snapshot_id, head.snapshot_id, number, "deflate") as manifests:
        manifests.add_manifests([*head.manifests(io_), writer.to_manifest_file()])
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=number,
        timestamp_ms=head.timestamp_ms + 1,
        manifest_list=listed,
        summary=Summary(Operation.DELETE),
        schema_id=table.schema().schema_id,
    )
    ref = SetSnapshotRefUpdate(
        ref_name="main",
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    requirements = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    table.catalog.commit_table(table, requirements, (AddSnapshotUpdate(snapshot=snapshot), ref))


def add_statistics(table: Table) -> None:
    path, head = f"{table.location()}/metadata/stats.puffin", table.current_snapshot()
    assert head is not None
    local(path).write_bytes(b"PFA1")
    sizes = {"file-size-in-bytes": 4, "file-footer-size-in-bytes": 4, "blob-metadata": []}
    file = StatisticsFile.model_validate({"snapshot-id": head.snapshot_id, "statistics-path": path, **sizes})
    with table.update_statistics() as update:
        update.set_statistics(file)


def move_all(root: Path, *, copy: bool = False) -> MovePlan:
    tables = opened(root)
    plan = plan_moves(tables, copy=copy)
    for namespace in plan.namespaces:
        move_namespace(tables, namespace)
    for planned in plan.moves:
        move_table(tables, planned, copy=copy)
    return plan


def ids(tables: IcebergTableManager, **options: Any) -> list[int]:
    return sorted(tables.scan(ORDERS, **options).to_arrow()["id"].to_pylist())


def digests(root: Path) -> dict[str, str]:
    """Every file below a folder, by its content and its name; not what SQLite keeps beside its file."""
    found = (path for path in root.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def texts(table: Table) -> Iterator[tuple[str, str]]:
    """All that is reachable from the catalog, as text; data files and statistics hold no paths."""
    for address in reached_files(table):
        path = local(address)
        assert path.is_file(), address
        if path.suffix == ".avro":
            with AvroFile[Any](PyArrowFileIO().new_input(address)) as records:
                yield address, str([[record[place] for place in range(len(record))] for record in records])
        elif path.name.endswith("-deletes.parquet"):
            yield address, str(pq.read_table(path).to_pydict())
        elif path.suffix == ".json":
            yield address, path.read_text()


def row_of(root: Path, table: str) -> tuple[str, str | None]:
    with closing(sqlite3.connect(root / ".floe" / "catalog.db")) as connection:
        found: tuple[str, str | None] = connection.execute(
            "SELECT metadata_location, previous_metadata_location FROM iceberg_tables WHERE table_name = ?",
            (table.split(".")[1],),
        ).fetchone()
    return found


def test_a_lake_that_moved_is_read_and_written_as_before(moved: Path) -> None:
    with pytest.raises(FloeStorageError, match="floe move"):
        opened(moved).load_table(ORDERS)
    plan = move_all(moved)
    assert [planned.table for planned in plan.moves] == [ORDERS, PRICES]
    assert not plan.refused
    tables = opened(moved)
    assert ids(tables) == [3, 5, 8, 10]
    assert ids(tables, ref="first") == [0, 1, 2, 3]
    assert ids(tables, ref="audit") == [0, 1, 2, 3, 4, 5, 6, 7, 50, 51]
    assert [len(ids(tables, snapshot_id=found.snapshot_id)) for found in tables.list_snapshots(ORDERS)] == [
        4, 8, 10, 6, 4,
    ]  # fmt: skip
    assert tables.scan(PRICES).to_arrow()["price"].to_pylist() == [Decimal(2), Decimal(1)]
    tables.write_data(ORDERS, rows(20), mode="append")
    assert ids(tables) == [3, 5, 8, 10, 20]
    assert tables.load_namespace("bronze").properties["location"] == f"file://{moved}/.floe/warehouse/raw"
    assert plan_moves(tables).moves == ()
    assert plan_moves(tables).in_place == 2


def test_no_reachable_metadata_names_the_old_folder(moved: Path, made: Path) -> None:
    move_all(moved)
    for table in (ORDERS, PRICES):
        reachable = dict(texts(opened(moved).load_table(table)))
        kinds = {"-deletes.parquet" if "-deletes" in name else Path(name).suffix for name in reachable}
        assert kinds == ({".json", ".avro", "-deletes.parquet"} if table == ORDERS else {".json", ".avro"})
        assert [name for name, text in reachable.items() if str(made) in text or str(made) in name] == []
        assert all(str(made) not in (location or "") for location in row_of(moved, table))


def test_manifests_describe_the_rewritten_delete_file(moved: Path) -> None:
    move_all(moved)
    table = opened(moved).load_table(ORDERS)
    head = table.current_snapshot()
    assert head is not None
    (manifest,) = (file for file in head.manifests(table.io) if file.content is ManifestContent.DELETES)
    (entry,) = manifest.fetch_manifest_entry(table.io)
    path = local(entry.data_file.file_path)
    content = pq.read_table(path)
    assert content["file_path"].to_pylist() == sorted(content["file_path"].to_pylist())
    assert entry.data_file.file_size_in_bytes == path.stat().st_size
    assert entry.data_file.lower_bounds[PATH].decode() == content["file_path"][0].as_py()
    assert entry.data_file.upper_bounds[PATH].decode() == content["file_path"][-1].as_py()
    assert entry.data_file.column_sizes[PATH] > 1
    assert [field.metadata[b"PARQUET:field_id"] for field in pq.read_schema(path)] == [b"2147483546", b"2147483545"]
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "GZIP"


def test_a_plan_changes_nothing_and_a_move_only_adds_files(moved: Path) -> None:
    before = digests(moved)
    plan = plan_moves(opened(moved))
    assert digests(moved) == before
    orders = plan.moves[0]
    assert (orders.snapshots, orders.files, orders.outside) == (5, 8, 0)
    move_all(moved)
    after = digests(moved)
    assert {name for name in before if after.get(name) != before[name]} <= {".floe/catalog.db"}
    added = len(after.keys() - before.keys())
    assert added == sum(planned.written for planned in plan.moves)


def test_an_interruption_between_two_tables_leaves_one_old_and_one_new(moved: Path) -> None:
    tables = opened(moved)
    move_table(tables, plan_moves(tables).moves[0])
    tables.close()
    assert ids(opened(moved)) == [3, 5, 8, 10]
    again = plan_moves(opened(moved))
    assert ([planned.table for planned in again.moves], again.in_place) == ([PRICES], 1)
    move_all(moved)
    assert opened(moved).scan(PRICES).to_arrow().num_rows == 2


def test_an_interruption_within_a_table_leaves_it_as_it_was(moved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, row = digests(moved), row_of(moved, ORDERS)
    write, written = TableRewrite._write, []

    def interrupted(self: TableRewrite, *arguments: Any, **options: Any) -> None:
        write(self, *arguments, **options)
        written.append(self.written[-1])
        if len(written) == 5:
            raise KeyboardInterrupt

    tables = opened(moved)
    planned = plan_moves(tables).moves[0]
    monkeypatch.setattr(TableRewrite, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        move_table(tables, planned)
    monkeypatch.setattr(TableRewrite, "_write", write)
    assert len(written) == 5
    assert (digests(moved), row_of(moved, ORDERS)) == (before, row)
    move_all(moved)
    assert ids(opened(moved)) == [3, 5, 8, 10]


def test_another_writer_wins_against_a_move(moved: Path) -> None:
    tables = opened(moved)
    planned = plan_moves(tables).moves[0]
    files = set(digests(moved))
    with closing(sqlite3.connect(moved / ".floe" / "catalog.db")) as other:
        other.execute("UPDATE iceberg_tables SET metadata_location = 'file:///elsewhere' WHERE table_name = 'orders'")
        other.commit()
    with pytest.raises(ConcurrencyConflictError, match="changed by another process"):
        move_table(tables, planned)
    assert row_of(moved, ORDERS)[0] == "file:///elsewhere"
    assert set(digests(moved)) == files


def test_a_copy_is_refused_and_with_consent_leaves_the_original_alone(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    original, before = digests(made), digests(copy)
    (first, second) = plan_moves(opened(copy)).refused
    assert (first.table, second.table) == (ORDERS, PRICES)
    assert first.reasons[0].startswith(f"this is a copy: the original at {made}/.floe/warehouse exists")
    assert (digests(made), digests(copy)) == (original, before)
    assert len(move_all(copy, copy=True).moves) == 2
    tables = opened(copy)
    tables.write_data(ORDERS, rows(20), mode="append")
    tables.drop_table(PRICES, purge=True)
    assert ids(tables) == [3, 5, 8, 10, 20]
    assert digests(made) == original
    assert ids(opened(made)) == [3, 5, 8, 10]


def test_a_table_with_missing_files_is_refused_by_name_and_the_others_move(moved: Path) -> None:
    lost = sorted((moved / ".floe" / "warehouse" / "bronze" / "orders" / "data").rglob("*.parquet"))[0]
    content = lost.read_bytes()
    for damage, named in (
        (b"", f"file://{lost} has 0 bytes instead of the recorded {len(content):,}"),
        (None, "missing"),
    ):
        lost.unlink()
        if damage is not None:
            lost.write_bytes(damage)
        plan = plan_moves(opened(moved))
        (refused,) = plan.refused
        assert refused.table == ORDERS
        assert named in refused.reasons[0]
        assert str(lost) in refused.reasons[0]
        assert (
            refused.reasons[-1]
            == "restore the files, or drop the table with floe tables drop; then run floe move again"
        )
        assert [planned.table for planned in plan.moves] == [PRICES]


def test_files_and_tables_of_other_folders_stay_as_they_are(moved: Path, tmp_path: Path) -> None:
    move_all(moved)
    tables = opened(moved)
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(rows(70), foreign)
    tables.load_table(PRICES)
    tables.create_table("bronze.added", rows(0).schema).add_files([f"file://{foreign}"])
    elsewhere = tables.load_table("bronze.added").metadata_location.replace("bronze/added", "x/added")
    shutil.copytree(moved / ".floe/warehouse/bronze/added", tmp_path / "x/added")
    away = f"file://{tmp_path}/x/added/{elsewhere.partition('x/added/')[2]}"
    tables.register_table("bronze.away", away)
    tables.close()
    again = moved.with_name("again")
    moved.rename(again)
    plan = move_all(again)
    assert {planned.table: planned.outside for planned in plan.moves} == {"bronze.added": 1, ORDERS: 0, PRICES: 0}
    assert plan.elsewhere == {"bronze.away": away}
    table = opened(again).load_table("bronze.added")
    assert [task.file.file_path for task in table.scan().plan_files()] == [f"file://{foreign}"]
    assert table.scan().to_arrow()["id"].to_pylist() == [70]


def test_files_of_the_project_outside_of_its_warehouse_move_with_it(moved: Path) -> None:
    move_all(moved)
    landing = moved / "landing" / "a.parquet"
    landing.parent.mkdir()
    pq.write_table(rows(70), landing)
    tables = opened(moved)
    tables.create_table("bronze.added", rows(0).schema).add_files([f"file://{landing}"])
    tables.close()
    copy = moved.with_name("copy")
    shutil.copytree(moved, copy)
    (copy / "landing" / "a.parquet").unlink()
    (refused,) = plan_moves(opened(copy), copy=True).refused
    assert refused.reasons == (f"file://{landing} is a file of the original lake, and is not in the copy",)
    again = moved.with_name("again")
    moved.rename(again)
    move_all(again)
    (task,) = opened(again).load_table("bronze.added").scan().plan_files()
    assert task.file.file_path == f"file://{again}/landing/a.parquet"


def test_a_table_that_was_placed_in_the_project_moves_with_it(moved: Path) -> None:
    move_all(moved)
    tables = opened(moved)
    place = f"file://{moved}/apart/{ORDERS}"
    tables.create_table("bronze.apart", rows(0).schema, properties={"location": place}).append(rows(70))
    tables.close()
    again = moved.with_name("again")
    moved.rename(again)
    assert {planned.table for planned in move_all(again).moves} == {"bronze.apart", ORDERS, PRICES}
    table = opened(again).load_table("bronze.apart")
    assert table.location() == table.properties["floe.location"] == f"file://{again}/apart/{ORDERS}"
    assert opened(again).write_data("bronze.apart", rows(71), mode="append").count("total-records") == 2


def test_a_lake_that_moved_into_its_own_old_folder(moved: Path, made: Path) -> None:
    inner = made / "inner"
    shutil.copytree(moved, inner)
    try:
        assert len(move_all(inner).moves) == 2
        assert ids(opened(inner)) == [3, 5, 8, 10]
        assert plan_moves(opened(inner)).in_place == 2
    finally:
        shutil.rmtree(made)


def test_addresses_keep_their_form_and_others_stay_as_they_are() -> None:
    paths = MovedPaths(MovedFolder("/a/b/lake", "/a/lake"))
    assert [paths.new(f"{scheme}/a/b/lake/x%20y/1") for scheme in ("file://", "file:", "", "file://localhost")] == [
        f"{scheme}/a/lake/x%20y/1" for scheme in ("file://", "file:", "", "file://localhost")
    ]
    assert paths.new("file:///a/b/lake//x/") == "file:///a/lake/x"
    assert paths.new("/a/b/lake") == "/a/lake"
    for other in ("/a/b/lakes/x", "s3://a/b/lake/x", "/a/lake/x", "16", "zstd", "a/b/lake/x", ""):
        assert paths.new(other) == other
    assert MovedPaths(MovedFolder("/a", "/a/b")).new("/a/x") == "/a/b/x"
    assert MovedPaths(MovedFolder("/a/b", "/a")).new("/a/b/x") == "/a/x"


def test_a_table_under_maintenance_is_refused(moved: Path, made: Path) -> None:
    address = row_of(moved, PRICES)[0].replace(str(made), str(moved))
    document = json.loads(local(address).read_text())
    ref = {"snapshot-id": document["current-snapshot-id"], "type": "tag"}
    document["refs"] |= {LEASE: ref, f"{LEASE}-9999999999999-host_1-0123456789ab": ref}
    local(address).write_text(json.dumps(document))
    (refused,) = plan_moves(opened(moved)).refused
    assert refused.reasons == ("being maintained by host_1 until 2286-11-20T17:46:39+00:00: wait until then",)


def test_deletion_vectors_name_the_new_data_file() -> None:
    blob, properties = b"vector", {"referenced-data-file": "file:///old/a.parquet", "cardinality": "2"}
    footer = json.dumps({"blobs": [{"type": "deletion-vector-v1", "fields": [], "snapshot-id": 1, "sequence-number": 1,
                                    "offset": 4, "length": len(blob), "properties": properties}]}).encode()  # fmt: skip
    flags = bytes(4)
    content = b"PFA1" + blob + b"PFA1" + footer + len(footer).to_bytes(4, "little") + flags + b"PFA1"
    rewritten = moved_deletes(content, "PUFFIN", lambda path: path.replace("/old/", "/the new place/"))
    assert rewritten is not None
    moved_content, described = rewritten
    size = int.from_bytes(moved_content[-12:-8], "little")
    found = json.loads(moved_content[-12 - size : -12])["blobs"][0]
    assert found["properties"] == {**properties, "referenced-data-file": "file:///the new place/a.parquet"}
    assert moved_content[found["offset"] :][: found["length"]] == blob
    assert described.size == len(moved_content)
    assert moved_deletes(content, "PUFFIN", str) is None
    with pytest.raises(FloeStorageError, match="compressed footer"):
        moved_deletes(content[:-8] + b"\x01\x00\x00\x00PFA1", "PUFFIN", str)


def test_deletes_of_moved_and_other_files_stay_sorted() -> None:
    table = pa.table([["file:///a/1", "file:///a/1", "file:///m/2"], [3, 5, 1]], schema=DELETES)
    sink = io.BytesIO()
    pq.write_table(table, sink)
    rewritten = moved_deletes(sink.getvalue(), "PARQUET", lambda path: path.replace("/a/", "/z/"))
    assert rewritten is not None
    found = pq.read_table(pa.BufferReader(rewritten[0])).to_pydict()
    assert found == {"file_path": ["file:///m/2", "file:///z/1", "file:///z/1"], "pos": [1, 3, 5]}
    assert (rewritten[1].first, rewritten[1].last) == ("file:///m/2", "file:///z/1")
