"""Spark is not given a server or a table whose settings would make Java load classes or ask other hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.catalogs import SideLake, side_lake
from tests.servers.hostile import ROWS, HostileCatalog, hostile_catalog, served_table
from tests.servers.scripted import as_json, scripted_server

from floe_core.errors import FloeError
from floe_core.identifiers import TableIdentifier
from floe_core.security.foreign_settings import OwnSettings, java_refusals, sift, table_refusals
from floe_iceberg import Lake

# Java says this name where it tries to load it.
NOWHERE = "planted.Nowhere"
OWN = OwnSettings("https://catalog.example/api", "https://idp.example/token", {"s3.endpoint": "http://own:9000"})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    return served_table(tmp_path_factory.mktemp("served"))


@pytest.fixture
def hostile(served: tuple[str, dict[str, Any]]) -> Iterator[HostileCatalog]:
    with hostile_catalog(served) as running:
        yield running


@pytest.fixture
def opened(
    lake: Lake, hostile: HostileCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], SideLake]]:
    """A lake on the hostile server, with a real Spark session of its own."""
    monkeypatch.setenv("FLOE_TEST_SECRET", "own-secret")
    lakes: list[SideLake] = []

    def open_lake() -> SideLake:
        settings = (
            f"catalog:\n  type: rest\n  uri: {hostile.uri}\n  warehouse: lake\n"
            '  credentials: {client_id: floe, client_secret: "${env:FLOE_TEST_SECRET}"}\n'
        )
        lakes.append(side_lake(lake, tmp_path / str(len(lakes)), settings))
        return lakes[-1]

    yield open_lake
    for one in lakes:
        one.close()


def asked_by_java(hostile: HostileCatalog) -> list[str]:
    """Floe says who asks in its own way; Java's client sends this header."""
    return [one.route for one in hostile.server.requests if "x-client-version" in one.headers and _is_java(one.headers)]


def _is_java(headers: dict[str, str]) -> bool:
    return "PyIceberg" not in headers["x-client-version"]


def test_spark_reads_from_a_server_that_sends_what_servers_send(
    hostile: HostileCatalog, opened: Callable[[], SideLake]
) -> None:
    hostile.defaults = {"polaris.config.drop-with-purge.enabled": "true", "default-base-location": "s3://b"}
    hostile.overrides = {"namespace-separator": "%1F", "py-io-impl": NOWHERE}
    hostile.config = {"s3.path-style-access": "true", "client.region": "us-east-1"}
    hostile.properties = {"owner": "me", "write.py-location-provider.impl": NOWHERE}
    assert opened().read("ns.t").count() == ROWS.num_rows
    assert asked_by_java(hostile)


@pytest.mark.parametrize(
    ("where", "settings"),
    [
        ("overrides", {"io-impl": NOWHERE}),
        ("defaults", {"metrics-reporter-impl": NOWHERE, "header.Authorization": "Bearer planted"}),
    ],
    ids=["io-impl", "metrics-reporter-impl"],
)
def test_spark_is_not_given_a_server_that_names_classes(
    hostile: HostileCatalog, opened: Callable[[], SideLake], where: str, settings: dict[str, str]
) -> None:
    setattr(hostile, where, settings)
    with pytest.raises(FloeError, match=rf"{sorted(settings)[0]}.*in /v1/config") as caught:
        opened().read("ns.t").collect()
    assert NOWHERE not in str(caught.value)
    assert asked_by_java(hostile) == []


def test_spark_does_not_send_credentials_where_a_server_points(
    hostile: HostileCatalog, opened: Callable[[], SideLake]
) -> None:
    with scripted_server() as elsewhere:
        # Tokens that end at once: Java asks for the next one where the server says.
        token = {"access_token": "t", "token_type": "bearer", "expires_in": 1}
        hostile.server.answers["POST /v1/oauth/tokens"] = as_json(token)
        hostile.overrides = {"oauth2-server-uri": f"{elsewhere.uri}/token", "uri": elsewhere.uri}
        with pytest.raises(FloeError, match=r"oauth2-server-uri, uri in /v1/config"):
            opened().read("ns.t").collect()
        assert elsewhere.requests == []


