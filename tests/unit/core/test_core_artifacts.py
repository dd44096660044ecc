"""The compiled contract: the same bytes for the same input, and only what this Floe understands is read."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError
from pydantic_core import PydanticSerializationError

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CONTRACT_VERSION, CompiledArtifacts, contract_path
from floe_core.config.spec import RestCatalogConfig
from floe_core.errors import ConfigurationError

Project = Callable[[str], Path]


def test_compiling_twice_gives_identical_bytes(new_project: Project, design_example: str) -> None:
    root = new_project(design_example)
    first = compile_project(root).artifacts.write().read_bytes()
    second = compile_project(root).artifacts.write().read_bytes()
    assert first == second


def test_the_order_of_keys_changes_nothing_but_the_hash_of_the_source(new_project: Project) -> None:
    one = compile_project(new_project("name: shop\nspark: {conf: {spark.b: x, spark.a: y}}\n")).artifacts.to_bytes()
    other = compile_project(new_project("spark: {conf: {spark.a: y, spark.b: x}}\nname: shop\n")).artifacts.to_bytes()
    assert [line for line in one.splitlines() if b"source_sha256" not in line] == [
        line for line in other.splitlines() if b"source_sha256" not in line
    ]


def test_the_folder_of_the_project_is_not_in_the_bytes(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "floe.yaml").write_text("name: shop\n")
    here, there = (compile_project(tmp_path / folder).artifacts for folder in ("here", "there"))
    assert here.to_bytes() == there.to_bytes()
    assert str(tmp_path).encode() not in here.to_bytes()
    assert (here.root, there.root) == (tmp_path / "here", tmp_path / "there")


def test_references_are_kept_as_they_are(new_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOE_TEST_SECRET", "planted-value")
    root = new_project(
        "name: shop\n"
        'catalog: {type: rest, uri: "https://u:${env:FLOE_TEST_SECRET}@h", warehouse: w, token: "${file:t}"}\n'
    )
    contract = json.loads(compile_project(root).artifacts.to_bytes())
    assert contract["catalog"]["uri"] == "https://u:${env:FLOE_TEST_SECRET}@h"
    assert contract["catalog"]["token"] == "${file:t}"


def test_a_contract_is_readable_and_versioned(new_project: Project) -> None:
    contract = json.loads(compile_project(new_project("name: shop\n")).artifacts.to_bytes())
    assert contract["contract"] == CONTRACT_VERSION
    assert contract["maintenance"]["expire"]["older_than"] == "7d"
    assert contract["maintenance"]["compact"]["target_file_size"] == 128 * 2**20


@pytest.mark.parametrize("duration", ["0s", "90s", "30m", "90m", "12h", "6d", "36h"])
def test_durations_are_written_as_a_person_would(new_project: Project, duration: str) -> None:
    root = new_project(f"name: shop\nmaintenance: {{retry_window: {duration}}}\n")
    artifacts = compile_project(root).artifacts
    artifacts.write()
    assert json.loads(artifacts.to_bytes())["maintenance"]["retry_window"] == duration
    assert CompiledArtifacts.load(root) == artifacts


def test_what_is_written_is_what_is_loaded(new_project: Project, design_example: str) -> None:
    artifacts = compile_project(new_project(design_example)).artifacts
    artifacts.write()
    loaded = CompiledArtifacts.load(artifacts.root)
    assert loaded == artifacts
    assert loaded.root == artifacts.root
    assert loaded.to_bytes() == artifacts.to_bytes()


def test_each_environment_has_a_file_of_its_own(new_project: Project) -> None:
    root = new_project("name: shop\nenvironments: {prod: {version: p}, dev: {version: d}}\n")
    for environment in (None, "prod", "dev"):
        compile_project(root, environment).artifacts.write()
    assert sorted(path.name for path in (root / ".floe").iterdir()) == [
        "compiled.dev.json",
        "compiled.json",
        "compiled.prod.json",
    ]
    assert [CompiledArtifacts.load(root, name).version for name in (None, "prod", "dev")] == ["0.1.0", "p", "d"]


@pytest.mark.parametrize(("environment", "command"), [(None, "floe compile"), ("prod", "floe compile --env prod")])
def test_a_missing_contract_names_the_command(tmp_path: Path, environment: str | None, command: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        CompiledArtifacts.load(tmp_path, environment)
    assert str(caught.value).endswith(f"not found; create it with: {command}")


def test_a_contract_of_a_newer_floe_is_refused_with_how_to_upgrade(new_project: Project) -> None:
    artifacts = compile_project(new_project("name: shop\n")).artifacts
    path = artifacts.write()
    # A newer contract may hold keys that this Floe has never heard of; the version is what matters.
    path.write_text(json.dumps({"contract": CONTRACT_VERSION + 1, "galaxies": 1}))
    with pytest.raises(ConfigurationError, match=rf"version {CONTRACT_VERSION + 1}, made by a newer Floe") as caught:
        CompiledArtifacts.load(artifacts.root)
    assert "pip install --upgrade floe-runtime" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[]", "is not a contract of Floe"),
        (b"{}", "is not a contract of Floe"),
        (b'{"contract": "1"}', "is not a contract of Floe"),
        (b'{"contract": 1}', "has invalid keys (name, source_sha256)"),
        (b'{"contract": 1, "name": "a", "source_sha256": "x", "stars": 1}', "has invalid keys (stars)"),
    ],
)
def test_garbage_in_place_of_a_contract_is_refused_with_the_command(tmp_path: Path, content: bytes, words: str) -> None:
    path = contract_path(tmp_path, None)
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        CompiledArtifacts.load(tmp_path)
    assert words in str(caught.value)
    assert str(caught.value).endswith("create it again with: floe compile")


def test_a_contract_is_frozen(new_project: Project) -> None:
    artifacts = compile_project(new_project("name: shop\n")).artifacts
    with pytest.raises(ValidationError, match="frozen"):
        artifacts.name = "other"  # type: ignore[misc]  # the point of the test
    with pytest.raises(ValidationError, match="frozen"):
        artifacts.catalog.type = "rest"  # type: ignore[misc]  # the point of the test


def test_a_literal_secret_cannot_be_written_down_even_by_a_program() -> None:
    catalog = RestCatalogConfig(uri="https://u", warehouse="w", token=SecretStr("planted-value"))
    artifacts = CompiledArtifacts(name="shop", source_sha256="0", catalog=catalog)
    with pytest.raises(PydanticSerializationError) as caught:
        artifacts.to_bytes()
    assert "planted-value" not in str(caught.value)


def test_readers_and_writers_at_once_see_whole_contracts_only(new_project: Project) -> None:
    artifacts = compile_project(new_project("name: shop\n")).artifacts
    artifacts.write()
    failures: list[Exception] = []

    def work(write: bool) -> None:
        try:
            for _ in range(60):
                if write:
                    artifacts.write()
                else:
                    assert CompiledArtifacts.load(artifacts.root) == artifacts
        except Exception as exc:  # noqa: BLE001 - handed to the test's own thread
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(number % 2 == 0,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [path.name for path in (artifacts.root / ".floe").iterdir()] == ["compiled.json"]
