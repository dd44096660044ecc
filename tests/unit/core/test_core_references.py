"""References are read at the moment of connecting, and not before."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pydantic import SecretStr

from floe_core.config.references import (
    Reference,
    is_reference,
    malformed_reference,
    protect_references,
    references_in,
    resolve,
    resolve_model,
    uri_password,
)
from floe_core.config.spec import (
    ClientCredentials,
    FloeSpec,
    LocalStorageConfig,
    PluginSettings,
    RestCatalogConfig,
    SparkConfig,
    SqlCatalogConfig,
)
from floe_core.errors import ConfigurationError
from floe_core.security.redaction import redact


def test_an_environment_variable_is_read_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOE_TEST_A", "one")
    assert resolve("${env:FLOE_TEST_A}", root=tmp_path) == "one"
    monkeypatch.setenv("FLOE_TEST_A", "two")
    assert resolve("${env:FLOE_TEST_A}", root=tmp_path) == "two"


@pytest.mark.parametrize("content", ["value", "value\n", "value\r\n"])
def test_a_file_is_read_without_its_last_newline(tmp_path: Path, content: str) -> None:
    (tmp_path / "secret").write_bytes(content.encode())
    assert resolve("${file:secret}", root=tmp_path) == "value"
    assert resolve(f"${{file:{tmp_path}/secret}}", root=Path("/")) == "value"


def test_spaces_in_a_file_belong_to_the_value(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(" a b \n")
    assert resolve("${file:secret}", root=tmp_path) == " a b "


def test_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    catalog = RestCatalogConfig(uri="https://u", warehouse="w", token=SecretStr("${file:token}"))
    assert resolve_model(catalog, root=tmp_path).token == SecretStr("old")
    (tmp_path / "token").write_text("new")
    assert resolve_model(catalog, root=tmp_path).token == SecretStr("new")


def test_several_references_in_one_value_are_all_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOE_TEST_A", "${env:FLOE_TEST_B}")
    monkeypatch.setenv("FLOE_TEST_B", "b")
    text = "x-${env:FLOE_TEST_B}/${env:FLOE_TEST_B}-y"
    assert references_in(text) == [Reference("env", "FLOE_TEST_B")] * 2
    assert resolve(text, root=tmp_path) == "x-b/b-y"
    assert resolve("${env:FLOE_TEST_A}", root=tmp_path) == "${env:FLOE_TEST_B}", "values are not references again"


def test_an_unset_variable_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOE_TEST_A", raising=False)
    with pytest.raises(ConfigurationError, match="environment variable FLOE_TEST_A is not set"):
        resolve("${env:FLOE_TEST_A}", root=tmp_path)


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="file run/token does not exist"):
        resolve("${file:run/token}", root=tmp_path)


def test_a_file_that_is_no_text_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="token"):
        resolve("${file:token}", root=tmp_path)


def test_models_are_resolved_in_their_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOE_TEST_ID", "root")
    monkeypatch.setenv("FLOE_TEST_SECRET", "planted-value")
    spec = FloeSpec(
        name="shop",
        catalog=RestCatalogConfig(
            uri="https://${env:FLOE_TEST_ID}.example",
            warehouse="w",
            credentials=ClientCredentials(
                client_id="${env:FLOE_TEST_ID}", client_secret=SecretStr("${env:FLOE_TEST_SECRET}")
            ),
        ),
        spark=SparkConfig(conf={"spark.x": "${env:FLOE_TEST_ID}"}),
    )
    resolved = resolve_model(spec, root=tmp_path)
    assert isinstance(resolved.catalog, RestCatalogConfig)
    assert resolved.catalog.credentials is not None
    assert resolved.catalog.uri == "https://root.example"
    assert resolved.catalog.credentials.client_id == "root"
    assert resolved.catalog.credentials.client_secret.get_secret_value() == "planted-value"
    assert resolved.spark.conf == {"spark.x": "root"}
    assert spec.spark.conf == {"spark.x": "${env:FLOE_TEST_ID}"}, "the original keeps its references"


def test_the_settings_of_plugins_are_resolved_lists_included(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOE_TEST_A", "a")
    settings = PluginSettings.model_validate(
        {"type": "mine", "host": "${env:FLOE_TEST_A}", "hosts": ["${env:FLOE_TEST_A}", {"deep": "${env:FLOE_TEST_A}"}]}
    )
    assert resolve_model(settings, root=tmp_path).model_dump() == {
        "type": "mine",
        "host": "a",
        "hosts": ["a", {"deep": "a"}],
    }


@pytest.mark.parametrize(
    "model",
    [
        RestCatalogConfig(uri="https://u", warehouse="w", token=SecretStr("${env:FLOE_TEST_SECRET}")),
        RestCatalogConfig(uri="https://u:${env:FLOE_TEST_SECRET}@h", warehouse="w", auth="none"),
        SparkConfig(conf={"spark.hadoop.fs.s3a.secret.key": "${env:FLOE_TEST_SECRET}"}),
        SparkConfig(conf={"spark.x.url": "jdbc:postgresql://u:${env:FLOE_TEST_SECRET}@h/db"}),
        SparkConfig(remote="sc://h:443/;token=${env:FLOE_TEST_SECRET}"),
        PluginSettings.model_validate({"type": "mine", "password": "${env:FLOE_TEST_SECRET}"}),
        PluginSettings.model_validate({"type": "mine", "deep": [{"token": "${env:FLOE_TEST_SECRET}"}]}),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_resolved_secret_is_masked_from_then_on(
    model: RestCatalogConfig | SparkConfig | PluginSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOE_TEST_SECRET", "planted-value")
    assert redact("it is planted-value") == "it is planted-value"
    resolve_model(model, root=tmp_path)
    assert redact("it is planted-value") == "it is ***"


def test_a_reference_that_is_unset_leaves_no_other_secret_unprotected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNSET", raising=False)
    monkeypatch.setenv("PLANTED", "planted-secret")
    conf = {"spark.a.password": "${env:UNSET}", "spark.b.password": "${env:PLANTED}"}
    protect_references(SparkConfig(conf=conf), root=tmp_path)
    assert redact("with planted-secret") == "with ***"


def test_a_resolved_value_that_does_not_fit_is_a_configuration_error_without_the_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOE_TEST_A", "")
    with pytest.raises(ConfigurationError, match="path"):
        resolve_model(LocalStorageConfig(path="${env:FLOE_TEST_A}"), root=tmp_path)
    monkeypatch.setenv("FLOE_TEST_A", "catalog.db?password=planted-value")
    with pytest.raises(ConfigurationError, match="uri") as caught:
        resolve_model(SqlCatalogConfig(uri="sqlite:///${env:FLOE_TEST_A}"), root=tmp_path)
    assert "planted-value" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ("postgresql://u:p@h/db", "p"),
        ("postgresql://:p@h/db", "p"),
        ("postgresql://u:p@ss@h:5432/db", "p@ss"),
        ("https://u:${env:PW}@h", "${env:PW}"),
        ("https://u:${file:/run/secrets/pw}@h", "${file:/run/secrets/pw}"),
        ("https://${env:U}:${env:PW}@h", "${env:PW}"),
        ("jdbc:postgresql://u:p@h/db", "p"),
        ("https://u@h", None),
        ("https://h:8181/api", None),
        ("sqlite:///a.db", None),
        ("s3://bucket/a", None),
        ("a:b@c", None),
        ("", None),
    ],
)
def test_the_password_of_an_address(text: str, password: str | None) -> None:
    assert uri_password(text) == password


@pytest.mark.parametrize(
    ("text", "answer"), [("${env:A}", True), ("${file:a/b}", True), ("x${env:A}", False), ("", False)]
)
def test_a_reference_is_nothing_but_one_reference(text: str, answer: bool) -> None:
    assert is_reference(text) is answer


@pytest.mark.parametrize(
    ("text", "found"), [("${env:A}", None), ("$A", None), ("{a}", None), ("a${b}c", "${b}"), ("${", "${")]
)
def test_what_looks_like_a_reference_and_is_none(text: str, found: str | None) -> None:
    assert malformed_reference(text) == found


def test_a_reference_is_written_as_it_was_read() -> None:
    assert str(Reference("env", "A")) == "${env:A}"


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://${env:PART_USER}:${env:PART_SECRET}@db.example.com/${env:PART_UNSET}",
        "postgresql://${env:PART_UNSET}:${env:PART_SECRET}@db.example.com/floe",
        "postgresql://floe:${env:PART_UNSET}${env:PART_SECRET}@db.example.com/floe",
        "postgresql://${env:PART_BOTH}@db.example.com/${file:part-missing}",
        "postgresql://db.example.com/${env:PART_UNSET}?password=${env:PART_SECRET}",
    ],
)
def test_a_reference_that_is_unset_leaves_no_other_in_the_same_value_unprotected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    secret = f"hunter2-{uuid.uuid4()}"
    monkeypatch.setenv("PART_USER", "somebody")
    monkeypatch.setenv("PART_SECRET", secret)
    monkeypatch.setenv("PART_BOTH", f"somebody:{secret}")
    protect_references(SparkConfig(conf={"spark.x.url": uri}), root=tmp_path)
    assert redact(f"somebody wrote {secret}") == "somebody wrote ***"


def test_a_secret_of_which_a_part_is_unset_is_protected_as_far_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"hunter2-{uuid.uuid4()}"
    monkeypatch.setenv("PART_SECRET", secret)
    conf = {"spark.hadoop.fs.s3a.secret.key": "${env:PART_UNSET}${env:PART_SECRET}"}
    protect_references(SparkConfig(conf=conf), root=tmp_path)
    assert redact(secret) == "***"
