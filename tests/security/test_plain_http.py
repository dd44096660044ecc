"""What is sent to another machine is encrypted, unless the settings of that server say otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError
from pyspark.sql.connect.client import DefaultChannelBuilder

from floe_core.compiler import compile_project
from floe_core.config.postgres_address import PostgresAddress
from floe_core.config.spec import SparkConfig
from floe_core.errors import ConfigurationError
from floe_core.observability.telemetry import observe
from floe_core.plugins.discovery import create_catalog_plugin, create_storage_plugin
from floe_dagster.config import IcebergIOManagerConfig

CREDENTIALS = 'credentials: {client_id: me, client_secret: "${env:FLOE_TEST_SECRET}"}'
REST = "name: shop\ncatalog: {type: rest, warehouse: w, %s, %s}\n"
CASES = {
    "catalog": (REST % ("uri: 'http://catalog.example.com/api'", CREDENTIALS), "uri"),
    "token endpoint": (
        REST % ("uri: 'https://c.example.com', oauth2_server_uri: 'http://id.example.com/t'", CREDENTIALS),
        "oauth2_server_uri",
    ),
    "S3": ("name: shop\nstorage: {type: s3, bucket: b, endpoint: 'http://10.0.0.7:9000'}\n", "endpoint"),
    "OTLP": ("name: shop\nobservability: {otlp_endpoint: 'http://collector:4317'}\n", "otlp_endpoint"),
    "Spark Connect": ("name: shop\nspark: {remote: 'sc://spark.example.com:15002'}\n", "remote"),
    "upper case": ("name: shop\nstorage: {type: s3, bucket: b, endpoint: 'HTTP://store.lan:9000'}\n", "endpoint"),
    "a user like localhost": (REST % ("uri: 'http://localhost\\@evil.example'", CREDENTIALS), "uri"),
    "a name like localhost": (REST % ("uri: 'http://localhost.evil.example'", CREDENTIALS), "uri"),
}


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOE_TEST_SECRET", "hunter-two-hunter")


@pytest.mark.parametrize("case", list(CASES))
def test_plain_connections_to_another_machine_are_refused(case: str, new_project: Callable[[str], Path]) -> None:
    text, key = CASES[case]
    with pytest.raises(ConfigurationError, match=rf"{key}: .*unencrypted; write .*, or set allow_insecure: true"):
        compile_project(new_project(text))


@pytest.mark.parametrize("case", list(CASES))
def test_allow_insecure_allows_them(case: str, new_project: Callable[[str], Path]) -> None:
    text, _ = CASES[case]
    compile_project(new_project(text.replace("}\n", ", allow_insecure: true}\n")))


@pytest.mark.parametrize("host", ["localhost:8181", "127.0.0.1:8181", "127.9.9.9", "[::1]:8181", "LOCALHOST"])
def test_this_machine_needs_no_encryption(host: str, new_project: Callable[[str], Path]) -> None:
    compile_project(new_project(REST % (f"uri: 'http://{host}/api'", CREDENTIALS)))
    assert SparkConfig(remote=f"sc://{host}").remote == f"sc://{host}"


@pytest.mark.parametrize(
    "options",
    [
        "USE_SSL=true",
        "Token=abc",
        "use_ssl=true;use_ssl=false",
        "user_agent=a?;use_ssl=true",
        "user_id=b#;use_ssl=true",
    ],
)
def test_spark_connect_is_encrypted_only_where_its_client_says_so(options: str) -> None:
    address = f"sc://spark.example.com:15002/;{options}"
    assert not DefaultChannelBuilder(address).secure
    with pytest.raises(ValidationError, match="unencrypted"):
        SparkConfig(remote=address)
    for encrypted in ("sc://spark.example.com/;use_ssl=TRUE", "sc://spark.example.com/;token=abc;user_id=me"):
        assert DefaultChannelBuilder(encrypted).secure
        assert SparkConfig(remote=encrypted).remote == encrypted


def test_an_address_in_a_reference_is_refused_before_it_is_asked(
    new_project: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG", "http://elsewhere.example.com:1")
    monkeypatch.setenv("COLLECTOR", "http://elsewhere.example.com:1")
    monkeypatch.setenv("STORE", "https://elsewhere.example.com:1")
    text = (
        REST % ('uri: "${env:CATALOG}"', CREDENTIALS)
        + 'storage: {type: s3, bucket: b, endpoint: "${env:STORE}"}\n'
        + 'observability: {otlp_endpoint: "${env:COLLECTOR}"}\n'
    )
    artifacts = compile_project(new_project(text)).artifacts
    with pytest.raises(ConfigurationError, match="uri: http:// to another machine"):
        create_catalog_plugin(artifacts).connect()
    monkeypatch.setenv("STORE", "http://elsewhere.example.com:1")
    with pytest.raises(ConfigurationError, match="endpoint: http:// to another machine"):
        create_storage_plugin(artifacts).get_pyiceberg_properties()
    with pytest.raises(ConfigurationError, match="otlp_endpoint: http:// to another machine"):
        observe(artifacts, embedded=False)


def test_the_io_manager_refuses_them_too() -> None:
    settings = {"catalog_uri": "http://catalog.example.com", "warehouse": "w", "token": "${env:FLOE_TEST_SECRET}"}
    with pytest.raises(ConfigurationError, match="allow_insecure"):
        IcebergIOManagerConfig.model_validate(settings).artifacts()
    allowed = IcebergIOManagerConfig.model_validate({**settings, "allow_insecure": True}).artifacts()
    assert allowed.catalog.type == "polaris"


@pytest.mark.parametrize("options", ["use_ssl=true", "user_id=me;use_ssl=True", "token=${env:FLOE_TEST_SECRET}"])
def test_spark_connect_with_tls_is_accepted(options: str) -> None:
    assert SparkConfig(remote=f"sc://spark.example.com:443/;{options}")


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("db.example.com/lake", "require"),
        ("10.0.0.7:5432/lake", "require"),
        ("localhost.evil.example/lake", "require"),
        ("db.example.com/lake?sslmode=prefer", "prefer"),
        ("localhost/lake", "prefer"),
        ("127.0.0.1:5433/lake", "prefer"),
        ("[::1]/lake", "prefer"),
    ],
)
def test_postgresql_on_another_machine_is_encrypted_by_default(address: str, mode: str, tmp_path: Path) -> None:
    assert PostgresAddress.parse(f"postgresql://me@{address}", root=tmp_path).sslmode == mode
