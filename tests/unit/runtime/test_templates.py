"""The projects that `floe init` creates: every template on every catalog compiles, and editors can complete it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import jsonschema
import pytest
import yaml

from floe_core.compiler import compile_project
from floe_runtime.cli.init import init
from floe_runtime.templates import create_project


def offered(option: str) -> tuple[str, ...]:
    (kind,) = (one.type for one in init.params if one.name == option)
    assert isinstance(kind, click.Choice)
    return tuple(kind.choices)


@pytest.mark.parametrize("catalog", offered("catalog"))
@pytest.mark.parametrize("template", offered("template"))
def test_a_new_project_compiles_and_its_schema_accepts_it(tmp_path: Path, template: str, catalog: str) -> None:
    folder = tmp_path / "shop"
    create_project(template, folder, name="shop", catalog=catalog)
    artifacts = compile_project(folder).artifacts
    assert (artifacts.name, artifacts.catalog.type) == ("shop", catalog)
    assert folder.joinpath(*artifacts.pipeline.definitions.split(".")).with_suffix(".py").is_file()
    text = (folder / "floe.yaml").read_text()
    (named,) = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", text, re.M)
    jsonschema.validate(yaml.safe_load(text), json.loads((folder / named).read_text()))


@pytest.mark.parametrize("catalog", ["polaris", "rest"])
def test_a_line_that_must_be_changed_is_marked_and_secrets_are_variables(tmp_path: Path, catalog: str) -> None:
    create_project("spark", tmp_path, name="shop", catalog=catalog)
    lines = (tmp_path / "floe.yaml").read_text().splitlines()
    marked = {line.partition(":")[0].strip() for line in lines if "# change: " in line}
    assert marked == {"uri", "warehouse", "bucket", "region"} | ({"scope"} if catalog == "rest" else set())
    secrets = [line for line in lines if re.match(r" +client_(id|secret):", line)]
    assert len(secrets) == 2
    assert all(re.search(r': "\$\{env:\w+\}"$', line) for line in secrets)


@pytest.mark.parametrize("name", ["2026", "null", "yes", "1_000", "2026-01-01"])
def test_a_name_that_yaml_takes_for_a_value_is_still_a_name(tmp_path: Path, name: str) -> None:
    create_project("polars", tmp_path, name=name, catalog="sql")
    assert compile_project(tmp_path).artifacts.name == name


@pytest.mark.parametrize("template", offered("template"))
def test_a_new_project_holds_no_comments_for_the_linter_of_floe(tmp_path: Path, template: str) -> None:
    create_project(template, tmp_path, name="shop", catalog="sql")
    modules = list(tmp_path.rglob("*.py"))
    assert modules
    assert [path.name for path in modules if re.search("noqa|type: ignore", path.read_text())] == []
