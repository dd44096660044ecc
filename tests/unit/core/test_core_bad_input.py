"""Unknown keys, wrong values and names: one problem each, all at once, with file, line, path and advice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError, Problem

Project = Callable[[str], Path]
ProblemsOf = Callable[..., tuple[Problem, ...]]

POLARIS = "name: shop\ncatalog:\n  type: polaris\n  uri: https://h/api\n  warehouse: w\n  token: ${env:T}\n"


@pytest.mark.parametrize(
    ("text", "line", "path", "nearest"),
    [
        ("name: shop\nctalog: {}\n", 2, "ctalog", "catalog"),
        ("name: shop\nenviroments: {}\n", 2, "enviroments", "environments"),
        ("name: shop\nzzz: 1\n", 2, "zzz", None),
        ("name: shop\nspark:\n  mster: x\n", 3, "spark.mster", "master"),
        ("name: shop\nmaintenance:\n  expire:\n    keep_lst: 1\n", 4, "maintenance.expire.keep_lst", "keep_last"),
        ("name: shop\ncatalog: {urii: x}\n", 2, "catalog.urii", "uri"),
        (POLARIS + "  warehose: x\n", 7, "catalog.warehose", "warehouse"),
        (POLARIS + "  retry:\n    max_atempts: 3\n", 8, "catalog.retry.max_atempts", "max_attempts"),
        (
            POLARIS + "  credentials: {client_id: a, client_secret: '${env:S}', client_idd: b}\n",
            7,
            "catalog.credentials.client_idd",
            "client_id",
        ),
        ("name: shop\nstorage: {type: s3, bucket: b, regoin: x}\n", 2, "storage.regoin", "region"),
        ("name: shop\nenvironments:\n  prod:\n    sprk: {}\n", 4, "environments.prod.sprk", "spark"),
        (
            "name: shop\nenvironments:\n  prod:\n    spark:\n      remot: x\n",
            5,
            "environments.prod.spark.remot",
            "remote",
        ),
        (
            POLARIS + "environments:\n  prod:\n    catalog:\n      warehose: x\n",
            10,
            "environments.prod.catalog.warehose",
            "warehouse",
        ),
    ],
)
def test_an_unknown_key_is_told_with_the_nearest_name(
    problems_of: ProblemsOf, text: str, line: int, path: str, nearest: str | None
) -> None:
    (problem,) = problems_of(text)
    key = path.rpartition(".")[2]
    advice = f"; did you mean {nearest!r}?" if nearest else ""
    assert str(problem) == f"floe.yaml:{line}: {path}: unknown key {key!r}{advice}"


def test_environments_inside_an_environment_are_not_suggested_to_themselves(problems_of: ProblemsOf) -> None:
    (problem,) = problems_of("name: shop\nenvironments: {prod: {environments: {}}}\n")
    assert problem.path == "environments.prod.environments"
    assert "did you mean" not in problem.message


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("version: 1.0", "version", "this must be text; to keep it as written, put it in quotes"),
        ("version: 2024-01-01", "version", "put it in quotes"),
        ("version: yes", "version", "put it in quotes"),
        ("catalog: polaris", "catalog", "this must hold keys and values"),
        ("catalog:", "catalog", "this must hold keys and values"),
        ("spark: {conf: [a]}", "spark.conf", "this must hold keys and values"),
        (
            "storage: {type: s3, bucket: b, path_style_access: 7}",
            "storage.path_style_access",
            "this must be true or false",
        ),
        ("catalog: {retry: {max_attempts: three}}", "catalog.retry.max_attempts", "this must be a whole number"),
        ("catalog: {retry: {max_attempts: 11}}", "catalog.retry.max_attempts", "this must be 10 or less"),
        ("catalog: {retry: {max_wait_seconds: .nan}}", "catalog.retry.max_wait_seconds", "this must be"),
        ("maintenance: {expire: {older_than: 7}}", "maintenance.expire.older_than", "90s, 30m, 12h or 7d"),
        ("maintenance: {expire: {older_than: 1w}}", "maintenance.expire.older_than", "90s, 30m, 12h or 7d"),
        ("maintenance: {expire: {keep_last: 0}}", "maintenance.expire.keep_last", "this must be 1 or more"),
        ("maintenance: {compact: {target_file_size: big}}", "maintenance.compact.target_file_size", "128MB"),
        (
            "maintenance: {compact: {target_file_size: 0MB}}",
            "maintenance.compact.target_file_size",
            "this must be greater than 0",
        ),
        (
            "maintenance: {compact: {columns: day}}",
            "maintenance.compact.columns",
            "this must be a list, such as [a, b]",
        ),
        ("catalog: {retry: {max_wait_seconds: soon}}", "catalog.retry.max_wait_seconds", "this must be a number"),
        ("storage: {path: ''}", "storage.path", "this must not be empty"),
        ("observability: {log_format: xml}", "observability.log_format", "'console' or 'json'"),
        ("pipeline: {definitions: a-b}", "pipeline.definitions", "write it as package.module"),
        ("spark: {master: a, remote: 'sc://h'}", "spark", "are mutually exclusive"),
        ("spark: {remote: 'http://h'}", "spark", "sc://host:15002"),
        ("spark: {conf: {spark.master: x}}", "spark.conf.spark.master", "is set by Floe"),
        ("spark: {conf: {spark.sql.catalog.lake.io: x}}", "spark.conf.spark.sql.catalog.lake.io", "is set by Floe"),
        (
            "spark: {conf: {spark.sql.catalog.mine: x}}\ncatalog: {name: mine}",
            "spark.conf.spark.sql.catalog.mine",
            "is set by Floe",
        ),
        (
            "environments: {prod: {catalog: {name: mine}, spark: {conf: {spark.sql.catalog.mine.io: x}}}}",
            "environments.prod.spark.conf.spark.sql.catalog.mine.io",
            "is set by Floe",
        ),
        ("catalog: {name: my.catalog}", "catalog.name", "'my.catalog' contains a dot"),
        ("catalog: {name: spark_catalog}", "catalog.name", "'spark_catalog' is reserved in Spark SQL"),
        ("catalog: {name: System}", "catalog.name", "set catalog_name to another name in iceberg_tables"),
        ("catalog: {name: 'a b'}", "catalog.name", "'a b' is not a valid name"),
        ("catalog: {name: ''}", "catalog.name", "is not a valid name"),
        ("catalog: {name: '${env:NAME}'}", "catalog.name", "is not a valid name"),
        ("catalog: {name: 7}", "catalog.name", "put it in quotes"),
        (
            "catalog: {type: rest, uri: 'https://u', warehouse: w, auth: none, name: default}",
            "catalog.name",
            "unknown key 'name', which is for type: sql; did you mean 'warehouse'?",
        ),
        ("spark: {conf: {shuffle: x}}", "spark.conf.shuffle", "start with 'spark.'"),
        ("catalog: {uri: 'mysql://h'}", "catalog", "sqlite:///"),
        ("catalog: {type: rest, uri: 'https://u', warehouse: w}", "catalog", "no way to authenticate"),
        (
            "catalog: {type: rest, uri: 'https://u', warehouse: w, token: '${env:T}', auth: none}",
            "catalog",
            "contradicts",
        ),
        ("catalog: {type: rest, uri: 'https://u'}", "catalog", "the key 'warehouse' is missing"),
        ("catalog: {type: 5}", "catalog.type", "this must be"),
        ("catalog: {type: [polaris]}", "catalog.type", ""),
        ("storage: {type: {s3: b}}", "storage.type", ""),
        ("tables: {default_namespace: a/b}", "tables.default_namespace", "is not a valid name"),
        ("environments: [prod]", "environments", "NAME: {overlay}"),
        ("environments: []", "environments", "NAME: {overlay}"),
        ("environments: false", "environments", "NAME: {overlay}"),
        ("environments: {prod: yes}", "environments.prod", "keys and values"),
        ("environments: {'a/b': {}}", "environments.a/b", "is not a valid name"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(problems_of: ProblemsOf, text: str, path: str, words: str) -> None:
    (problem,) = problems_of(f"name: shop\n{text}\n")
    assert (problem.line, problem.path) == (2, path)
    assert words in problem.message


def test_the_name_is_the_one_key_that_must_be_there(problems_of: ProblemsOf) -> None:
    assert [str(problem) for problem in problems_of("version: a\n")] == ["floe.yaml: the key 'name' is missing"]


def test_a_duration_beyond_all_calendars_is_a_problem_and_no_crash(problems_of: ProblemsOf) -> None:
    (problem,) = problems_of("name: shop\nmaintenance: {expire: {older_than: 99999999999d}}\n")
    assert problem.path == "maintenance.expire.older_than"


def test_a_duration_that_is_too_short_is_told_in_the_words_of_the_file(problems_of: ProblemsOf) -> None:
    (problem,) = problems_of("name: shop\nmaintenance: {orphans: {older_than: 2h}}\n")
    assert "1d" in problem.message
    assert "timedelta" not in problem.message


def test_problems_are_reported_all_at_once_sorted_by_line(problems_of: ProblemsOf) -> None:
    text = """\
