"""Settings that servers and tables send are data: PyIceberg imports nothing and asks no other host because of them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import open_manager
from tests.servers.hostile import ROWS, HostileCatalog, hostile_catalog, served_table
from tests.servers.scripted import scripted_server

from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError, FloeError, FloeStorageError
from floe_iceberg import IcebergTableManager
from floe_iceberg.catalogs.foreign_tables import refuse_for_spark

CALLED: list[tuple[Any, ...]] = []
OWN = "storage: {type: s3, bucket: lake, endpoint: 'https://own.example:9000', region: eu-north-1}\n"


def planted(*arguments: Any) -> None:
    """What a setting names instead of a class; being called is the attack."""
    CALLED.append(arguments)


IMPL = f"{__name__}.planted"
PYTHON_CODE = {
    "py-io-impl": IMPL,
    "s3.retry-strategy-impl": IMPL,
    "py-catalog-impl": IMPL,
    "py-location-provider.impl": IMPL,
}


@pytest.fixture(autouse=True)
def _nothing_is_called(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    CALLED.clear()
    monkeypatch.setitem(sys.modules, IMPL.rpartition(".")[0], sys.modules[__name__])
    yield
    assert CALLED == []


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    return served_table(tmp_path_factory.mktemp("served"))


@pytest.fixture
def hostile(served: tuple[str, dict[str, Any]]) -> Iterator[HostileCatalog]:
    with hostile_catalog(served) as running:
        yield running


Open = Callable[..., IcebergTableManager]


@pytest.fixture
def opened(hostile: HostileCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """The manager of a project on the hostile server."""
    monkeypatch.setenv("FLOE_TEST_SECRET", "own-secret")
    managers: list[IcebergTableManager] = []

    def open_project(catalog: str = "", storage: str = OWN) -> IcebergTableManager:
        root = tmp_path / f"project{len(managers)}"
        root.mkdir()
        text = (
            f"name: tests\ncatalog:\n  type: rest\n  uri: {hostile.uri}\n  warehouse: lake\n"
            '  credentials: {client_id: floe, client_secret: "${env:FLOE_TEST_SECRET}"}\n'
            f"  retry: {{initial_wait_seconds: 0.1, max_wait_seconds: 1, jitter_seconds: 0}}\n{catalog}{storage}"
        )
        (root / "floe.yaml").write_text(text, encoding="utf-8")
        managers.append(IcebergTableManager.open(compile_project(root).artifacts))
        return managers[-1]

    yield open_project
    for manager in managers:
        manager.close()


def plant(hostile: HostileCatalog, where: str, settings: dict[str, Any]) -> None:
    if where == "credentials":
        hostile.credentials = [{"prefix": "file:", "config": settings}]
    else:
        setattr(hostile, where, settings)


SENDERS = ("defaults", "overrides", "config", "credentials", "properties")


@pytest.mark.parametrize("where", SENDERS)
@pytest.mark.parametrize("key", PYTHON_CODE)
def test_no_setting_that_is_sent_makes_pyiceberg_import_or_call_anything(
    hostile: HostileCatalog, opened: Open, where: str, key: str
) -> None:
    plant(hostile, where, {key: PYTHON_CODE[key]})
    manager = opened()
    assert manager.list_tables("ns")
    assert manager.scan("ns.t").to_arrow() == ROWS


@pytest.mark.parametrize("where", ["defaults", "overrides"])
@pytest.mark.parametrize(
    "settings",
    [
        {"auth": {"type": "custom", "impl": IMPL, "custom": {}}},
        {"rest.sigv4-enabled": "true"},
        {"ssl": {"client": {"cert": "/etc/hostname"}, "cabundle": "/etc/hostname"}},
        {"credential": "other:secret", "token": "other-token"},
        {"snapshot-loading-mode": "refs"},
        {"header.Authorization": "Bearer other", "header.X-Planted": "yes"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_a_server_does_not_change_how_it_is_asked(
    hostile: HostileCatalog, opened: Open, where: str, settings: dict[str, Any]
) -> None:
    plant(hostile, where, settings)
    assert opened().scan("ns.t").to_arrow() == ROWS
    asked = [one for one in hostile.server.requests if "/namespaces" in one.path]
    assert asked
    assert all("x-planted" not in one.headers for one in asked)
    assert all("snapshots=refs" not in one.path for one in asked)
    assert len({one.headers["authorization"] for one in asked}) == 1


@pytest.mark.parametrize("where", ["defaults", "overrides"])
@pytest.mark.parametrize("key", ["uri", "oauth2-server-uri"])
def test_a_server_does_not_move_its_callers_to_another_host(
    hostile: HostileCatalog, opened: Open, where: str, key: str
) -> None:
    with scripted_server() as elsewhere:
        plant(hostile, where, {key: elsewhere.uri})
        assert opened().scan("ns.t").to_arrow() == ROWS
        assert elsewhere.requests == []


def test_a_server_may_move_its_callers_to_another_path_of_its_own(hostile: HostileCatalog, opened: Open) -> None:
    answers = hostile.server.answers
    answers |= {route.replace("/v1/lake", "/deep/v1/lake"): one for route, one in answers.items()}
    plant(hostile, "overrides", {"uri": f"{hostile.uri}/deep"})
    assert opened().scan("ns.t").to_arrow() == ROWS
    assert "GET /deep/v1/lake/namespaces/ns/tables/t" in hostile.server.routes


DELEGATION = "vended-credentials"
STORE = {
    "s3.endpoint": "https://evil.example:9000",
    "s3.region": "evil-1",
    "client.region": "evil-1",
    "s3.proxy-uri": "http://evil.example:3128",
    "s3.access-key-id": "planted-key",
    "s3.secret-access-key": "planted-secret",
    "s3.session-token": "planted-token",
    "s3.role-arn": "arn:aws:iam::1:role/evil",
    "s3.anonymous": "true",
    "s3.connect-timeout": "1",
}


def files(manager: IcebergTableManager) -> dict[str, Any]:
    return dict(manager.load_table("ns.t").io.properties)


def test_table_properties_say_nothing_about_the_store(hostile: HostileCatalog, opened: Open) -> None:
    clean = files(opened())
    hostile.properties = STORE
    assert files(opened()) == clean
    assert clean["s3.endpoint"] == "https://own.example:9000"


@pytest.mark.parametrize("where", ["defaults", "overrides", "config", "credentials"])
def test_a_server_says_nothing_about_a_store_that_it_does_not_vend_credentials_for(
    hostile: HostileCatalog, opened: Open, where: str
) -> None:
    clean = files(opened())
    plant(hostile, where, {key: value for key, value in STORE.items() if key != "s3.secret-access-key"})
    assert files(opened()) == clean


@pytest.mark.parametrize("where", ["config", "credentials"])
def test_credentials_that_were_not_asked_for_are_not_used(hostile: HostileCatalog, opened: Open, where: str) -> None:
    without = "  access_delegation: none\n"
    clean = files(opened(without))
    plant(hostile, where, STORE)
    assert files(opened(without)) == clean


@pytest.mark.parametrize("where", ["config", "credentials"])
def test_vended_credentials_bring_the_settings_of_their_store_and_no_others(
    hostile: HostileCatalog, opened: Open, where: str
) -> None:
    plant(hostile, where, STORE)
    used = files(opened())
    assert used["s3.endpoint"] == "https://evil.example:9000"  # its credentials, its store
    assert used["s3.access-key-id"] == "planted-key"
    assert not {"s3.proxy-uri", "s3.role-arn", "s3.anonymous"} & used.keys()
    assert used["s3.connect-timeout"] != "1"


@pytest.mark.parametrize("where", ["config", "credentials"])
def test_vended_credentials_are_not_sent_over_plain_http(hostile: HostileCatalog, opened: Open, where: str) -> None:
    plant(hostile, where, {**STORE, "s3.endpoint": "http://store.example:9000"})
    with pytest.raises(ConfigurationError, match=r"vends credentials for http://store\.example:9000.*allow_insecure"):
        files(opened())
    assert files(opened("  allow_insecure: true\n"))["s3.endpoint"] == "http://store.example:9000"


def test_credentials_of_one_store_do_not_move_another(hostile: HostileCatalog, opened: Open) -> None:
    hostile.config = {"gcs.oauth2.token": "vended", "s3.endpoint": "https://evil.example:9000"}
    assert files(opened())["s3.endpoint"] == "https://own.example:9000"


VENDED = {key: value for key, value in STORE.items() if key.startswith(("s3.access", "s3.secret", "s3.session"))}


@pytest.mark.parametrize("where", ["defaults", "overrides"])
def test_keys_that_come_with_the_catalog_do_not_move_the_projects_store(
    hostile: HostileCatalog, opened: Open, where: str
) -> None:
    """Java would send the project's keys, which win over defaults, to the endpoint that the project does not name."""
    plant(hostile, where, {**VENDED, "s3.endpoint": "https://evil.example:9000"})
    catalog: Any = opened().catalog_plugin
    with pytest.raises(FloeStorageError, match=r"s3\.endpoint.*set storage\.endpoint"):
        catalog.check_for_spark()
    plant(hostile, where, {"s3.endpoint": "https://own.example:9000", "header.X-Iceberg-Access-Delegation": DELEGATION})
    catalog = opened().catalog_plugin
    catalog.check_for_spark()


