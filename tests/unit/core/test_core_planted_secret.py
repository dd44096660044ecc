"""One secret, planted in the environment, is looked for everywhere Floe writes or speaks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import SecretStr, ValidationError

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.config.references import resolve_model
from floe_core.config.spec import FloeSpec, ObservabilityConfig, PluginSettings, RestCatalogConfig
from floe_core.errors import CatalogConnectionError
from floe_core.models import StorageErrorDetail
from floe_core.observability import telemetry

Project = Callable[[str], Path]

PLAIN = "planted-value-8f3a"
# Quotes and backslashes change their looks inside repr() and JSON.
AWKWARD = "pl'ant\"ed\\val/ue 8f3a"

TEXT = """\
name: shop
catalog:
  type: polaris
  uri: https://user:${env:FLOE_TEST_SECRET}@h/api
  warehouse: w
  credentials: {client_id: a, client_secret: "${env:FLOE_TEST_SECRET}"}
storage:
  type: s3
  bucket: b
  access_key_id: "${env:FLOE_TEST_SECRET}"
  secret_access_key: "${env:FLOE_TEST_SECRET}"
spark:
  conf:
    spark.hadoop.fs.s3a.secret.key: ${env:FLOE_TEST_SECRET}
environments:
  prod:
    catalog: {token: "${env:FLOE_TEST_SECRET}", credentials: null}
"""


def shows(text: str, secret: str) -> bool:
    return secret in text or repr(secret)[1:-1] in text or secret.replace("\\", "\\\\").replace('"', '\\"') in text


@pytest.fixture(params=[PLAIN, AWKWARD], ids=["plain", "awkward"])
def secret(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    planted: str = request.param
    monkeypatch.setenv("FLOE_TEST_SECRET", planted)
    return planted


@pytest.fixture
def artifacts(new_project: Project, secret: str) -> CompiledArtifacts:
    return compile_project(new_project(TEXT)).artifacts


@pytest.mark.parametrize("environment", [None, "prod"])
def test_it_is_nowhere_below_the_folder_of_floe(new_project: Project, secret: str, environment: str | None) -> None:
    root = new_project(TEXT)
    compilation = compile_project(root, environment)
    assert compilation.warnings == ()
    compilation.artifacts.write()
    written = [path for path in (root / ".floe").rglob("*") if path.is_file()]
    assert written
    assert not any(shows(path.read_text(), secret) for path in written)


def test_it_is_not_in_the_contract_as_an_object(artifacts: CompiledArtifacts, secret: str) -> None:
    spec = FloeSpec.model_validate({name: getattr(artifacts, name) for name in FloeSpec.model_fields})
    for one in (artifacts, spec, artifacts.catalog, artifacts.storage, artifacts.spark):
        assert not shows(repr(one), secret)
        assert not shows(str(one), secret)


@pytest.mark.parametrize("section", ["catalog", "storage", "spark", None])
def test_it_is_not_shown_by_resolved_settings(artifacts: CompiledArtifacts, secret: str, section: str | None) -> None:
    settings = artifacts if section is None else getattr(artifacts, section)
    resolved = resolve_model(settings, root=artifacts.root)
    for shown in (repr(resolved), str(resolved), f"{resolved}", f"{[resolved]}"):
        assert not shows(shown, secret)


def test_it_is_not_shown_by_resolved_settings_of_a_plugin(tmp_path: Path, secret: str) -> None:
    settings = PluginSettings.model_validate(
        {"type": "mine", "password": "${env:FLOE_TEST_SECRET}", "deep": [{"token": "${env:FLOE_TEST_SECRET}"}]}
    )
    assert not shows(repr(resolve_model(settings, root=tmp_path)), secret)


def test_it_is_not_shown_by_a_refusal_of_the_models(secret: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RestCatalogConfig(uri="https://u", warehouse="w", auth="none", token=SecretStr(secret))
    assert not shows(str(caught.value), secret)
    with pytest.raises(ValidationError) as caught:
        RestCatalogConfig.model_validate({"uri": "https://u", "warehouse": "w", "auth": "none", "token": secret})
    assert not shows(str(caught.value), secret)


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_it_is_in_no_log_and_no_span(
    artifacts: CompiledArtifacts,
    secret: str,
    log_format: Literal["console", "json"],
    spans: InMemorySpanExporter,
    configured_logs: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    telemetry.configure(ObservabilityConfig(log_format=log_format, log_level="debug"), project="shop")
    resolve_model(artifacts.catalog, root=artifacts.root)
    with telemetry.operation(
        "test.attributes",
        client_secret=secret,
        held=SecretStr(secret),
        address=f"https://user:{secret}@h",
        several=["a", secret],
        mapping={"password": secret, "other": secret},
    ) as op:
        op.set(later=f"x{secret}y", token=secret)
    with pytest.raises(KeyError), telemetry.operation("test.message_as_repr"):
        raise KeyError(secret)
    detail = StorageErrorDetail(error_type="x", operation="y", message=f"401 for {secret}")
    with pytest.raises(CatalogConnectionError), telemetry.operation("test.detail"):
        raise CatalogConnectionError(f"cannot connect with {secret}", detail=detail)

    logged = capsys.readouterr().err
    assert logged.count("test.") == 3
    assert not shows(logged, secret)
    finished = spans.get_finished_spans()
    assert len(finished) == 3
    assert not any(shows(span.to_json(), secret) for span in finished)
    assert not any(shows(str(value), secret) for span in finished for value in (span.attributes or {}).values())
    assert not any(shows(str(span.status.description), secret) for span in finished)


def test_a_credential_inside_a_mapping_is_masked_by_its_key(
    spans: InMemorySpanExporter, configured_logs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry.configure(ObservabilityConfig(log_format="json", log_level="info"), project="shop")
    with telemetry.operation("test.mapping", conf={"spark.hadoop.fs.s3a.secret.key": PLAIN, "spark.x": "kept"}):
        pass
    (span,) = spans.get_finished_spans()
    assert "kept" in span.to_json()
    assert PLAIN not in span.to_json()
    assert PLAIN not in capsys.readouterr().err
