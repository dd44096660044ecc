"""Environments are overlays on the base, each checked, each with a contract of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from floe_core.compiler import compile_project
from floe_core.config.spec import PolarisCatalogConfig, RetryConfig, SqlCatalogConfig
from floe_core.errors import Problem

Project = Callable[[str], Path]
ProblemsOf = Callable[..., tuple[Problem, ...]]

TWO = """\
name: shop
spark:
  master: local[2]
  conf: {spark.a: base, spark.b: base}
catalog:
  type: sql
  uri: sqlite:///base.db
environments:
  dev:
    spark:
      conf: {spark.b: dev, spark.c: dev}
  prod:
    protected: true
    catalog:
      type: polaris
      uri: https://h/api
      warehouse: w
      token: ${env:FLOE_TEST_UNSET_TOKEN}
"""


def test_an_overlay_merges_key_by_key(new_project: Project) -> None:
    artifacts = compile_project(new_project(TWO), "dev").artifacts
    assert artifacts.environment == "dev"
    assert artifacts.spark.master == "local[2]"
    assert artifacts.spark.conf == {"spark.a": "base", "spark.b": "dev", "spark.c": "dev"}
    assert artifacts.catalog == SqlCatalogConfig(uri="sqlite:///base.db")
    assert not artifacts.protected


def test_a_section_that_changes_its_type_is_replaced_whole(new_project: Project) -> None:
    artifacts = compile_project(new_project(TWO), "prod").artifacts
    assert isinstance(artifacts.catalog, PolarisCatalogConfig)
    assert artifacts.catalog.uri == "https://h/api"
    assert artifacts.protected


@pytest.mark.parametrize("base", ["type: sql, uri: 'sqlite:///x.db'", "uri: 'sqlite:///x.db'"])
def test_a_section_that_names_the_type_it_has_already_is_merged(new_project: Project, base: str) -> None:
    overlay = "environments: {e: {catalog: {type: sql, retry: {max_attempts: 2}}}}"
    text = f"name: shop\ncatalog: {{{base}}}\n{overlay}\n"
    assert compile_project(new_project(text), "e").artifacts.catalog == SqlCatalogConfig(
        uri="sqlite:///x.db", retry=RetryConfig(max_attempts=2)
    )


def test_the_base_is_untouched_by_its_overlays(new_project: Project) -> None:
    artifacts = compile_project(new_project(TWO)).artifacts
    assert artifacts.environment is None
    assert artifacts.spark.conf == {"spark.a": "base", "spark.b": "base"}
    assert not artifacts.protected


def test_only_the_chosen_environment_warns_and_at_its_own_line(new_project: Project) -> None:
    root = new_project(TWO)
    assert compile_project(root).warnings == ()
    assert compile_project(root, "dev").warnings == ()
    warning, storage = compile_project(root, "prod").warnings
    assert (warning.line, warning.path) == (18, "catalog.token")
    assert "storage: local" in storage.message


def test_an_unknown_environment_is_told_with_the_nearest_name(problems_of: ProblemsOf) -> None:
    (problem,) = problems_of(TWO, "prd")
    assert (problem.line, problem.path) == (8, "environments")
    assert problem.message == "environment 'prd' is not defined (defined: dev, prod); did you mean 'prod'?"


def test_an_environment_asked_of_a_file_without_any_is_refused(problems_of: ProblemsOf) -> None:
    (problem,) = problems_of("name: shop\n", "prod")
    assert problem.message == "environment 'prod' is not defined (defined: none)"


@pytest.mark.parametrize("environment", [None, "dev", "prod"])
def test_every_overlay_is_checked_whichever_is_chosen(problems_of: ProblemsOf, environment: str | None) -> None:
    (problem,) = problems_of(TWO.replace("warehouse: w", "warehouse: 5"), environment)
    assert (problem.line, problem.path) == (17, "environments.prod.catalog.warehouse")


def test_a_key_missing_from_an_overlay_is_told_at_the_overlay(problems_of: ProblemsOf) -> None:
    (problem,) = problems_of(TWO.replace("      warehouse: w\n", ""))
    assert str(problem) == "floe.yaml:14: environments.prod.catalog: the key 'warehouse' is missing"


def test_a_contradiction_between_base_and_overlay_is_told_at_the_overlay(problems_of: ProblemsOf) -> None:
    (problem,) = problems_of("name: shop\nspark: {master: a}\nenvironments:\n  e:\n    spark: {remote: 'sc://h'}\n")
    assert (problem.line, problem.path) == (5, "environments.e.spark")


def test_a_problem_of_the_base_is_told_once_and_not_through_each_overlay(problems_of: ProblemsOf) -> None:
    text = "name: shop\nspark:\n  mster: a\nenvironments:\n  a:\n    spark: {master: x}\n  b:\n    spark: {master: y}\n"
    assert [(problem.line, problem.path) for problem in problems_of(text, "b")] == [(3, "spark.mster")]


def test_the_same_mistake_in_base_and_overlay_is_told_at_both_places(problems_of: ProblemsOf) -> None:
    text = "name: shop\nspark:\n  mster: a\nenvironments:\n  a:\n    spark:\n      mster: b\n"
    assert [(problem.line, problem.path) for problem in problems_of(text)] == [
        (3, "spark.mster"),
        (7, "environments.a.spark.mster"),
    ]


def test_an_unknown_type_in_an_overlay_is_told_there(problems_of: ProblemsOf) -> None:
    (problem,) = problems_of("name: shop\nenvironments:\n  e:\n    storage: {type: s4}\n")
    assert (problem.line, problem.path) == (4, "environments.e.storage.type")


def test_an_environment_may_be_named_by_a_number(new_project: Project, problems_of: ProblemsOf) -> None:
    assert compile_project(new_project("name: shop\nenvironments: {7: {version: b}}\n"), "7").artifacts.version == "b"
    (problem,) = problems_of("name: shop\nenvironments: {7: {versoin: b}}\n", "7")
    assert "did you mean 'version'?" in problem.message