ENDPOINT = {"s3.endpoint": "https://evil.example:9000"}


@pytest.mark.parametrize(
    "prefix",
    [
        "s3://nowhere/",
        "s3://",  # files that are named by s3a:// lie outside
        "file:",
        "",
        "{location}",  # manifests and data files may lie anywhere
    ],
)
def test_keys_for_some_files_do_not_move_the_store_of_all(hostile: HostileCatalog, opened: Open, prefix: str) -> None:
    """For files outside of the prefix, Java would send the project's keys to the endpoint."""
    location = opened().load_table("ns.t").location()
    hostile.config = ENDPOINT
    hostile.credentials = [{"prefix": prefix.format(location=location), "config": VENDED}]
    with pytest.raises(FloeStorageError, match=r"not handed to Spark.*s3\.endpoint"):
        refuse_for_spark(opened().load_table("ns.t"))


@pytest.mark.parametrize(
    ("config", "prefix", "beside"),
    [
        ({**VENDED, **ENDPOINT}, "{location}", {**VENDED, **ENDPOINT}),  # as SeaweedFS sends them
        ({**VENDED, **ENDPOINT}, "{location}", VENDED),  # as Polaris does
        (ENDPOINT, "s3", VENDED),
        ({}, "s3://bucket/t", {**VENDED, **ENDPOINT}),
    ],
)
def test_keys_with_an_endpoint_for_the_same_files_are_taken(
    hostile: HostileCatalog, opened: Open, config: dict[str, str], prefix: str, beside: dict[str, str]
) -> None:
    location = opened().load_table("ns.t").location()
    hostile.config = config
    hostile.credentials = [{"prefix": prefix.format(location=location), "config": beside}]
    refuse_for_spark(opened().load_table("ns.t"))