@pytest.mark.parametrize("act", ["read", "write", "compact"])
@pytest.mark.parametrize("where", ["config", "properties"])
def test_spark_is_not_given_a_table_that_names_classes(
    hostile: HostileCatalog, opened: Callable[[], SideLake], where: str, act: str
) -> None:
    key = "io-impl" if where == "config" else "write.location-provider.impl"
    setattr(hostile, where, {key: NOWHERE})
    lake = opened()
    frame = lake.spark.range(3).withColumnRenamed("id", "n")

    def attack() -> None:
        if act == "read":
            lake.read("ns.t").collect()
        elif act == "write":
            lake.write(frame, "ns.t", mode="append")
        else:
            lake.tables.compact_table("ns.t")

    with pytest.raises(FloeError, match=rf"'ns\.t' is not handed to Spark.*{key}") as caught:
        attack()
    assert NOWHERE not in str(caught.value)
    lake.step_aside()
    assert not [one for one in asked_by_java(hostile) if one.endswith("/tables/t")]
    assert lake.tables.scan("ns.t").to_arrow() == ROWS


def test_spark_does_not_write_an_embedded_table_that_names_a_class(lake: Lake, table: TableIdentifier) -> None:
    lake.tables.write_data(table, ROWS, "append")
    with lake.tables.load_table(table).transaction() as transaction:
        transaction.set_properties({"write.location-provider.impl": NOWHERE})
    with pytest.raises(FloeError, match=r"write\.location-provider\.impl.*UNSET TBLPROPERTIES"):
        lake.write(lake.spark.range(3).withColumnRenamed("id", "n"), table, mode="append")
    assert len(lake.tables.list_snapshots(table)) == 1


# The allow-list -------------------------------------------------------------------------------------------------------

REFUSED = {
    "io-impl": NOWHERE,
    "metrics-reporter-impl": NOWHERE,
    "client.factory": NOWHERE,
    "client.credentials-provider": NOWHERE,
    "s3.client-factory-impl": NOWHERE,
    "encryption.kms-impl": NOWHERE,
    "encryption.kms-type": "aws",
    "lock-impl": NOWHERE,
    "rest.auth.type": NOWHERE,
    "rest.auth.sigv4.delegate-auth-type": NOWHERE,
    "catalog-impl": NOWHERE,
    "uri": "https://evil.example/api",
    "oauth2-server-uri": "https://evil.example/token",
    "client.refresh-credentials-endpoint": "https://evil.example/v1/credentials",
    "header.Authorization": "Bearer x",
    "http-client.proxy-endpoint": "http://evil.example",
    "rest.client.proxy.hostname": "evil.example",
    "s3.endpoint": "http://evil.example",
    "s3.access-key-id": "x",
    "s3.remote-signing-enabled": "true",
    "s3.signer.uri": "https://evil.example",
    "credential": "x:y",
    "token": "x",
    "snapshot-loading-mode": "refs",
    "prefix": "../../admin",
    "client.region": "x.evil.example/#",
    "table-override.write.location-provider.impl": NOWHERE,
    "some.other.impl": NOWHERE,
}


@pytest.mark.parametrize("key", REFUSED)
def test_a_setting_is_refused_for_java(key: str) -> None:
    assert java_refusals({key: REFUSED[key]}, OWN) == [key]
    assert sift({key: REFUSED[key]}, OWN).kept == {}


@pytest.mark.parametrize(
    "uri",
    [
        "http://catalog.example/api",
        "https://catalog.example:8443/api",
        "https://catalog.example.evil.com/api",
        "https://catalog.example@evil.com/api",
        "https://user@catalog.example/api",
        "//evil.com/api",
        "\\\\evil.com",
        "https:\\\\evil.com",
        "https://catalog.example\t.evil.com",
        "file:///etc/passwd",
        "https://[",
        "javascript:alert(1)",
        5,
    ],
    ids=str,
)
def test_an_address_on_another_server_is_refused(uri: Any) -> None:
    assert java_refusals({"uri": uri}, OWN) == ["uri"]
    assert sift({"uri": uri}, OWN).kept == {}


