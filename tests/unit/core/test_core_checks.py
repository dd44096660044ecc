"""Checks as data: in Python, in floe.yaml and in the compiled contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from floe_core import CompiledArtifacts, TableCheck, compile_project
from floe_core.config import check_name
from floe_core.errors import ConfigurationError

YAML = """name: shop
checks:
  silver.orders:
    - not_null: id
    - unique: [id, day]
      scope: table
    - accepted_values: {column: status, values: [new, 1, true]}
      severity: warn
    - range: {column: amount, min: 0}
      blocking: true
    - condition: amount >= discount
    - references: {columns: store, table: silver.stores, to: id}
    - row_count: {change: 50%}
    - freshness: {max_age: 26h}
    - columns: {columns: {id: long}}
    - sql: {name: one big order, query: SELECT 1}
"""


def test_floe_yaml_declares_checks_and_the_contract_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text(YAML, encoding="utf-8")
    artifacts = compile_project(tmp_path).artifacts
    artifacts.write()
    checks = artifacts.checks["silver.orders"]
    assert CompiledArtifacts.load(tmp_path).checks == artifacts.checks
    assert [check_name(check) for check in checks] == [
        "not_null_id",
        "unique_id_day",
        "accepted_values_status",
        "range_amount",
        "condition_amount_discount",
        "references_store",
        "row_count",
        "freshness",
        "columns",
        "one_big_order",
    ]
    assert (checks[1].scope, checks[2].severity, checks[3].blocking) == ("table", "warn", True)
    assert checks[2].accepted_values is not None
    assert checks[2].accepted_values.values == ("new", 1, True)
    assert checks[6].row_count is not None
    assert checks[6].row_count.change == 0.5


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "this has none"),
        ({"not_null": "id", "unique": "id"}, "this has not_null, unique"),
        ({"not_null": []}, "name at least one column"),
        ({"unique": ["id", "ID"]}, "named twice"),
        ({"range": {"column": "id"}}, "give min, max or both"),
        ({"references": {"columns": ["a", "b"], "table": "x.y", "to": "id"}}, "2 columns refer to 1"),
        ({"references": {"columns": "a", "table": "../x", "to": "id"}}, "references.table"),
        ({"row_count": {}}, "give min, max or change"),
        ({"row_count": {"change": 0}}, "greater than 0"),
        ({"freshness": {"max_age": "0s"}}, "greater than zero"),
        ({"condition": " "}, "must not be empty"),
        ({"not_null": "id", "name": "a b"}, "letters, digits and underscores"),
        ({"not_null": "id", "severity": "warn", "blocking": True}, "a warning does not block"),
        ({"unique": "id", "quarantine": True}, "unique does not decide this for each row by itself"),
        (
            {"row_count": {"min": 1}, "quarantine": True},
            "quarantine is for not_null, accepted_values, range, condition",
        ),
        ({"not_null": "id", "quarantine": True, "scope": "table"}, "leave out scope: table, or quarantine"),
        ({"not_null": "id", "quarantine": True, "severity": "warn"}, "nothing is left to warn of"),
        ({"not_null": "id", "quarantine": "bad"}, "table 'bad' has no namespace"),
        ({"not_null": "id", "quarantine": 1}, "quarantine"),
    ],
)
def test_a_check_that_cannot_be_meant_is_refused(rule: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        TableCheck(**rule)
    assert message in str(error.value) or message in str(error.value).replace("\n", ".")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("- not_nul: id", "floe.yaml:4: checks.silver.orders[0].not_nul: unknown key 'not_nul'"),
        ("- not_null: id\n    - not_null: [id]", "silver.orders has two checks called not_null_id"),
        ("- range: {column: a, min: [1]}", "checks.silver.orders[0].range.min"),
        ("- {unique: id, quarantine: true}", "unique does not decide this for each row by itself"),
        ("- {not_null: id, quaratine: true}", "unknown key 'quaratine'"),
        ("- {not_null: id, quarantine: silver.orders}", "would move rows to the table that they are in"),
        (
            "- {not_null: id, quarantine: b.x}\n    - {not_null: at, quarantine: b.y}",
            "silver.orders' name several quarantine tables: b.x, b.y",
        ),
        (
            "- {not_null: id, quarantine: b.x}\n  b.y: [{not_null: id, quarantine: b.x}]",
            "would both move rows to 'b.x'",
        ),
        (
            "- {not_null: id, quarantine: b.x}\n  b.x: [{not_null: id, quarantine: true}]",
            "'silver.orders' would move rows to 'b.x', whose own rows are moved by its checks",
        ),
    ],
)
def test_problems_are_told_with_their_place(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "floe.yaml").write_text(f"name: shop\nchecks:\n  silver.orders:\n    {line}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as error:
        compile_project(tmp_path)
    assert message in str(error.value)


def test_names_of_tables_are_checked(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\nchecks: {orders: [{not_null: id}]}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="orders"):
        compile_project(tmp_path)
    twice = "name: shop\nchecks: {b.t: [{not_null: id}], B.t: [{unique: id}]}\n"
    (tmp_path / "floe.yaml").write_text(twice, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"b\.t and B\.t are one table to Spark"):
        compile_project(tmp_path)


def test_a_check_with_a_quarantine_blocks() -> None:
    assert TableCheck(not_null="id", quarantine=True).blocks
    assert TableCheck(not_null="id", blocking=True).blocks
    assert not TableCheck(not_null="id", quarantine=False).blocks
