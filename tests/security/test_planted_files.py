"""Days of maintenance, purges and drops around the files of others: at its end they are the same, byte for byte."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster import DagsterInstance, asset
from tests import commands
from tests.behaviours.test_catalog_names import fill, ids_in
from tests.behaviours.test_dagster_maintenance import House, observed
from tests.lakes import ORPHAN, began_earlier

from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager, Lake
from floe_iceberg.maintenance.run import Maintenance

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")]

LEFT_ALONE = {"floe.maintenance.enabled": "false"}


def name(text: str) -> TableIdentifier:
    return TableIdentifier.from_string(text)


ORDERS, CUSTOMERS, OUTER, INNER = map(name, ("bronze.orders", "bronze.customers", "nest.outer", "nest.inner"))
BORROWER, COPY, AWAY = map(name, ("silver.borrower", "silver.copy", "silver.away"))


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def writer_name() -> str:
    return f"00000-0-{uuid.uuid4()}.parquet"


def plant(path: Path, *, days: float = 10) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(f"mine: {path.name}".encode())
    moment = time.time() - days * 86_400
    os.utime(path, (moment, moment))


class Week:
    """A project with tables, and around them what belongs to others."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.root = house.lake.artifacts.root
        self.warehouse = self.root / ".floe" / "warehouse"
        self.tables: IcebergTableManager = house.tables
        self.planted: dict[Path, bytes | str] = {}
        self.removed: set[str] = set()

    def folder(self, table: TableIdentifier) -> Path:
        return Path(self.tables.load_table(table).location().removeprefix("file://"))

    def fill(self) -> None:
        for table in (ORDERS, CUSTOMERS, INNER):
            for number in range(2):
                self.tables.write_data(table, rows(number), mode="append")
            began_earlier(self.folder(table))
        catalog: Any = self.tables.catalog_plugin.connect()
        catalog.create_table(str(OUTER), rows().schema, location=(self.warehouse / "nest").as_uri())
        self.tables.write_data(OUTER, rows(1), mode="append")
        away = {**LEFT_ALONE, "location": (self.root / "away").as_uri()}
        self.tables.write_data(AWAY, rows(1), mode="append", properties=away)
        self._lend()
        self._copy()
        fill(self.root, "other", "bronze.theirs", 1, 2, 3)

    def _lend(self) -> None:
        """Files that two tables have, and one that was added from a folder of documents."""
        survey = self.root / "documents" / "survey.parquet"
        survey.parent.mkdir()
        pq.write_table(rows(7), survey)
        self.tables.create_table(BORROWER, rows().schema, properties=LEFT_ALONE)
        lent = [task.file.file_path for task in self.tables.scan(ORDERS).plan_files()]
        self.tables.load_table(BORROWER).add_files(lent)
        self.tables.load_table(ORDERS).add_files([survey.as_uri()])
        self._remember(survey, *(Path(path.removeprefix("file://")) for path in lent))

    def _copy(self) -> None:
        """The customers once more, registered with a uuid of their own."""
        original = Path(self.tables.load_table(CUSTOMERS).metadata_location.removeprefix("file://"))
        metadata = json.loads(original.read_text(encoding="utf-8"))
        metadata |= {"table-uuid": str(uuid.uuid4()), "properties": {**metadata["properties"], **LEFT_ALONE}}
        copy = original.with_name(f"00009-{uuid.uuid4()}.metadata.json")
        copy.write_text(json.dumps(metadata), encoding="utf-8")
        self.tables.register_table(COPY, copy.as_uri())
        data = [task.file.file_path for task in self.tables.scan(COPY).plan_files()]
        self._remember(copy, *(Path(path.removeprefix("file://")) for path in data))

    def plant(self) -> None:
        documents = self.root / "documents"
        plant(documents / "archive" / writer_name())
        for place in (self.folder(ORDERS), self.folder(CUSTOMERS), self.folder(OUTER), self.root / "away"):
            for inner in ("", "data", "metadata", "photos", "data/.hidden", "metadata/a b%20c%2F"):
                for file in ("thesis.txt", "photo 1.jpg", "100%.doc", ".secret", "survey.parquet", "notes.json"):
                    plant(place / inner / file)
            plant(place / "data" / writer_name(), days=90)  # older than the table
            plant(place / "backup" / writer_name())
            (place / "data" / "folder").symlink_to(documents / "archive")
            (place / "data" / writer_name()).symlink_to(documents / "survey.parquet")
        plant(self.warehouse / "thesis.txt")
        plant(self.warehouse / "bronze" / "photo.jpg")
        # Names that begin like those of tables, and what a table that was dropped left.
        plant(self.warehouse / "bronze" / "orders-backup" / "data" / writer_name())
        plant(self.warehouse / "bronze" / "ordersold" / "metadata" / f"00000-{uuid.uuid4()}.metadata.json")
        dropped = self.folder(ORDERS) / "data" / "dropped"
        plant(dropped / "data" / writer_name())
        plant(dropped / "metadata" / f"00000-{uuid.uuid4()}.metadata.json")
        # Not the catalog's database: to close it here would release the locks of SQLite in this process.
        places = (self.warehouse, documents, self.root / "away")
        paths = [path for place in places for path in place.rglob("*")]
        found = [path for path in paths if path.is_file() and path.read_bytes().startswith(b"mine: ")]
        links = [path for path in paths if path.is_symlink()]
        theirs = [path for path in paths if "theirs" in path.parts and path.is_file()]
        self._remember(*found, *links, *theirs)

    def _remember(self, *paths: Path) -> None:
        self.planted |= {path: _content(path) for path in paths}

    def age(self, number: int) -> list[Path]:
        """What a day does: history, and files of writes that failed."""
        for table in (ORDERS, CUSTOMERS):
            self.tables.write_data(table, rows(number, number + 1), mode="overwrite")
        place = self.folder(ORDERS)
        orphans = [place / "data" / writer_name(), place / "metadata" / f"{uuid.uuid4()}-m0.avro"]
        for path in orphans:
            plant(path, days=5)
        time.sleep(1.2)
        return orphans