nmae: shop
name: a b
spark:
  conf:
    spark.app.name: 5
    spark.master: x
  mster: y
catalog:
  type: polaris
  uri: https://u:hunter2@h
  token: hunter2
  retry: {max_attempts: 0}
storage: {type: s4}
environments:
  prod:
    observability:
      log_format: xml
"""
    problems = problems_of(text)
    assert [(problem.line, problem.path) for problem in problems] == [
        (1, "nmae"),
        (2, "name"),
        (6, "spark.conf.spark.master"),
        (7, "spark.mster"),
        (8, "catalog"),
        (10, "catalog.uri"),
        (11, "catalog.token"),
        (12, "catalog.retry.max_attempts"),
        (13, "storage.type"),
        (17, "environments.prod.observability.log_format"),
    ]
    assert "hunter2" not in "\n".join(str(problem) for problem in problems)


def test_the_error_text_is_one_problem_a_line(new_project: Project) -> None:
    with pytest.raises(ConfigurationError) as caught:
        compile_project(new_project("nmae: shop\nctalog: {}\nname: x\n"))
    assert str(caught.value) == (
        "floe.yaml:1: nmae: unknown key 'nmae'; did you mean 'name'?\n"
        "floe.yaml:2: ctalog: unknown key 'ctalog'; did you mean 'catalog'?"
    )


@pytest.mark.parametrize(
    ("section", "kind", "nearest", "built_in"),
    [
        ("catalog", "polari", "polaris", ("sql", "rest", "polaris")),
        ("catalog", "sqll", "sql", ("sql", "rest", "polaris")),
        ("storage", "locl", "local", ("local", "s3")),
        ("storage", "hdfs", None, ("local", "s3")),
    ],
)
def test_an_unknown_type_is_told_with_what_is_known(
    problems_of: ProblemsOf, section: str, kind: str, nearest: str | None, built_in: tuple[str, ...]
) -> None:
    (problem,) = problems_of(f"name: shop\n{section}:\n  type: {kind}\n  any: thing\n")
    assert (problem.line, problem.path) == (3, f"{section}.type")
    suggestion = f"; did you mean {nearest!r}?" if nearest else ""
    assert problem.message.startswith(f"unknown type {kind!r}{suggestion}; known types: {', '.join(built_in)}")


@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "..",
        "../x",
        "a`b",
        "a'b",
        'a\\"b',
        "a b",
        "bücher",
        "店",
        "",
        "-a",
        "a.b",
        "a\\n",
        "x" * 129,
        "a;b",
        "$a",
    ],
)
def test_unusual_project_names_are_refused(problems_of: ProblemsOf, name: str) -> None:
    (problem,) = problems_of(f'name: "{name}"\n')
    assert (problem.line, problem.path) == (1, "name")
    assert "is not a valid name" in problem.message or "at most 128 are allowed" in problem.message


@pytest.mark.parametrize(
    "value", ["${env:}", "${ENV:X}", "${X}", "${", "${env:X", "a${secret:x}b", "${env:A}${b}", "${env:${env:A}}"]
)
def test_a_malformed_reference_is_told_what_to_write(problems_of: ProblemsOf, value: str) -> None:
    (problem,) = problems_of(f'name: shop\nspark:\n  jars: "{value}"\n')
    assert (problem.line, problem.path) == (3, "spark.jars")
    assert problem.message.endswith("is not a valid reference: write ${env:NAME} or ${file:path}")


@pytest.mark.parametrize("type_", ["polaris", "rest"])
@pytest.mark.parametrize("prefix", ["", "environments:\n  prod:\n    "])
def test_credentials_beside_the_address_are_pointed_to_their_place(
    problems_of: ProblemsOf, prefix: str, type_: str
) -> None:
    keys = f"type: {type_}, uri: https://h, warehouse: w, client_id: a, client_secret: '${{env:S}}'"
    found = problems_of(f"name: shop\n{prefix}catalog: {{{keys}}}\n")
    told = {one.path.rpartition(".")[2]: one.message for one in found}
    for key in ("client_id", "client_secret"):
        assert told[key] == (
            f'unknown key {key!r} here; write credentials: {{client_id: …, client_secret: "${{env:NAME}}"}}'
        )
