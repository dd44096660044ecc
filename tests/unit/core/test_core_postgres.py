"""The address of a PostgreSQL database: what may be written, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from floe_core.compiler import compile_project
from floe_core.config.postgres_address import PostgresAddress, is_postgres, postgres_problem
from floe_core.config.spec import SqlCatalogConfig
from floe_core.errors import Problem
from floe_core.security.redaction import redact

ROOT = Path("/project")


def parse(uri: str) -> PostgresAddress:
    return PostgresAddress.parse(uri, root=ROOT)


def test_an_address_is_taken_apart() -> None:
    found = parse("postgresql://anna:planted@db.example.com:6543/shop?sslmode=require")
    assert (found.user, found.password, found.host, found.port) == ("anna", "planted", "db.example.com", 6543)
    assert (found.database, found.sslmode, found.sslrootcert) == ("shop", "require", None)


def test_what_may_be_left_out_has_the_values_everybody_expects() -> None:
    found = parse("postgres://anna@h/shop")
    assert (found.port, found.password, found.sslmode) == (5432, None, "require")
    assert parse("postgres://anna@localhost/shop").sslmode == "prefer"
    assert parse("postgresql://anna:@h/shop").password is None


def test_names_and_passwords_are_unescaped() -> None:
    found = parse("postgresql://o%27neil%40x:p%40ss%3A%2F%25@h/my%20shop")
    assert (found.user, found.password, found.database) == ("o'neil@x", "p@ss:/%", "my shop")


@pytest.mark.parametrize("password", ["p@ss", "p:ss", "p/ss", "p?ss#", "100%", "a@b:1/c?d@e"])
def test_a_password_that_nobody_escaped_is_found_all_the_same(password: str) -> None:
    found = parse(f"postgresql://anna:{password}@h:1/shop")
    assert (found.password, found.host, found.port, found.database) == (password, "h", 1, "shop")


def test_a_host_may_be_a_number_of_either_kind() -> None:
    assert parse("postgresql://anna@10.0.0.1/shop").authority == "10.0.0.1:5432"
    assert parse("postgresql://anna@[::1]:6543/shop").host == "::1"
    assert str(parse("postgresql://anna@[::1]:6543/shop")) == "postgresql://[::1]:6543/shop"


def test_the_file_of_authorities_is_relative_to_the_project() -> None:
    assert parse("postgresql://a@h/d?sslmode=verify-ca&sslrootcert=ca.pem").sslrootcert == ROOT / "ca.pem"
    assert parse("postgresql://a@h/d?sslmode=verify-full&sslrootcert=/etc/ca.pem").sslrootcert == Path("/etc/ca.pem")


def test_a_password_is_not_shown_and_masked_from_then_on() -> None:
    found = parse("postgresql://anna:planted%40value@h/shop")
    assert "planted" not in repr(found) + str(found)
    assert redact("planted@value, planted%40value") == "***, ***"


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("postgresql+psycopg2://a@h/d", "write postgresql:// without +psycopg2"),
        ("postgresql+pg8000://a@h/d", "each engine uses its own driver"),
        ("postgresql://h/d", "write postgresql://user:${env:PGPASSWORD}@host:5432/database"),
        ("postgresql://a@h", "write postgresql://user"),
        ("postgresql://a@h/", "write postgresql://user"),
        ("postgresql://a@/d", "write postgresql://user"),
        ("postgresql:///d", "write postgresql://user"),
        ("postgresql:a@h/d", "write postgresql://user"),
        ("postgresql://a@h1,h2/d", "write postgresql://user"),
        ("postgresql://a@h:x/d", "write postgresql://user"),
        ("postgresql://a@h/d/e", "write postgresql://user"),
        ("postgresql://a@h/d#x", "write postgresql://user"),
        ("postgresql://a@x:hunter2@h/d", "write postgresql://user"),
        ("postgresql://a@h:0/d", "port 0 is out of range"),
        ("postgresql://a@h:65536/d", "port 65536 is out of range"),
        ("postgresql://a@h/d?connect_timeout=3", "unknown option 'connect_timeout'"),
        ("postgresql://a@h/d?password=hunter2", "unknown option 'password'"),
        ("postgresql://a@h/d?sslmode=allow", "sslmode must be one of disable, prefer, require, verify-ca, verify-full"),
        ("postgresql://a@h/d?sslmode=", "sslmode must be one of"),
        ("postgresql://a@h/d?sslmode=verify-full", "need sslrootcert=FILE"),
        ("postgresql://a@h/d?sslmode=require&sslrootcert=ca.pem", "the other modes do not accept it"),
        ("postgresql://a@h/d?sslrootcert=ca.pem", "the other modes do not accept it"),
    ],
)
def test_what_is_wrong_with_an_address_is_told_without_its_secret(uri: str, words: str) -> None:
    assert is_postgres(uri)
    problem = postgres_problem(uri) or ""
    assert words in problem
    assert "hunter2" not in problem
    with pytest.raises(ValueError, match="uri: "):
        SqlCatalogConfig(uri=uri)
    with pytest.raises(ValueError):
        parse(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://anna:${env:PW}@h:5432/shop",
        "postgresql://${env:U}:${file:/run/secrets/pw}@${env:H}:${env:PORT}/${env:DB}",
        "postgresql://${env:U}@h/shop?sslmode=${env:MODE}",
        "postgresql://anna:${env:PW}@h/shop?sslmode=verify-full&sslrootcert=${env:CA}",
        "${env:DATABASE_URL}",
    ],
)
def test_any_part_may_be_a_reference_and_stays_one(new_project: Callable[[str], Path], uri: str) -> None:
    artifacts = compile_project(new_project(f'name: shop\ncatalog: {{type: sql, uri: "{uri}"}}\n')).artifacts
    assert artifacts.catalog == SqlCatalogConfig(uri=uri)
    assert uri.encode() in artifacts.to_bytes()


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("postgresql://anna:hunter2@h/shop", "floe.yaml must not contain passwords"),
        ("postgresql://${env:U}:hunter2@h/shop", "floe.yaml must not contain passwords"),
        ("postgresql://anna:${env:PW}hunter2@h/shop", "floe.yaml must not contain passwords"),
        ("postgresql://anna:${env:PW}@h/shop?sslcert=x", "unknown option 'sslcert'"),
        ("mysql://anna:${env:PW}@h/shop", "or postgresql://user:${env:PGPASSWORD}@host:5432/database"),
    ],
)
def test_floe_yaml_refuses_it_with_its_place(
    problems_of: Callable[..., tuple[Problem, ...]], uri: str, words: str
) -> None:
    (problem,) = problems_of(f'name: shop\ncatalog:\n  uri: "{uri}"\n')
    assert words in problem.message
    assert "hunter2" not in str(problem)
