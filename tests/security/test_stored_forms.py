"""Every form of a secret is masked in everything that Dagster stores, and what is read back from there is kept."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance, MetadataValue, TableColumnDep, TableColumnLineage
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.events import DagsterEvent, DagsterEventType, EngineEventData, StepMaterializationData
from dagster._core.events.log import EventLogEntry
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.scheduler.instigation import TickData, TickStatus
from dagster._daemon.types import DaemonHeartbeat
from dagster._utils.error import serializable_error_info_from_exc_info
from dagster_shared.error import SerializableErrorInfo

from floe_core.compiler import compile_project
from floe_core.security import redaction
from floe_core.security.redaction import protect, redact
from floe_dagster.differences import _recorded
from floe_runtime.dagster_storage import SETTINGS, ProjectStorage, protect_project
from floe_runtime.runs.runner import materialized_of
from floe_runtime.stored_events import redacted

SECRET = "planted-\"s3c\\ret'x"
QUOTED = "planted's3cret"
WRITTEN: dict[str, Any] = {
    "dagster/table_name": "demo.orders",
    "floe/snapshot_id": MetadataValue.text("7123456789"),
    "floe/table_uuid": "demo-1234",
    "floe/branch": "demo",
    "floe/write_id": "floe-1234",
    "floe/partitions": "1234",
    "floe/rows_added": 7,
}


@pytest.fixture(autouse=True)
def nothing_is_protected_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_protected", set())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop") / ".floe" / "dagster"
    folder.mkdir(parents=True)
    (folder / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\n{SETTINGS}")
    return folder


@pytest.fixture(scope="module")
def instance(home: Path) -> Iterator[DagsterInstance]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(home))
        with DagsterInstance.from_config(str(home)) as opened:
            yield opened


def log_line(text: str) -> EventLogEntry:
    return EventLogEntry(error_info=None, level=20, user_message=text, run_id="run", timestamp=1.0)  # type: ignore[no-untyped-call]


def an_error(secret: str = SECRET) -> SerializableErrorInfo:
    try:
        raise ValueError({"password": secret})
    except ValueError:
        return serializable_error_info_from_exc_info(sys.exc_info())


def rows_of(home: Path) -> str:
    """Every cell of every database."""
    text = ""
    for path in home.rglob("*.db"):
        with sqlite3.connect(path) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in tables:
                text += "".join(str(cell) for row in connection.execute(f'SELECT * FROM "{table}"') for cell in row)
    return text


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        (SECRET, SECRET),
        (SECRET, f"{SECRET!r}"),
        (SECRET, json.dumps({"password": SECRET})),
        (SECRET, str({"password": SECRET})),
        (QUOTED, repr(f'say "{QUOTED}"')),
        ('pl\u00e4nted-"s3cret', json.dumps('pl\u00e4nted-"s3cret', ensure_ascii=False)),
    ],
)
def test_every_form_of_a_secret_is_masked_in_what_is_stored(secret: str, text: str) -> None:
    protect(secret)
    kept = redacted(log_line(text)).user_message
    assert "***" in kept
    assert "nted" not in kept


def test_errors_and_all_of_metadata_are_stored_without_it(instance: DagsterInstance, home: Path) -> None:
    protect(SECRET)
    nested = MetadataValue.json({f"key {SECRET}": [{"deep": SECRET}]})
    metadata: dict[str, Any] = {"text": f"{SECRET!r}", "json": nested, SECRET: 7}
    instance.report_runless_asset_event(AssetMaterialization("orders", metadata=metadata))
    failed = DagsterEvent(
        event_type_value=DagsterEventType.ENGINE_EVENT.value,
        job_name="job",
        event_specific_data=EngineEventData(error=an_error()),
    )
    instance.event_log_storage.store_event(log_line("failed")._replace(dagster_event=failed))
    text = rows_of(home)
    assert "planted" not in text
    assert "key ***" in text


def compiled(root: Path, environment: str | None = None) -> None:
    (root / "floe.yaml").write_text(
        'name: shop\nspark: {conf: {spark.hadoop.fs.s3a.secret.key: "${env:PLANTED}"}}\nenvironments: {prod: {}}\n'
    )
    compile_project(root, environment).artifacts.write()


def test_a_process_that_loads_no_definitions_masks_the_secrets_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's daemon and web server open the storage, and nothing else of the project."""
    monkeypatch.setenv("PLANTED", SECRET)
    compiled(tmp_path)
    storage = ProjectStorage.from_local(str(tmp_path / ".floe" / "dagster"))
    storage.event_log_storage.store_event(log_line(f"cannot open {SECRET}"))
    assert [one.user_message for one in storage.event_log_storage.get_logs_for_run("run")] == ["cannot open ***"]


