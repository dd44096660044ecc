"""The bounds of the data model, at the edges and one step beyond."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from floe_core import models
from floe_core.config import spec
from floe_core.config.spec import PolarisCatalogConfig, RestCatalogConfig, RetryConfig
from floe_core.models import (
    MaterializationMetadata,
    NamespaceInfo,
    PartitionTransform,
    PartitionTransformType,
    SnapshotInfo,
    StorageErrorDetail,
    WriteMode,
)

NEEDED: dict[str, dict[str, Any]] = {
    "CatalogConfig": {"type": "x"},
    "ClientCredentials": {"client_id": "a", "client_secret": "${env:S}"},
    "FloeSpec": {"name": "shop"},
    "MaterializationMetadata": {"table": "a.b", "num_rows": 0, "snapshot_id": None, "write_mode": "append"},
    "NamespaceInfo": {"name": "a"},
    "PartitionTransform": {"source_column": "a", "transform_type": "day"},
    "PluginSettings": {"type": "x"},
    "PolarisCatalogConfig": {"uri": "https://u", "warehouse": "w", "token": "${env:T}"},
    "RestCatalogConfig": {"uri": "https://u", "warehouse": "w", "token": "${env:T}"},
    "S3StorageConfig": {"bucket": "b"},
    "SnapshotInfo": {"snapshot_id": 1, "timestamp_ms": 0, "operation": "append"},
    "SortField": {"column": "a"},
    "StorageConfig": {"type": "x"},
    "StorageErrorDetail": {"error_type": "a", "operation": "b", "message": "c"},
}
MODELS = [
    found
    for module in (spec, models)
    for name in module.__all__
    if isinstance(found := getattr(module, name), type) and issubclass(found, BaseModel)
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_models_are_frozen_and_know_all_their_keys(model: type[BaseModel]) -> None:
    needed = NEEDED.get(model.__name__, {})
    one = model(**needed)
    field = next(iter(model.model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(one, field, getattr(one, field))
    if model is spec.PluginSettings:
        assert model(**needed, galaxies=1).model_dump() == {"type": "x", "galaxies": 1}
        return
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        model(**needed, galaxies=1)


@pytest.mark.parametrize(
    ("field", "default", "accepted", "refused"),
    [
        ("max_attempts", 3, [1, 10], [0, 11, 2.5]),
        ("initial_wait_seconds", 1.0, [0.1, 30.0], [0.09, 30.01, math.nan, math.inf]),
        ("max_wait_seconds", 30.0, [1.0, 300.0], [0.99, 300.01, math.nan, math.inf]),
        ("jitter_seconds", 1.0, [0.0, 10.0], [-0.01, 10.01, math.nan]),
        ("circuit_breaker_threshold", 5, [0, 1000], [-1, 0.5]),
    ],
)
def test_the_bounds_of_retries(field: str, default: float, accepted: list[float], refused: list[float]) -> None:
    assert getattr(RetryConfig(), field) == default
    for value in accepted:
        assert getattr(RetryConfig.model_validate({field: value}), field) == value
    for value in refused:
        with pytest.raises(ValidationError, match=field):
            RetryConfig.model_validate({field: value})


@pytest.mark.parametrize("model", [PolarisCatalogConfig, RestCatalogConfig])
def test_a_catalog_needs_a_way_to_authenticate(model: type[RestCatalogConfig]) -> None:
    base = {"uri": "https://u", "warehouse": "w"}
    with pytest.raises(ValidationError, match="no way to authenticate"):
        model.model_validate(base)
    with pytest.raises(ValidationError, match="client_secret"):
        model.model_validate({**base, "credentials": {"client_id": "a"}})
    with pytest.raises(ValidationError, match="contradicts"):
        model.model_validate({**base, "token": "${env:T}", "auth": "none"})
    model.model_validate({**base, "token": "${env:T}"})
    model.model_validate({**base, "credentials": {"client_id": "a", "client_secret": "${env:S}"}})
    model.model_validate({**base, "auth": "none"})


@pytest.mark.parametrize("missing", ["uri", "warehouse"])
def test_a_catalog_needs_its_address_and_its_warehouse(missing: str) -> None:
    given_keys = {"uri": "https://u", "warehouse": "w", "token": "${env:T}"}
    del given_keys[missing]
    with pytest.raises(ValidationError, match=missing):
        PolarisCatalogConfig.model_validate(given_keys)


def test_the_defaults_of_a_polaris_catalog() -> None:
    catalog = PolarisCatalogConfig.model_validate({"uri": "https://u", "warehouse": "w", "token": "${env:T}"})
    assert catalog.scope == "PRINCIPAL_ROLE:ALL"
    assert catalog.token_refresh_enabled is True
    assert catalog.access_delegation == "vended-credentials"
    assert catalog.retry == RetryConfig()


def test_the_names_of_modes_and_transforms() -> None:
    assert [mode.value for mode in WriteMode] == ["append", "overwrite", "upsert"]
    assert {kind.value for kind in PartitionTransformType} == {
        "identity", "year", "month", "day", "hour", "bucket", "truncate",
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "argument"), [("bucket", "num_buckets"), ("truncate", "width")])
def test_a_transform_with_an_argument_needs_it_and_at_least_one(kind: str, argument: str) -> None:
    base = {"source_column": "a", "transform_type": kind}
    with pytest.raises(ValidationError, match=f"a {kind} transform needs {argument}"):
        PartitionTransform.model_validate(base)
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        PartitionTransform.model_validate({**base, argument: 0})
    assert getattr(PartitionTransform.model_validate({**base, argument: 1}), argument) == 1


@pytest.mark.parametrize("kind", ["identity", "year", "month", "day", "hour"])
def test_other_transforms_need_no_argument_and_no_name(kind: str) -> None:
    transform = PartitionTransform(source_column="a", transform_type=PartitionTransformType(kind))
    assert (transform.num_buckets, transform.width, transform.name) == (None, None, None)


def test_an_unknown_transform_is_refused() -> None:
    with pytest.raises(ValidationError, match="transform_type"):
        PartitionTransform.model_validate({"source_column": "a", "transform_type": "week"})


def test_a_namespace_lists_its_tables_by_name() -> None:
    assert NamespaceInfo(name="a") == NamespaceInfo(name="a", properties={}, tables=())
    assert NamespaceInfo.model_validate({"name": "a", "tables": ["x", "y"]}).tables == ("x", "y")


def test_the_time_of_a_snapshot_is_utc() -> None:
    snapshot = SnapshotInfo(snapshot_id=1, timestamp_ms=1_700_000_000_123, operation="append")
    assert snapshot.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=timezone.utc)
    assert snapshot.timestamp.tzinfo is timezone.utc
    assert snapshot.parent_snapshot_id is None


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 4_102_444_800_000))
def test_no_millisecond_of_a_snapshot_is_lost(timestamp_ms: int) -> None:
    snapshot = SnapshotInfo(snapshot_id=1, timestamp_ms=timestamp_ms, operation="append")
    since = snapshot.timestamp - datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert since.total_seconds() * 1000 == pytest.approx(timestamp_ms, abs=0.01)
    assert snapshot.timestamp.microsecond == timestamp_ms % 1000 * 1000


def test_a_count_missing_from_a_summary_is_zero() -> None:
    snapshot = SnapshotInfo(snapshot_id=1, timestamp_ms=0, operation="append", summary={"added-records": "7"})
    assert (snapshot.count("added-records"), snapshot.count("deleted-records")) == (7, 0)


def test_rows_and_retries_cannot_be_negative() -> None:
    written = NEEDED["MaterializationMetadata"]
    with pytest.raises(ValidationError, match="num_rows"):
        MaterializationMetadata.model_validate({**written, "num_rows": -1})
    with pytest.raises(ValidationError, match="retry_count"):
        StorageErrorDetail.model_validate({**NEEDED["StorageErrorDetail"], "retry_count": -1})


def test_what_a_materialization_says_by_default() -> None:
    written = MaterializationMetadata.model_validate(NEEDED["MaterializationMetadata"])
    assert (written.partition_key, written.schema_evolved, written.snapshot_id) == (None, False, None)
    with pytest.raises(ValidationError, match="snapshot_id"):
        MaterializationMetadata.model_validate({"table": "a.b", "num_rows": 0, "write_mode": "append"})


def test_what_an_error_detail_says_by_default() -> None:
    detail = StorageErrorDetail(error_type="a", operation="b", message="c")
    assert (detail.table, detail.namespace, detail.retryable, detail.retry_count) == (None, None, False, 0)
