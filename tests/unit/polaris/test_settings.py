"""The settings of REST catalogs and S3: what is refused with which words, and what each becomes in both engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.refusals import GIVEN_TOKEN, SECRET
from tests.servers.scripted import ScriptedServer

from floe_core import __version__
from floe_core.config.spec import PolarisCatalogConfig, RestCatalogConfig, S3StorageConfig
from floe_core.errors import ConfigurationError
from floe_iceberg.storage.s3 import S3StoragePlugin
from floe_polaris import create_catalog
from floe_polaris.plugin import PolarisCatalogPlugin, RestCatalogPlugin

CREDENTIALS = {"client_id": "floe", "client_secret": "${env:FLOE_TEST_SCRIPTED_SECRET}"}
TOKEN = "${env:FLOE_TEST_SCRIPTED_TOKEN}"
LEAST: dict[str, Any] = {"uri": "https://catalog.example/api/catalog", "warehouse": "sales", "credentials": CREDENTIALS}


# What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"credentials": None}, r"no way to authenticate: set credentials: .* or set auth: none"),
        ({"auth": "none"}, "auth: none contradicts credentials and token; remove one of them"),
        ({"auth": "none", "credentials": None, "token": TOKEN}, "auth: none contradicts"),
        ({"token": TOKEN}, "credentials and token are mutually exclusive: keep one, and set the other to null"),
        (
            {"credentials": None, "token": TOKEN, "oauth2_server_uri": "https://idp"},
            "oauth2_server_uri is where credentials are exchanged for a token; with token, remove it",
        ),
        ({"auth": "sigv4"}, "'oauth2' or 'none'"),
        ({"uri": "catalog.example"}, "uri: write an address that starts with https://"),
        ({"uri": "ftp://catalog.example"}, "uri: write an address that starts with https://"),
        ({"uri": "https://"}, "uri: write an address that starts with https://"),
        ({"uri": "https:///api"}, "uri: write an address that starts with https://"),
        ({"oauth2_server_uri": "idp"}, "oauth2_server_uri: write an address that starts with https://"),
        ({"warehouse": ""}, "warehouse"),
        ({"warehouse": ...}, "warehouse"),
        ({"uri": ...}, "uri"),
        ({"credentials": {"client_id": "a:b", "client_secret": "x"}}, "client id must not contain a colon"),
        ({"credentials": {"client_id": "", "client_secret": "x"}}, "client_id"),
        ({"credentials": {"client_id": "a"}}, "client_secret"),
        ({"access_delegation": "remote-signing"}, "'vended-credentials' or 'none'"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": 601}, "timeout_seconds"),
        ({"retry": {"max_attempts": 0}}, "max_attempts"),
        ({"retry": {"max_attempts": 11}}, "max_attempts"),
        ({"realm": "north"}, "realm"),
        ({"verify": False}, "verify"),
        ({"properties": {"py-io-impl": "x.Y"}}, "py-io-impl is not passed to the catalog"),
        ({"properties": {"io-impl": "x.Y"}}, "io-impl is not passed to the catalog"),
        ({"properties": {"rest-metrics-reporter-impl": "x.Y"}}, "is not passed to the catalog"),
        ({"properties": {"uri": "https://other"}}, "uri is not passed to the catalog"),
        ({"properties": {"token": "x"}}, "token is not passed to the catalog"),
        ({"properties": {"s3.secret-access-key": "x"}}, "s3.secret-access-key is not passed to the catalog"),
        ({"properties": {"snapshot-loading-mode": "refs"}}, "snapshot-loading-mode is not passed to the catalog"),
        ({"properties": {"header.Authorization": "Bearer x"}}, "header.Authorization .*catalog.token"),
        ({"properties": {"header.X-Api-Key": "x"}}, "header.X-Api-Key .*secret"),
        ({"properties": {"header.Ocp-Apim-Subscription-Key": "x"}}, "Subscription-Key .*secret"),
        ({"properties": {"header.X-Auth": "x"}}, "header.X-Auth .*secret"),
        ({"properties": {"header.X-Token-Value": "x"}}, "header.X-Token-Value .*secret"),
        ({"properties": {"header.Idempotency-Key": "x"}}, "header.Idempotency-Key is set by the engines"),
        ({"properties": {"header.If-None-Match": "*"}}, "header.If-None-Match is set by the engines"),
        ({"properties": {"header.polaris-realm": "x"}}, "header.polaris-realm .*realm"),
        ({"properties": {"header.X-Iceberg-Access-Delegation": "x"}}, "access_delegation"),
        ({"properties": {"header.X y": "x"}}, "header.X y .*name of a header"),
        ({"properties": {"header.X": "a\nb"}}, "header.X: .*one line"),
    ],
    ids=str,
)
def test_a_catalog_that_cannot_be_meant_is_refused(changed: dict[str, Any], words: str) -> None:
    given = {key: value for key, value in {**LEAST, **changed}.items() if value is not ...}
    with pytest.raises(ValidationError, match=words):
        RestCatalogConfig.model_validate(given)


def test_a_realm_is_a_name_and_belongs_to_polaris() -> None:
    given = {**LEAST, "type": "polaris"}
    assert PolarisCatalogConfig.model_validate({**given, "realm": "north"}).realm == "north"
    assert PolarisCatalogConfig.model_validate(given).realm is None
    with pytest.raises(ValidationError, match="realm"):
        PolarisCatalogConfig.model_validate({**given, "realm": ""})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"bucket": ""}, "bucket"),
        ({"bucket": "s3://lake"}, "bucket: write its name only, without s3:// and without a path"),
        ({"bucket": "lake/sales"}, "bucket: write its name only"),
        ({"bucket": "lake "}, "bucket: write its name only"),
        ({"access_key_id": "${env:K}"}, "access_key_id and secret_access_key belong together: set both or neither"),
        ({"secret_access_key": "${env:K}"}, "access_key_id and secret_access_key belong together"),
        ({"path_style_access": "perhaps"}, "path_style_access"),
        ({"acl": "public"}, "acl"),
    ],
    ids=str,
)
def test_a_storage_that_cannot_be_meant_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        S3StorageConfig.model_validate({"bucket": "lake", **changed})


@pytest.mark.parametrize("bucket", ["lake", "my.lake-2", "${env:BUCKET}", "${file:/run/bucket}", "${env:STAGE}-lake"])
def test_a_bucket_may_be_a_name_or_refer_to_one(bucket: str) -> None:
    assert S3StorageConfig(bucket=bucket).bucket == bucket


def test_what_a_reference_holds_is_checked_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLOE_TEST_URI", "catalog.example")
    with pytest.raises(ConfigurationError, match="uri: write an address that starts with https://"):
        create_catalog(RestCatalogConfig.model_validate({**LEAST, "uri": "${env:FLOE_TEST_URI}"}), root=tmp_path)


def test_a_refusal_does_not_show_what_was_written() -> None:
    with pytest.raises(ValidationError) as caught:
        RestCatalogConfig.model_validate({**LEAST, "token": "hunter22-token", "auth": "none"})
    assert "hunter22" not in str(caught.value)


# What Spark is told ----------------------------------------------------------------------------------------------


def spark_conf(**changed: Any) -> dict[str, str]:
    """The settings of the catalog `lake`, without their prefix; None takes a setting away."""
    given = {key: value for key, value in {**LEAST, **changed}.items() if value is not None}
    kind = PolarisCatalogPlugin if "realm" in changed else RestCatalogPlugin
    if "realm" in changed:
        given["type"] = "polaris"
    plugin = kind(kind.get_config_schema().model_validate(given), root=Path.cwd())
    conf = plugin.get_spark_conf("lake", "ignored")
    assert conf.pop("spark.sql.catalog.lake") == "org.apache.iceberg.spark.SparkCatalog"
    assert all(key.startswith("spark.sql.catalog.lake.") for key in conf)
    return {key.removeprefix("spark.sql.catalog.lake."): value for key, value in conf.items()}


def difference(one: dict[str, str], other: dict[str, str]) -> dict[str, str | None]:
    """What changes from the one to the other; None is what goes."""
    return {key: other.get(key) for key in {*one, *other} if one.get(key) != other.get(key)}


def test_spark_is_told_everything_that_it_needs() -> None:
    conf = spark_conf()
    agent = conf.pop("rest.client.user-agent")
    assert agent.startswith(f"Floe/{__version__} ")
    assert conf == {
        "type": "rest",
        "uri": "https://catalog.example/api/catalog",
        "warehouse": "sales",
        "rest.client.connection-timeout-ms": "10000",
        "rest.client.socket-timeout-ms": "60000",
        "rest.client.max-retries": "2",
        "rest.auth.type": "oauth2",
        "credential": f"floe:{SECRET}",
        "scope": "PRINCIPAL_ROLE:ALL",
        "oauth2-server-uri": "https://catalog.example/api/catalog/v1/oauth/tokens",
        "token-refresh-enabled": "true",
        "token-exchange-enabled": "false",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
    }


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"uri": "https://other/"},
            {"uri": "https://other", "oauth2-server-uri": "https://other/v1/oauth/tokens"},
        ),
        ({"warehouse": "my & own"}, {"warehouse": "my & own"}),
        ({"scope": "PRINCIPAL_ROLE:reader"}, {"scope": "PRINCIPAL_ROLE:reader"}),
        ({"oauth2_server_uri": "https://idp/token"}, {"oauth2-server-uri": "https://idp/token"}),
        ({"token_refresh_enabled": False}, {"token-refresh-enabled": "false"}),
        ({"access_delegation": "none"}, {"header.X-Iceberg-Access-Delegation": None}),
        (
            {"timeout_seconds": 2.5},
            {"rest.client.connection-timeout-ms": "2500", "rest.client.socket-timeout-ms": "2500"},
        ),
        ({"timeout_seconds": 120}, {"rest.client.socket-timeout-ms": "120000"}),
        ({"retry": {"max_attempts": 7}}, {"rest.client.max-retries": "6"}),
        ({"retry": {"max_attempts": 1}}, {"rest.client.max-retries": "1"}),
        ({"realm": "north"}, {"header.Polaris-Realm": "north"}),
    ],
    ids=str,
)
def test_every_setting_of_a_catalog_changes_what_spark_is_told(
    changed: dict[str, Any], expected: dict[str, str | None]
) -> None:
    assert difference(spark_conf(), spark_conf(**changed)) == expected


def test_spark_takes_a_token_as_it_is() -> None:
    conf = spark_conf(credentials=None, token=TOKEN)
    assert {key: conf[key] for key in conf if "token" in key or "auth" in key or "cred" in key} == {
        "rest.auth.type": "oauth2",
        "token": GIVEN_TOKEN,
        "token-refresh-enabled": "false",
    }


def test_spark_sends_nothing_where_nothing_is_asked_for() -> None:
    conf = spark_conf(credentials=None, auth="none")
    assert conf["rest.auth.type"] == "none"
    assert not {"credential", "token", "scope", "oauth2-server-uri"} & conf.keys()


def test_the_catalog_has_the_name_it_is_given() -> None:
    plugin = RestCatalogPlugin(RestCatalogConfig.model_validate(LEAST), root=Path.cwd())
    assert plugin.get_spark_conf("other", "")["spark.sql.catalog.other.warehouse"] == "sales"


# Files -----------------------------------------------------------------------------------------------------------

KEYS = {"access_key_id": "${env:FLOE_TEST_SCRIPTED_TOKEN}", "secret_access_key": "${env:FLOE_TEST_SCRIPTED_SECRET}"}
STORE = {"bucket": "lake", "endpoint": "http://store:9000", "allow_insecure": True}


@pytest.fixture
def storage(tmp_path: Path) -> Callable[..., S3StoragePlugin]:
    return lambda **given: S3StoragePlugin(S3StorageConfig.model_validate({"bucket": "lake", **given}), root=tmp_path)


def test_amazon_needs_nothing_but_a_bucket(storage: Callable[..., S3StoragePlugin]) -> None:
    assert storage().get_pyiceberg_properties() == {
        "s3.force-virtual-addressing": "false",
        "s3.connect-timeout": "10",
        "s3.request-timeout": "60",
    }
    conf = storage().get_spark_conf("lake")
    assert conf.pop("spark.jars.packages").startswith("org.apache.iceberg:iceberg-aws-bundle:")
    assert conf == {
        "spark.sql.catalog.lake.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "spark.sql.catalog.lake.s3.path-style-access": "false",
    }


@pytest.mark.parametrize(
    ("given", "changed", "arrow", "spark"),
    [
        ({}, {"region": "eu-north-1"}, {"s3.region": "eu-north-1"}, {"client.region": "eu-north-1"}),
        (
            {},
            {"endpoint": "http://store:9000", "allow_insecure": True},
            {"s3.endpoint": "http://store:9000", "s3.region": "us-east-1", "s3.force-virtual-addressing": "true"},
            {"s3.endpoint": "http://store:9000", "client.region": "us-east-1"},
        ),
        (STORE, {"region": "eu-north-1"}, {"s3.region": "eu-north-1"}, {"client.region": "eu-north-1"}),
        (
            STORE,
            {"path_style_access": True},
            {"s3.force-virtual-addressing": "false"},
            {"s3.path-style-access": "true"},
        ),
    ],
    ids=str,
)
def test_every_setting_of_a_storage_changes_what_the_engines_are_told(
    storage: Callable[..., S3StoragePlugin],
    given: dict[str, Any],
    changed: dict[str, Any],
    arrow: dict[str, str],
    spark: dict[str, str],
) -> None:
    before, after = storage(**given), storage(**given, **changed)
    assert difference(before.get_pyiceberg_properties(), after.get_pyiceberg_properties()) == arrow
    prefixed = {f"spark.sql.catalog.lake.{key}": value for key, value in spark.items()}
    assert difference(before.get_spark_conf("lake"), after.get_spark_conf("lake")) == prefixed


def test_keys_reach_both_engines_and_nothing_that_is_shown(
    storage: Callable[..., S3StoragePlugin],
) -> None:
    plugin = storage(**KEYS)
    expected = {"s3.access-key-id": GIVEN_TOKEN, "s3.secret-access-key": SECRET}
    assert difference(storage().get_pyiceberg_properties(), plugin.get_pyiceberg_properties()) == expected
    prefixed = {f"spark.sql.catalog.lake.{key}": value for key, value in expected.items()}
    assert difference(storage().get_spark_conf("lake"), plugin.get_spark_conf("lake")) == prefixed
    shown = f"{plugin.get_warehouse_uri()} {plugin!r} {plugin._config!r}"
    assert SECRET not in shown
    assert GIVEN_TOKEN not in shown


def test_a_bucket_is_where_the_tables_are(storage: Callable[..., S3StoragePlugin]) -> None:
    assert storage().get_warehouse_uri() == "s3://lake"
    assert storage(bucket="other").get_warehouse_uri("raw.web") == "s3://other/raw/web"


def test_properties_and_headers_reach_both_engines(server: ScriptedServer, tmp_path: Path) -> None:
    properties = {"header.X-Team": "sales", "rest-page-size": 50, "namespace-separator": "%2E"}
    config = RestCatalogConfig.model_validate({**LEAST, "uri": server.uri, "properties": properties})
    catalog = create_catalog(config)
    assert {one.headers.get("x-team") for one in server.requests} == {"sales"}  # the token's request too
    assert len(server.requests) == 2
    assert catalog.properties["rest-page-size"] == "50"
    conf = RestCatalogPlugin(config, root=tmp_path).get_spark_conf("lake", "")
    assert conf["spark.sql.catalog.lake.header.X-Team"] == "sales"
    assert conf["spark.sql.catalog.lake.rest-page-size"] == "50"
    assert conf["spark.sql.catalog.lake.namespace-separator"] == "%2E"