@pytest.mark.parametrize(
    ("environment", "home"),
    [(None, "dagster"), (None, "dagster-0123abcd"), ("prod", "dagster.prod"), ("prod", "dagster.prod-0123abcd")],
)
def test_each_home_has_the_secrets_of_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: str | None, home: str
) -> None:
    monkeypatch.setenv("PLANTED", SECRET)
    compiled(tmp_path, environment)
    protect_project(tmp_path / ".floe" / home)
    assert redact(SECRET) == "***"


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"[]", b'{"contract": 99}', b'{"contract": 1}'])
def test_a_home_without_a_usable_contract_protects_nothing(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / ".floe").mkdir()
    if content is not None:
        (tmp_path / ".floe" / "compiled.json").write_bytes(content)
    protect_project(tmp_path / ".floe" / "dagster")
    assert not redaction._protected


def tick_data(status: TickStatus, **fields: Any) -> TickData:
    at = 1.0 if status is TickStatus.STARTED else 2.0
    return TickData("origin", "sensor", InstigatorType.SENSOR, status, at, selector_id="it", **fields)


def test_ticks_are_stored_without_it_and_keep_their_cursor(instance: DagsterInstance, home: Path) -> None:
    protect(SECRET)
    protect("demo")
    tick = instance.create_tick(tick_data(TickStatus.STARTED, run_keys=["demo"]))
    instance.update_tick(tick.with_status(TickStatus.FAILURE, error=an_error()).with_cursor("demo"))
    instance.create_tick(tick_data(TickStatus.SKIPPED, skip_reason=f"no {SECRET!r}"))
    assert "planted" not in rows_of(home / "schedules")
    newest, oldest = instance.get_ticks("origin", "it")
    assert newest.tick_data.skip_reason == "no '***'"
    assert oldest.status == TickStatus.FAILURE
    assert oldest.error is not None
    assert "ValueError" in oldest.error.message
    assert (oldest.tick_data.cursor, list(oldest.tick_data.run_keys)) == ("demo", ["demo"])


def test_backfills_and_heartbeats_are_stored_without_it(instance: DagsterInstance, home: Path) -> None:
    protect(SECRET)
    protect("demo")
    backfill = PartitionBackfill(
        backfill_id="demo",
        status=BulkActionStatus.REQUESTED,
        from_failure=False,
        tags={"demo": "demo"},
        backfill_timestamp=1.0,
        asset_selection=[AssetKey("demo")],
        title="demo",
        description=SECRET,
        run_config={"ops": {"message": "demo"}},
    )
    instance.add_backfill(backfill)
    instance.update_backfill(backfill._replace(status=BulkActionStatus.FAILED, error=an_error()))
    instance.add_daemon_heartbeat(DaemonHeartbeat(1.0, "SENSOR", "id", [an_error()]))
    assert "planted" not in rows_of(home / "history")
    found = instance.get_backfill("demo")
    assert found is not None
    assert found.error is not None
    assert "ValueError" in found.error.message
    assert (found.title, found.description) == ("demo", "***")
    assert found.run_config == {"ops": {"message": "demo"}}
    assert found.asset_selection == [AssetKey("demo")]
    assert found.tags == {"demo": "demo"}
    (error,) = instance.get_daemon_heartbeats()["SENSOR"].errors or ()
    assert "***" in error.message


@pytest.mark.parametrize("word", ["demo", "1234", "floe", "table_uuid", "rows", "dagster", "Text", "ValueError"])
def test_what_floe_reads_back_is_kept_whatever_the_secret(word: str) -> None:
    protect(word)
    asset = AssetKey(["demo", "1234"])
    lineage = TableColumnLineage({"id": [TableColumnDep(asset, "id")]})
    metadata: dict[str, Any] = {**WRITTEN, "dagster/column_lineage": lineage, "about": f"the {word}"}
    written = AssetMaterialization(asset, metadata=metadata)
    event = DagsterEvent(
        event_type_value=DagsterEventType.ASSET_MATERIALIZATION.value,
        job_name="job",
        event_specific_data=StepMaterializationData(written),
    )
    stored = redacted(log_line("")._replace(dagster_event=event, error_info=an_error("none")))
    assert stored.asset_materialization is not None
    assert stored.asset_materialization.asset_key == asset
    assert _recorded(stored.asset_materialization) == _recorded(written)
    before, after = values_of(written), values_of(stored.asset_materialization)
    assert materialized_of("orders", after) == materialized_of("orders", before)
    assert after["dagster/column_lineage"].deps_by_column["id"][0].asset_key == asset
    assert after["about"] == "the ***"
    assert stored.error_info is not None
    assert stored.error_info.cls_name == "ValueError"


def values_of(written: AssetMaterialization) -> dict[str, Any]:
    return {key: one.value for key, one in written.metadata.items()}