@pytest.mark.parametrize(
    "settings",
    [
        {"uri": "https://catalog.example:443/other"},
        {"uri": "/other"},
        {"oauth2-server-uri": "https://idp.example/token"},
        {"client.refresh-credentials-endpoint": "v1/lake/namespaces/n/tables/t/credentials"},
        {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"},
        {"s3.endpoint": "http://own:9000/"},  # the project's own
        {"scan-planning-mode": "server"},
        {"polaris.config.enable-credential-vending": "true"},
        {"prefix": "Verträge 2024"},
        {"gcs.oauth2.refresh-credentials-enabled": "true", "adls.refresh-credentials-enabled": "false"},
        {"table-default.write.format.default": "parquet"},
    ],
    ids=str,
)
def test_what_servers_send_is_not_refused(settings: dict[str, str]) -> None:
    assert java_refusals(settings, OWN) == []


@pytest.mark.parametrize(
    ("key", "refused"),
    [
        ("data-provider", False),
        ("storage.class", False),
        ("write_compression", False),
        ("write-parallelism", False),
        ("parquet.compression", False),
        ("parquet.block.size", False),
        ("parquet.crypto.factory.class", True),
        ("io.compression.codecs", True),
        ("fs.s3a.impl", True),
        (" fs.s3a.impl", True),
        ("fs.s3a.impl ", True),
        ("\x01parquet.crypto.factory.class\t", True),
        ("fs.s3a.impl.disable.cache", True),
        ("fs.s3a.endpoint", True),
        ("fs.s3a.custom.signers", True),
        ("dfs.client.failover.proxy.provider.x", True),
        ("mapreduce.job.reduce.class", True),
        ("write.location-provider.impl", True),
        ("encryption.kms-impl", True),
    ],
)
def test_properties_that_mean_nothing_to_java_do_not_keep_spark_from_a_table(key: str, refused: bool) -> None:
    assert table_refusals({key: "x"}) == ([key] if refused else [])


@pytest.mark.parametrize(
    "key", [" uri", "io-impl ", "table-override. fs.file.impl", "table-default.fs.file.impl\n", "\tx"]
)
def test_a_setting_of_a_server_whose_name_java_would_trim_is_refused(key: str) -> None:
    assert java_refusals({key: "x"}, OWN) == [key]


def _constants(lake: Lake, name: str) -> list[str]:
    """The keys that a class of Iceberg's Java knows."""
    jvm: Any = lake.spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    fields = jvm.java.lang.Class.forName(f"org.apache.iceberg.{name}", True, loader).getFields()
    found = [field for field in fields if str(field.getType().getName()) == "java.lang.String"]
    ignored = ("_DEFAULT", "_TYPE", "_ERROR", "_SINCE_1_4_0")
    values = {str(one.getName()): one.get(None) for one in found}
    return [value for key, value in values.items() if value and not key.endswith(ignored) and "IMPL_" not in key]


CATALOG_CLASSES = (
    "CatalogProperties",
    "aws.AwsClientProperties",
    "aws.AwsProperties",
    "aws.HttpClientProperties",
    "aws.s3.S3FileIOProperties",
    "rest.RESTCatalogProperties",
    "rest.auth.AuthProperties",
    "rest.auth.OAuth2Properties",
)
# Words of the OAuth2 protocol, query parameters, and names that are only shown.
NO_SETTINGS = {"basic", "google", "none", "oauth2", "sigv4", "apache", "urlconnection", "app-id", "app-name", "user"}
NO_SETTINGS |= {"planId", "referenced-by", "snapshots", "iceberg.table", "iceberg.namespace", "custom", "kms", "s3"}
NO_SETTINGS |= {"dsse-kms", "catalog", "aws", "azure", "gcp"}


def test_every_setting_that_java_knows_is_decided_upon(lake: Lake) -> None:
    known = {key for name in CATALOG_CLASSES for key in _constants(lake, name)} - NO_SETTINGS
    assert len(known) > 130
    undecided = [key for key in sorted(known) if java_refusals({key: 1}, OWN) == []]
    assert undecided == ["table-default.", "table-override.", "view-default.", "view-override."]


def test_of_what_java_reads_from_tables_only_classes_and_keys_are_refused(lake: Lake) -> None:
    known = set(_constants(lake, "TableProperties"))
    assert len(known) > 80
    assert table_refusals(dict.fromkeys(known, "1")) == [
        "encryption.data-key-length",
        "encryption.key-id",
        "write.location-provider.impl",
    ]
    assert table_refusals({"write.metadata.metrics.column.my.impl": "full", "team.owner": "x"}) == []
