"""What compiles, what it means, and what the user should know before connecting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floe_core.compiler import compile_project, find_project, is_stale
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.config.spec import LocalStorageConfig, PolarisCatalogConfig, S3StorageConfig, SqlCatalogConfig
from floe_core.errors import ConfigurationError

Project = Callable[[str], Path]


def test_the_smallest_file_compiles_to_an_embedded_lake(new_project: Project) -> None:
    compilation = compile_project(new_project("name: shop\n"))
    assert compilation.warnings == ()
    assert compilation.artifacts.catalog == SqlCatalogConfig(uri="sqlite:///.floe/catalog.db")
    assert compilation.artifacts.storage == LocalStorageConfig(path=".floe/warehouse")
    assert compilation.artifacts.environment is None
    assert not compilation.artifacts.protected


def test_the_example_of_the_design_compiles(
    new_project: Project, design_example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARIS_CLIENT_ID", "root")
    monkeypatch.setenv("POLARIS_CLIENT_SECRET", "s3cr3t")
    compilation = compile_project(new_project(design_example))
    assert compilation.warnings == ()
    artifacts = compilation.artifacts
    assert isinstance(artifacts.catalog, PolarisCatalogConfig)
    assert artifacts.catalog.retry.max_attempts == 3
    assert isinstance(artifacts.storage, S3StorageConfig)
    assert artifacts.storage.path_style_access
    assert artifacts.spark.conf == {"spark.sql.shuffle.partitions": "8"}
    assert artifacts.maintenance.expire.older_than.days == 7
    assert artifacts.maintenance.compact.target_file_size == 128 * 2**20
    assert artifacts.pipeline.definitions == "shop.definitions"


def test_unset_variables_are_warnings_with_their_lines(
    new_project: Project, design_example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POLARIS_CLIENT_ID", raising=False)
    monkeypatch.delenv("POLARIS_CLIENT_SECRET", raising=False)
    first, second = compile_project(new_project(design_example)).warnings
    assert str(first) == (
        "floe.yaml:7: catalog.credentials.client_id: "
        "environment variable POLARIS_CLIENT_ID is not set; set it before connecting"
    )
    assert (second.line, second.path) == (7, "catalog.credentials.client_secret")


def test_a_catalog_server_with_files_of_this_machine_is_a_warning(new_project: Project) -> None:
    root = new_project("name: shop\ncatalog: {type: rest, uri: 'https://u', warehouse: w, auth: none}\n")
    (warning,) = compile_project(root).warnings
    assert (warning.path, warning.line) == ("catalog", 2)
    assert "storage: {type: s3, bucket: …}" in warning.message


def test_a_missing_secret_file_is_a_warning(new_project: Project) -> None:
    root = new_project(
        "name: shop\ncatalog: {type: rest, uri: 'https://u', warehouse: w, token: '${file:run/token}'}\n"
        "storage: {type: s3, bucket: b}\n"
    )
    assert [warning.message for warning in compile_project(root).warnings] == [
        "file run/token does not exist; create it before connecting"
    ]
    (root / "run").mkdir()
    (root / "run" / "token").write_text("x")
    assert compile_project(root).warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        'spark: {remote: "${env:R}"}',
        'catalog: {type: sql, uri: "${env:R}"}',
        'catalog: {type: sql, uri: "sqlite:///${env:R}"}',
        'catalog: {type: rest, uri: "${env:R}", warehouse: "${file:w}", token: "${env:T}"}',
        'storage: {type: local, path: "${env:R}"}',
        'observability: {otlp_endpoint: "${env:R}"}',
    ],
)
def test_any_address_may_be_a_reference_and_stays_one(new_project: Project, text: str) -> None:
    artifacts = compile_project(new_project(f"name: shop\n{text}\n")).artifacts
    assert b"${env:R}" in artifacts.to_bytes()


@pytest.mark.parametrize(
    ("written", "text"), [("8", "8"), ("true", "true"), ("0.5", "0.5"), ('"08"', "08"), ("off", "false")]
)
def test_spark_settings_may_be_written_without_quotes(new_project: Project, written: str, text: str) -> None:
    artifacts = compile_project(new_project(f"name: shop\nspark: {{conf: {{spark.x: {written}}}}}\n")).artifacts
    assert artifacts.spark.conf == {"spark.x": text}


@pytest.mark.parametrize(("written", "size"), [("512KB", 2**19), ("1 GB", 2**30), ("4096", 4096)])
def test_sizes_have_units(new_project: Project, written: str, size: int) -> None:
    root = new_project(f"name: shop\nmaintenance: {{compact: {{target_file_size: {written}}}}}\n")
    assert compile_project(root).artifacts.maintenance.compact.target_file_size == size


@pytest.mark.parametrize("name", ["shop", "Shop_2", "2shops", "_x", "a-b", "x" * 128])
def test_usual_project_names_are_accepted(new_project: Project, name: str) -> None:
    assert compile_project(new_project(f'name: "{name}"\n')).artifacts.name == name


def test_the_project_is_the_nearest_floe_yaml_above(new_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    root = new_project("name: shop\n")
    below = root / "a" / "b"
    below.mkdir(parents=True)
    assert find_project(below) == root
    assert find_project(root) == root
    (root / "a" / "floe.yaml").write_text("name: inner\n")
    assert find_project(below) == root / "a"
    monkeypatch.chdir(below)
    assert find_project() == root / "a"


def test_no_project_here_or_above_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no floe\.yaml in .* or above; create .* with: floe init NAME"):
        find_project(tmp_path)


def test_a_contract_is_stale_once_floe_yaml_changed(new_project: Project) -> None:
    root = new_project("name: shop\n")
    artifacts = compile_project(root).artifacts
    artifacts.write()
    assert not is_stale(CompiledArtifacts.load(root))
    new_project("name: shop\nversion: 0.2.0\n")
    assert is_stale(CompiledArtifacts.load(root))
    (root / "floe.yaml").unlink()
    assert not is_stale(artifacts), "a contract travels without its floe.yaml"


_WORDS = {"type", "uri", "token", "prod", "conf", "retry", "0", "", "spark.x", "environments"}
_KEYS = sorted(_WORDS | set(CompiledArtifacts.model_fields))
_SCALARS = ["", "polaris", "s3", "sql", "mine", "7d", "${env:A}", "${", "sc://h", "https://a:b@c", "a b"]
_VALUES: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.sampled_from(_SCALARS),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.sampled_from(_KEYS), below, max_size=3),
    max_leaves=12,
)


@settings(deadline=None, max_examples=150, derandomize=True, suppress_health_check=[*HealthCheck])
@given(data=st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=6))
def test_whatever_stands_in_floe_yaml_the_answer_is_a_contract_or_a_configuration_error(
    new_project: Project, data: dict[str, object]
) -> None:
    root = new_project(yaml.safe_dump(data))
    refusal: ConfigurationError | None = None
    try:
        compile_project(root, "prod" if "environments" in data else None).artifacts.to_bytes()
    except ConfigurationError as exc:
        refusal = exc
    assert refusal is None or all(problem.message for problem in refusal.problems)
