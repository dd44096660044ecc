"""Explicit schema changes and drift, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_core.errors import SchemaEvolutionError
from floe_core.identifiers import TableIdentifier
from floe_core.models import PartitionTransform, PartitionTransformType, SchemaDrift
from floe_core.plugins.ports import DriftDetectorProtocol
from floe_iceberg import IcebergTableManager
from floe_iceberg.schema.changes import (
    AddColumn,
    ColumnChange,
    DocumentColumn,
    DropColumn,
    MakeOptional,
    MakeRequired,
    MoveColumn,
    RenameColumn,
    WidenColumn,
)
from floe_iceberg.schema.drift import DriftDetector

T = TableIdentifier.from_string("bronze.orders")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("place", pa.struct([("city", pa.string())])),
    ]
)


@pytest.fixture
def manager(tmp_path: Path) -> IcebergTableManager:
    opened = open_manager(tmp_path)
    by_day = PartitionTransform(source_column="day", transform_type=PartitionTransformType.IDENTITY)
    opened.create_table(T, SCHEMA, partition_by=[by_day])
    return opened


def test_safe_changes_are_one_commit_and_keep_the_data(manager: IcebergTableManager) -> None:
    row = {"id": [1], "name": ["a"], "day": pa.array([None], pa.date32()), "place": [{"city": "x"}]}
    manager.load_table(T).append(pa.table(row, SCHEMA))
    before = len(manager.load_table(T).metadata.schemas)
    manager.evolve_schema(
        T,
        AddColumn("phone", pa.string(), doc="how to reach them"),
        AddColumn("place.street", pa.string()),
        WidenColumn("id", pa.int64()),
        RenameColumn("name", "full_name"),
        DocumentColumn("day", "when it was ordered"),
        MakeOptional("id"),
        MoveColumn("phone", after="id"),
        MoveColumn("day"),
    )
    table = manager.load_table(T)
    assert len(table.metadata.schemas) == before + 1
    assert [field.name for field in table.schema().fields] == ["day", "id", "phone", "full_name", "place"]
    assert (table.schema().find_field("phone").doc, table.schema().find_field("day").doc) == (
        "how to reach them",
        "when it was ordered",
    )
    assert str(table.schema().find_field("id").field_type) == "long"
    assert not table.schema().find_field("id").required
    assert table.scan().to_arrow().to_pylist() == [
        {"day": None, "id": 1, "phone": None, "full_name": "a", "place": {"city": "x", "street": None}}
    ]


@pytest.mark.parametrize("change", [DropColumn("name"), MakeRequired("name")])
def test_a_breaking_change_needs_consent(manager: IcebergTableManager, change: ColumnChange) -> None:
    with pytest.raises(SchemaEvolutionError, match="allow_incompatible_changes=True"):
        manager.evolve_schema(T, change)
    manager.evolve_schema(T, change, allow_incompatible_changes=True)
    schema = manager.load_table(T).schema()
    assert "name" not in schema.column_names or schema.find_field("name").required


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (AddColumn("name", pa.string()), "'name'"),
        (AddColumn("nothing.street", pa.string()), "'nothing.street'"),
        (WidenColumn("id", pa.string()), "'id'"),
        (WidenColumn("name", pa.list_(pa.string())), "not a primitive type"),
        (RenameColumn("nothing", "x"), "'nothing'"),
        (DocumentColumn("nothing", "x"), "'nothing'"),
        (MakeOptional("nothing"), "'nothing'"),
        (MoveColumn("id", after="nothing"), "'id'"),
    ],
)
def test_what_cannot_be_changed_is_refused_and_named(
    manager: IcebergTableManager, change: ColumnChange, reason: str
) -> None:
    with pytest.raises(SchemaEvolutionError, match=reason):
        manager.evolve_schema(T, AddColumn("extra", pa.int32()), change)
    assert len(manager.load_table(T).metadata.schemas) == 1


def test_the_column_a_table_is_partitioned_by_is_not_dropped(manager: IcebergTableManager) -> None:
    with pytest.raises(SchemaEvolutionError, match="partitioned or sorted by"):
        manager.evolve_schema(T, DropColumn("day"), allow_incompatible_changes=True)


def test_a_table_as_declared_has_not_drifted(manager: IcebergTableManager) -> None:
    detector = DriftDetector(manager)
    assert isinstance(detector, DriftDetectorProtocol)
    assert detector.detect(T, SCHEMA) == SchemaDrift()
    assert not detector.detect(T, SCHEMA)


def test_every_kind_of_drift_is_told(manager: IcebergTableManager) -> None:
    manager.evolve_schema(
        T, AddColumn("extra", pa.int32()), AddColumn("narrow", pa.int32()), WidenColumn("id", pa.int64())
    )
    declared = pa.schema(
        [
            pa.field("id", pa.int32()),
            pa.field("name", pa.int64()),
            pa.field("day", pa.date32()),
            pa.field("narrow", pa.int64()),
            pa.field("gone", pa.string()),
            pa.field("place", pa.struct([("city", pa.string()), ("zip", pa.string())])),
        ]
    )
    assert DriftDetector(manager).detect(T, declared) == SchemaDrift(
        added=("extra",),
        missing=("gone", "place.zip"),
        widened=("id: declared int, the table has long",),
        narrowed=("narrow: declared long, the table has int",),
        changed=("name: declared long, the table has string",),
        nullability=("id: declared optional, the table has it required",),
    )
