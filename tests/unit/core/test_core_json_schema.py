"""The published schemas say what the compiler says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from floe_core.compiler import compile_project
from floe_core.config.json_schema import contract_schema, spec_schema, write_spec_schema

Project = Callable[[str], Path]


def complaints(schema: dict[str, Any], document: object) -> list[str]:
    Draft202012Validator.check_schema(schema)
    return [error.message for error in Draft202012Validator(schema).iter_errors(document)]


def test_the_schema_accepts_the_example_of_the_design(design_example: str) -> None:
    assert complaints(spec_schema(), yaml.safe_load(design_example)) == []


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "catalog: {type: sql}",
        "catalog: {uri: 'sqlite:///x.db'}",
        "catalog: {type: rest, uri: 'https://u', warehouse: w, auth: none}",
        "storage: {type: local, path: x}",
        "spark: {conf: {spark.sql.shuffle.partitions: 8, spark.x: true}}",
        "tables: {properties: {write.metadata.previous-versions-max: 10}}",
        "maintenance: {expire: {older_than: 36h}, compact: {target_file_size: 1048576}}",
        "maintenance: {namespaces: {bronze.raw: {expire: {keep_last: 3}}}, floor: {domains: {gold: 3d}}}",
        "maintenance: {schedule: '@daily', retry_window: 2d, longest_job: 6h}",
        "environments: {prod: {protected: true, catalog: {type: rest, uri: 'https://u', warehouse: w, auth: none}}}",
        "environments: {prod: {spark: {conf: {spark.x: y}}}}",
        "catalog: {name: my-catalog}",
        "{catalog: {type: sql, name: default}, spark: {conf: {spark.sql.catalog.lake: another.Catalog}}}",
    ],
)
def test_the_schema_accepts_what_the_compiler_accepts(new_project: Project, text: str) -> None:
    document = {"name": "shop", **yaml.safe_load(text)}
    compile_project(new_project(yaml.safe_dump(document)))
    assert complaints(spec_schema(), document) == []


@pytest.mark.parametrize(
    "text",
    [
        "ctalog: {}",
        "spark: {mster: x}",
        "catalog: {urii: x}",
        "catalog: {type: sql, urii: x}",
        "catalog: {type: polaris, uri: 'https://u', warehouse: w, token: '${env:T}', tokn: x}",
        "catalog: {type: polaris, uri: 'https://u', token: '${env:T}'}",
        "storage: {type: s3, bucket: b, regoin: x}",
        "storage: {type: s3}",
        "version: 1.0",
        "catalog: {retry: {max_attempts: 11}}",
        "maintenance: {expire: {older_than: 1w}}",
        "observability: {log_format: xml}",
        "environments: {prod: {sprk: {}}}",
        "environments: []",
    ],
)
def test_the_schema_rejects_what_is_unknown_missing_or_of_the_wrong_type(text: str) -> None:
    assert complaints(spec_schema(), {"name": "shop", **yaml.safe_load(text)})


def test_the_schema_leaves_the_keys_of_plugins_to_them() -> None:
    assert complaints(spec_schema(), {"name": "shop", "catalog": {"type": "glue", "region": "x"}}) == []


def test_the_name_is_required() -> None:
    assert complaints(spec_schema(), {}) == ["'name' is a required property"]


@pytest.mark.parametrize("text", ["name: shop\n", None])
def test_the_schema_of_the_contract_accepts_compiled_bytes(
    new_project: Project, design_example: str, text: str | None
) -> None:
    artifacts = compile_project(new_project(text or design_example)).artifacts
    assert complaints(contract_schema(), json.loads(artifacts.to_bytes())) == []


def test_the_schema_of_the_contract_rejects_unknown_keys(new_project: Project) -> None:
    contract = json.loads(compile_project(new_project("name: shop\n")).artifacts.to_bytes())
    assert complaints(contract_schema(), {**contract, "stars": 1})


def test_schemas_are_json() -> None:
    for schema in (spec_schema(), contract_schema()):
        assert json.loads(json.dumps(schema)) == schema
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_schema_is_put_where_an_editor_finds_it(tmp_path: Path) -> None:
    for _ in range(2):
        path = write_spec_schema(tmp_path)
    assert path == tmp_path / ".floe" / "floe.schema.json"
    assert json.loads(path.read_text()) == spec_schema()