def _content(path: Path) -> bytes | str:
    return str(path.readlink()) if path.is_symlink() else path.read_bytes()


@pytest.fixture
def week(lake: Lake, tmp_path: Path) -> Iterator[Week]:
    with DagsterInstance.ephemeral() as instance:
        house = House(lake, tmp_path, instance)
        yield Week(house)
        if house.lake._session is not None:
            house.lake.step_aside()


@asset(key_prefix="bronze")
def orders() -> pa.Table:
    return rows(1)


def by_command(week: Week) -> None:
    ran = commands.floe("maintain", "run", "--json", cwd=week.root)
    document = json.loads(ran.stdout)
    outcomes = {one["table"]: one for one in document["tables"]}
    assert outcomes[str(ORDERS)]["outcome"] == "done", outcomes[str(ORDERS)]
    steps = [one["step"] for one in outcomes[str(ORDERS)]["reports"]]
    assert steps == ["expire", "orphans"], outcomes[str(ORDERS)]["skipped"]
    kept = {one["path"] for one in outcomes[str(ORDERS)]["not_removed"]}
    assert str(week.folder(ORDERS) / "thesis.txt") in kept


def by_dagster(week: Week) -> None:
    told = observed(week.house.maintain([orders]))["bronze/orders"]
    assert told["floe/maintenance"] == "done"
    assert told["floe/files_not_removed"] > 10


def by_hand(week: Week) -> None:
    maintenance = Maintenance(week.house.lake)
    outcomes = {one.table: one for one in maintenance.run(maintenance.tables())}
    assert outcomes[OUTER].not_removed
    assert all(one.files_removed == 0 for table, one in outcomes.items() if table in (OUTER, AWAY, BORROWER, COPY))


def test_after_days_of_maintenance_the_planted_files_are_the_same_byte_for_byte(week: Week) -> None:
    week.fill()
    week.plant()
    assert len(week.planted) > 100
    ways = [by_command, by_hand, by_dagster, by_hand]
    for number, maintain in enumerate(ways):
        orphans = week.age(number)
        passing = name(f"bronze.passing{number}")
        week.tables.write_data(passing, rows(1), mode="append")
        assert week.tables.drop_table(passing, purge=True) == ()
        maintain(week)
        assert [path for path in orphans if path.exists()] == []
        assert len(week.tables.list_snapshots(ORDERS)) == 1
        assert {path: _content(path) for path in week.planted} == week.planted

    assert sorted(week.tables.scan(BORROWER).to_arrow()["id"].to_pylist()) == [0, 1]
    assert sorted(week.tables.scan(COPY).to_arrow()["id"].to_pylist()) == [0, 1]
    assert week.tables.drop_table(AWAY, purge=True)
    week.tables.drop_table(INNER)
    kept = {one.path for table in (ORDERS, CUSTOMERS, OUTER) for one in week.tables.drop_table(table, purge=True)}
    assert {path: _content(path) for path in week.planted} == week.planted
    assert sorted(week.tables.scan(BORROWER).to_arrow()["id"].to_pylist()) == [0, 1]
    assert ids_in(week.root, "other", "bronze.theirs") == [1, 2, 3]
    # What is left of the orders is what was planted, and the checksums that Hadoop keeps beside local files.
    found = (path for path in (week.warehouse / "bronze" / "orders").rglob("*") if path.is_file())
    left = {path for path in found if path.suffix != ".crc"}
    assert left - week.planted.keys() - {Path(path.removeprefix("file://")) for path in kept} == set()
    assert ORPHAN not in {path.name for path in left}
