"""`floe namespaces` as its users run it: another process, a real catalog, real exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests import commands
from tests.catalogs import rest_settings
from tests.lakes import open_manager
from tests.servers.seaweedfs import SeaweedFS

from floe_core.identifiers import Namespace, TableIdentifier


def floe(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return commands.floe("namespaces", *arguments, cwd=cwd)


def told(*arguments: str, cwd: Path, code: int = 0) -> dict[str, Any]:
    """The document that a command prints for programs; nothing else is on standard output."""
    ran = floe(*arguments, "--json", cwd=cwd)
    assert ran.returncode == code, ran.stdout + ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    assert document["ok"] is (code == 0)
    return document


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project on the embedded catalog, with an environment that is protected."""
    (tmp_path / "floe.yaml").write_text("name: shop\nenvironments: {prod: {protected: true}}\n", encoding="utf-8")
    return tmp_path


def test_a_namespace_lives_through_all_verbs(shop: Path) -> None:
    assert told("list", cwd=shop)["namespaces"] == []
    made = told("create", "bronze.raw.events", "--property", "owner=sales", "--property", "rule=a=b", cwd=shop)
    assert made == {"ok": True, "namespace": "bronze.raw.events", "created": True}
    open_manager(shop).create_table(
        TableIdentifier.from_string("bronze.raw.orders"), pa.schema([("id", pa.int64())]), comment="one table"
    )
    assert told("list", cwd=shop)["namespaces"] == ["bronze"]
    assert told("list", "bronze", cwd=shop)["namespaces"] == ["bronze.raw"]
    assert told("list", "--recursive", cwd=shop)["namespaces"] == ["bronze", "bronze.raw", "bronze.raw.events"]
    assert told("show", "bronze.raw", cwd=shop) == {
        "ok": True,
        "name": "bronze.raw",
        "properties": {},
        "tables": ["orders"],
        "namespaces": ["events"],
    }
    changed = told("set", "bronze.raw.events", "tier=1", "rule=", "--remove", "owner", cwd=shop)
    assert changed["properties"] == {"rule": "", "tier": "1"}
    assert told("drop", "bronze.raw.events", cwd=shop)["dropped"] is True
    assert open_manager(shop).list_namespaces(recursive=True) == [
        Namespace.from_string("bronze"),
        Namespace.from_string("bronze.raw"),
    ]


@pytest.mark.full
def test_people_read_tables_and_sentences(shop: Path) -> None:
    assert "no namespaces yet" in floe("list", cwd=shop).stdout
    created = floe("create", "bronze.raw", "--property", "note=[bold]as it is[/bold]", cwd=shop)
    assert (created.stdout, created.stderr) == ("created namespace bronze.raw\n", "")
    assert floe("create", "bronze.raw", cwd=shop).stdout == "namespace bronze.raw is there already\n"
    listed = floe("list", "--recursive", cwd=shop)
    assert [line.strip() for line in listed.stdout.splitlines() if "bronze" in line] == ["bronze", "bronze.raw"]
    shown = floe("show", "bronze.raw", cwd=shop).stdout
    assert "bronze.raw: no tables, no namespaces" in shown
    assert "[bold]as it is[/bold]" in shown
    changed = floe("set", "bronze.raw", "client_secret=hunter2-hunter2", cwd=shop)
    assert "***" in changed.stdout
    assert "hunter2-hunter2" not in changed.stdout + changed.stderr
    assert "no namespaces in bronze.raw" in floe("list", "bronze.raw", cwd=shop).stdout
    assert floe("drop", "bronze.raw", cwd=shop).stdout == "dropped namespace bronze.raw\n"


def test_what_is_refused_is_exit_code_3_and_changes_nothing(shop: Path) -> None:
    tables = open_manager(shop)
    bronze = Namespace.from_string("bronze")
    tables.create_namespace(bronze, {"owner": "sales"})
    assert "--yes" in told("drop", "bronze", "--env", "prod", cwd=shop, code=3)["error"]
    assert tables.namespace_exists(bronze)

    other = told("create", "bronze", "--property", "owner=finance", cwd=shop, code=3)["error"]
    assert "exists already, with other properties (owner)" in other
    assert told("create", "bronze", "--property", "owner=finance", "--if-not-exists", cwd=shop)["created"] is False
    assert told("create", "bronze", "--property", "owner=sales", cwd=shop)["created"] is False
    assert tables.load_namespace(bronze).properties == {"owner": "sales"}

    tables.create_table(TableIdentifier.from_string("bronze.orders"), pa.schema([("id", pa.int64())]))
    full = floe("drop", "bronze", "--yes", "--env", "prod", cwd=shop)
    assert full.returncode == 3
    assert "namespace 'bronze' is not empty: 1 table (orders); drop them first" in full.stderr
    tables.drop_table(TableIdentifier.from_string("bronze.orders"))
    assert told("drop", "bronze", "--yes", "--env", "prod", cwd=shop)["dropped"] is True


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["set", "bronze"], 2, "Say what to set"),
        (["set", "bronze", "owner"], 2, "write a property as KEY=VALUE"),
        (["create", "bronze", "--property", "=x"], 2, "write a property as KEY=VALUE"),
        (["create"], 2, "Missing argument"),
        (["frobnicate"], 2, "No such command"),
        (["create", "bronze/raw"], 1, "is not a valid name"),
        (["list", ""], 1, "is not a valid name"),
        (["list", "nowhere"], 1, "namespace 'nowhere' not found in catalog"),
        (["show", "nowhere"], 1, "namespace 'nowhere' not found in catalog"),
        (["drop", "nowhere"], 1, "namespace 'nowhere' not found in catalog"),
        (["set", "nowhere", "a=b"], 1, "namespace 'nowhere' not found in catalog"),
        (["set", "nowhere", "a=b", "--remove", "a"], 1, "a cannot be both set and removed"),
    ],
)
def test_a_mistake_is_a_sentence_and_an_exit_code(shop: Path, arguments: list[str], code: int, reason: str) -> None:
    ran = floe(*arguments, cwd=shop)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert reason in ran.stderr
    assert "Traceback" not in ran.stderr


def test_removing_a_property_that_is_not_there_is_told(shop: Path) -> None:
    floe("create", "bronze", cwd=shop)
    ran = floe("set", "bronze", "--remove", "owner", cwd=shop)
    assert (ran.returncode, ran.stdout) == (0, "namespace bronze has no properties\n")
    assert "has no property owner" in ran.stderr


@pytest.mark.full
def test_the_same_commands_work_on_a_catalog_server(server: SeaweedFS, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text(f"name: shop\n{rest_settings(server)}", encoding="utf-8")
    deep = f"{namespace}.raw.events"
    assert told("create", deep, "--property", "owner=sales", cwd=tmp_path)["created"] is True
    assert told("create", deep, "--property", "owner=sales", cwd=tmp_path)["created"] is False
    assert told("list", namespace, "--recursive", cwd=tmp_path)["namespaces"] == [f"{namespace}.raw", deep]
    assert told("set", deep, "tier=1", "--remove", "owner", cwd=tmp_path)["properties"]["tier"] == "1"
    assert "owner" not in told("show", deep, cwd=tmp_path)["properties"]
    refused = floe("drop", namespace, cwd=tmp_path)
    assert refused.returncode == 3
    assert f"namespace '{namespace}' is not empty: 1 namespace (raw); drop them first" in refused.stderr
    for name in (deep, f"{namespace}.raw", namespace):
        assert told("drop", name, cwd=tmp_path)["dropped"] is True
    assert told("list", namespace, cwd=tmp_path, code=1)["error"].startswith(f"namespace '{namespace}' not found")
