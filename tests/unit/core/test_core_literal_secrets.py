"""A secret is never written down: not in floe.yaml, and not in what Floe says about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError, Problem

Project = Callable[[str], Path]
ProblemsOf = Callable[..., tuple[Problem, ...]]

POLARIS = "name: shop\ncatalog:\n  type: polaris\n  uri: https://h/api\n  warehouse: w\n"


@pytest.mark.parametrize(
    ("text", "line", "path"),
    [
        (
            POLARIS + "  credentials: {client_id: a,\n    client_secret: hunter2}\n",
            7,
            "catalog.credentials.client_secret",
        ),
        (POLARIS + "  token: hunter2\n", 6, "catalog.token"),
        (POLARIS + "  token: prefix-${env:T}-hunter2\n", 6, "catalog.token"),
        (POLARIS + "  token: ${hunter2}\n", 6, "catalog.token"),
        (
            "name: shop\nstorage:\n  type: s3\n  bucket: b\n  secret_access_key: hunter2\n",
            5,
            "storage.secret_access_key",
        ),
        ("name: shop\nstorage:\n  type: s3\n  bucket: b\n  access_key_id: hunter2\n", 5, "storage.access_key_id"),
        (
            "name: shop\nspark:\n  conf:\n    spark.hadoop.fs.s3a.secret.key: hunter2\n",
            4,
            "spark.conf.spark.hadoop.fs.s3a.secret.key",
        ),
        (
            "name: shop\nspark:\n  conf:\n    spark.ssl.keyPassword: hunter2\n",
            4,
            "spark.conf.spark.ssl.keyPassword",
        ),
        (
            "name: shop\nenvironments:\n  prod:\n    spark:\n      conf:\n        spark.x.token: hunter2\n",
            6,
            "environments.prod.spark.conf.spark.x.token",
        ),
    ],
)
def test_a_literal_secret_is_refused_with_what_to_write_instead(
    problems_of: ProblemsOf, text: str, line: int, path: str
) -> None:
    told = [problem for problem in problems_of(text) if "floe.yaml must not contain secrets" in problem.message]
    assert [(problem.line, problem.path) for problem in told] == [(line, path)]
    assert 'write "${env:' in told[0].message


@pytest.mark.parametrize(
    "address",
    [
        "https://u:hunter2@h/api",
        "postgresql://u:hunter2@h/db",
        "postgresql://u:hunter2@x@h/db",
        "postgresql://${env:U}:hunter2@h/db",
        "jdbc:postgresql://u:hunter2@h/db",
        "jdbc:postgresql://h/db?user=u&password=hunter2",
    ],
)
def test_a_password_inside_an_address_is_refused(problems_of: ProblemsOf, address: str) -> None:
    (problem,) = problems_of(f'name: shop\nspark:\n  conf:\n    spark.x: "{address}"\n')
    assert (problem.line, problem.path) == (4, "spark.conf.spark.x")
    assert "floe.yaml must not contain passwords" in problem.message
    assert "hunter2" not in str(problem)


def test_the_token_of_a_spark_connect_server_is_refused(problems_of: ProblemsOf) -> None:
    (problem,) = problems_of('name: shop\nspark:\n  remote: "sc://h:443/;use_ssl=true;token=hunter2"\n')
    assert (problem.line, problem.path) == (3, "spark.remote")
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:${env:PW}@h/db",
        "postgresql://${env:U}:${env:PW}@h/db",
        "postgresql://u:${file:/run/secrets/pw}@h/db",
        "jdbc:postgresql://h/db?user=u&password=${env:PW}",
        "https://u@h/api",
        "https://${env:U}@h/api",
        "https://h:8181/api",
        "abfss://container@account.dfs.core.windows.net/path",
    ],
)
def test_addresses_without_a_literal_password_are_accepted(new_project: Project, address: str) -> None:
    root = new_project(f'name: shop\nspark:\n  conf:\n    spark.x: "{address}"\n')
    assert compile_project(root).artifacts.spark.conf == {"spark.x": address}


@pytest.mark.parametrize("secret", ["12345678", "1234.5678", "!!binary aHVudGVyMg=="])
@pytest.mark.parametrize(
    "text",
    [
        "spark: {conf: {spark.hadoop.fs.s3a.secret.key: %s}}",
        "tables: {properties: {s3.secret-access-key: %s}}",
        "catalog: {type: rest, uri: 'https://u', warehouse: w, token: %s}",
    ],
)
def test_a_literal_secret_is_refused_whatever_yaml_takes_it_for(
    problems_of: ProblemsOf, text: str, secret: str
) -> None:
    problems = problems_of(f"name: shop\n{text % secret}\n")
    assert not any(shown in str(problem) for problem in problems for shown in ("1234", "5678", "hunter2"))
    assert any("floe.yaml must not contain secrets" in problem.message for problem in problems)


def test_switches_under_credential_like_keys_are_no_secrets(new_project: Project) -> None:
    root = new_project(
        'name: shop\nspark: {conf: {spark.x.secret: true, spark.y.token: "false", spark.z.password: ""}}\n'
    )
    assert compile_project(root).artifacts.spark.conf["spark.x.secret"] == "true"


@pytest.mark.parametrize(
    "text",
    [
        POLARIS + "  token: hunter2\n  token: hunter2\n",
        POLARIS + "  token: hunter2\n  auth: none\n",
        POLARIS + "  token: [hunter2]\n",
        POLARIS + "  credentials: a:hunter2\n",
        POLARIS + "  credentials: {client_id: 5, client_secret: hunter2, x: hunter2}\n",
        "name: shop\ncatalog: {uri: 'postgresql://u:hunter2@h/db'}\n",
        "name: shop\ntoken: hunter2\n",
        "name: shop\nspark: {remote: 'http://u:hunter2@h'}\n",
        "name: shop\npassword: hunter2\ncatalog: {type: [a]}\n",
    ],
)
def test_no_refusal_shows_the_value(new_project: Project, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        compile_project(new_project(text))
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value.__cause__)