def test_a_prefix_that_is_no_path_is_refused_and_not_left_out(hostile: HostileCatalog, opened: Open) -> None:
    hostile.overrides = {"prefix": "../admin?x="}
    with pytest.raises(FloeStorageError, match="path prefix"):
        opened().list_namespaces()


def test_a_table_does_not_bring_a_token_of_its_own(hostile: HostileCatalog, opened: Open) -> None:
    hostile.config = {"token": "planted-token"}
    assert "token" not in opened().load_table("ns.t").config


def test_a_setting_that_is_dropped_is_named_once_and_never_shown(
    hostile: HostileCatalog, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    hostile.config = {"py-io-impl": "secret.value", "s3.proxy-uri": "http://secret.value"}
    hostile.overrides = {"auth": {"type": "secret.value"}, "default-base-location": "s3://somewhere"}
    with caplog.at_level(logging.INFO):
        manager = opened()
        for _ in range(3):
            manager.load_table("ns.t")
    warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    for key in ("py-io-impl", "s3.proxy-uri", "auth"):
        assert sum(key in line for line in warnings) == 1, warnings
    assert "secret.value" not in caplog.text
    assert all("default-base-location" not in line for line in warnings)


@pytest.mark.parametrize("scheme", ["hdfs", "viewfs", "ftp"])
def test_the_address_of_a_file_loads_no_library(hostile: HostileCatalog, opened: Open, scheme: str) -> None:
    text = json.dumps(hostile.metadata).replace("file://", f"{scheme}://planted")
    hostile.metadata = json.loads(text)
    with pytest.raises(FloeError, match=f"an address with {scheme}://, which is not supported"):
        opened().scan("ns.t").to_arrow()


# Tables that name a location provider --------------------------------------------------------------------------------


@pytest.fixture
def tampered(tmp_path: Path) -> Iterator[IcebergTableManager]:
    """An embedded lake with a table in which another writer left a location provider for PyIceberg."""
    manager = open_manager(tmp_path)
    manager.write_data("ns.t", ROWS, "append")
    file = Path(manager.load_table("ns.t").metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text(encoding="utf-8"))
    metadata["properties"]["write.py-location-provider.impl"] = IMPL
    metadata["properties"]["py-io-impl"] = IMPL
    file.write_text(json.dumps(metadata), encoding="utf-8")
    yield manager
    manager.close()


REFUSED = r"'?ns\.t'?.*write\.py-location-provider\.impl.*ALTER TABLE .* UNSET TBLPROPERTIES"


def test_a_table_with_a_location_provider_of_its_own_is_read(tampered: IcebergTableManager) -> None:
    assert tampered.scan("ns.t").to_arrow() == ROWS


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_table_with_a_location_provider_of_its_own_is_not_written(tampered: IcebergTableManager, mode: str) -> None:
    with pytest.raises(FloeError, match=REFUSED):
        tampered.write_data("ns.t", ROWS, mode)
    assert len(tampered.list_snapshots("ns.t")) == 1


def test_a_table_with_a_location_provider_of_its_own_takes_no_commit(tampered: IcebergTableManager) -> None:
    with pytest.raises(FloeError, match=r"write\.py-location-provider\.impl"):
        tampered.create_tag("ns.t", "mine")


def test_the_property_itself_can_be_removed_by_pyiceberg(tampered: IcebergTableManager) -> None:
    with tampered.load_table("ns.t").transaction() as transaction:
        transaction.remove_properties("write.py-location-provider.impl")
    tampered.write_data("ns.t", ROWS, "append")
    assert tampered.scan("ns.t").to_arrow().num_rows == 6


def test_a_new_table_with_a_location_provider_is_refused(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    for create in (
        lambda given: manager.create_table("ns.new", ROWS.schema, properties=given),
        lambda given: manager.write_data("ns.new", ROWS, "append", properties=given),
    ):
        with pytest.raises(ConfigurationError, match=r"write\.py-location-provider\.impl"):
            create({"write.py-location-provider.impl": IMPL})
    assert not manager.table_exists("ns.new")
    manager.close()


def test_an_arrow_write_on_a_server_refuses_the_location_provider_of_its_table(
    hostile: HostileCatalog, opened: Open
) -> None:
    hostile.properties = {"write.py-location-provider.impl": IMPL}
    with pytest.raises(FloeError, match=REFUSED):
        opened().write_data("ns.t", pa.table({"n": pa.array([9], pa.int64())}), "append")
    assert not [one for one in hostile.server.requests if one.route == "POST /v1/lake/namespaces/ns/tables/t"]
