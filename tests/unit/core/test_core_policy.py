"""The maintenance policy: floe.yaml, the namespaces over it, the tables over both, and who must agree."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.config.policy import CompactionStrategy, MaintenanceConfig, MaintenancePolicy, RetentionFloor, policy_of
from floe_core.errors import ConfigurationError, Problem
from floe_core.identifiers import TableIdentifier
from floe_core.maintenance.governance import FloorEnforcer, PolicyEnforcer, RetentionRule, validated_retention

ORDERS = TableIdentifier.from_string("bronze.raw.orders")
# As tables have them that Floe creates.
GIVEN = {"history.expire.max-snapshot-age-ms": "604800000", "write.target-file-size-bytes": str(128 * 2**20)}
NAMESPACES = """\
name: shop
maintenance:
  expire: {keep_last: 5}
  namespaces:
    bronze: {expire: {older_than: 30d}, compact: {strategy: sort, columns: [day]}}
    bronze.raw: {expire: {keep_last: 2}}
    silver: {enabled: false}
"""

Project = Callable[[str], Path]
ProblemsOf = Callable[[str], list[Problem]]


def of(config: MaintenanceConfig, properties: Mapping[str, str] = {}, table: str = str(ORDERS)) -> MaintenancePolicy:
    return policy_of(config, TableIdentifier.from_string(table), {**GIVEN, **properties}, GIVEN)


def test_a_namespace_has_its_whole_policy_in_the_contract(new_project: Project) -> None:
    artifacts = compile_project(new_project(NAMESPACES)).artifacts
    written = json.loads(artifacts.to_bytes())["maintenance"]["namespaces"]
    assert written["bronze"]["expire"] == {"older_than": "30d", "keep_last": 5}
    assert written["bronze.raw"]["expire"] == {"older_than": "30d", "keep_last": 2}
    assert written["bronze.raw"]["compact"]["columns"] == ["day"]
    artifacts.write()
    assert CompiledArtifacts.load(artifacts.root) == artifacts


@pytest.mark.parametrize(
    ("table", "older_than", "keep_last", "enabled"),
    [
        ("gold.sales", 7, 5, True),
        ("bronze.orders", 30, 5, True),
        ("bronze.raw.orders", 30, 2, True),
        ("bronze.raw.old.orders", 30, 2, True),
        ("bronzed.orders", 7, 5, True),
        ("silver.orders", 7, 5, False),
    ],
)
def test_the_nearest_namespace_decides(
    new_project: Project, table: str, older_than: int, keep_last: int, enabled: bool
) -> None:
    policy = of(compile_project(new_project(NAMESPACES)).artifacts.maintenance, table=table)
    assert (policy.expire.older_than.days, policy.expire.keep_last, policy.enabled) == (older_than, keep_last, enabled)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, {}),
        ({"floe.maintenance.expire.older-than": "90d"}, {"expire.older_than": timedelta(days=90)}),
        ({"floe.maintenance.expire.keep-last": "3"}, {"expire.keep_last": 3}),
        ({"floe.maintenance.compact.target-file-size": "1GB"}, {"compact.target_file_size": 2**30}),
        ({"floe.maintenance.compact.min-files": "9"}, {"compact.min_files": 9}),
        (
            {"floe.maintenance.compact.strategy": "zorder", "floe.maintenance.compact.columns": "a, b"},
            {"compact.strategy": CompactionStrategy.Z_ORDER, "compact.columns": ("a", "b")},
        ),
        ({"floe.maintenance.orphans.older-than": "10d"}, {"orphans.older_than": timedelta(days=10)}),
        ({"floe.maintenance.statistics": "true"}, {"statistics": True}),
        ({"floe.maintenance.enabled": "false"}, {"enabled": False}),
        # As good as never.
        ({"history.expire.max-snapshot-age-ms": str(2**63 - 1)}, {"expire.older_than": timedelta(days=36_500)}),
        # Nobody asks what else a table says that is left alone.
        ({"floe.maintenance.enabled": "false", "history.expire.min-snapshots-to-keep": "0"}, {"enabled": False}),
        # Iceberg's own words count where somebody changed them.
        ({"history.expire.max-snapshot-age-ms": "172800000"}, {"expire.older_than": timedelta(days=2)}),
        ({"history.expire.min-snapshots-to-keep": "77"}, {"expire.keep_last": 77}),
        ({"write.target-file-size-bytes": "1000"}, {"compact.target_file_size": 1000}),
        (
            {"history.expire.max-snapshot-age-ms": "172800000", "floe.maintenance.expire.older-than": "3d"},
            {"expire.older_than": timedelta(days=3)},
        ),
    ],
)
def test_a_table_says_it_over_its_namespace(properties: dict[str, str], expected: dict[str, Any]) -> None:
    config = MaintenanceConfig()
    policy, plain = of(config, properties), of(config)
    for path in ("enabled", "statistics", "expire.older_than", "expire.keep_last", "compact.target_file_size"):
        assert _at(policy, path) == expected.get(path, _at(plain, path))
    for path, value in expected.items():
        assert _at(policy, path) == value


def _at(policy: MaintenancePolicy, path: str) -> Any:
    found: Any = policy
    for name in path.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"floe.maintenance.expire.older-than": "soon"}, "expire.older_than: write a duration"),
        ({"floe.maintenance.expire.older-then": "7d"}, "did you mean 'floe.maintenance.expire.older-than'"),
        ({"floe.maintenance.expire.keep-last": "0"}, "this must be 1 or more"),
        ({"floe.maintenance.expire.older-than": "0s"}, "greater than zero"),
        ({"floe.maintenance.expire.older-than": "2h"}, "retry_window"),
        ({"floe.maintenance.orphans.older-than": "2h"}, "at least 1d"),
        ({"history.expire.max-snapshot-age-ms": "a week"}, "must be a whole number"),
        ({"floe.maintenance.compact.strategy": "zorder"}, "zorder needs columns"),
    ],
)
def test_a_table_that_says_nonsense_is_refused_by_name(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        of(MaintenanceConfig(), properties)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("{expire: {older_than: 0s}}", "maintenance.expire.older_than", "greater than zero"),
        ("{expire: {older_than: 12h}}", "maintenance", "1d (retry_window) in which a run may be retried"),
        ("{retry_window: 8d}", "maintenance", "a retry would not find its write, and would write twice"),
        ("{longest_job: 3d}", "maintenance", "longest_job"),
        ("{namespaces: {bronze: {expire: {older_than: 1h}}}}", "maintenance", "namespaces.bronze.expire.older_than"),
        ("{namespaces: {a/b: {}}}", "maintenance", "not a valid name"),
        ("{namespaces: {bronze: {expir: {}}}}", "maintenance.namespaces.bronze.expir", "did you mean 'expire'"),
        ("{floor: {products: {orders: 3d}}}", "maintenance.floor", "has no namespace"),
        ("{floor: {enterprise: 8d}}", "maintenance", "floor.enterprise: it requires 8d, but expire.older_than is 7d"),
        ("{floor: {domains: {gold: 90d}}}", "maintenance", "set namespaces: {gold: {expire: {older_than: 90d}}}"),
        ("{schedule: nightly}", "maintenance", "0 3 * * *"),
        ("{schedule: '0 99 * * *'}", "maintenance", "0 3 * * *"),
        ("{schedule: '0 0 3 * * *'}", "maintenance", "0 3 * * *"),
        ("{schedule: '@nightly'}", "maintenance", "@daily"),
        ("{compact: {strategy: zorder}}", "maintenance", "zorder needs columns"),
        ("{compact: {columns: [a]}}", "maintenance", "binpack keeps the order"),
        ("{compact: {min_files: 1}}", "maintenance.compact.min_files", "this must be 2 or more"),
    ],
)
def test_a_policy_that_would_lose_or_double_rows_is_refused(
    problems_of: ProblemsOf, text: str, path: str, words: str
) -> None:
    (problem,) = problems_of(f"name: shop\nmaintenance: {text}\n")
    assert (problem.path, problem.line) == (path, 2)
    assert words in problem.message


@pytest.mark.parametrize(
    ("days", "refused_by"),
    [(100, None), (91, None), (89, "products.bronze.raw.orders"), (29, "products.bronze.raw.orders")],
)
def test_the_longest_floor_of_the_levels_holds(days: int, refused_by: str | None) -> None:
    floor = RetentionFloor.model_validate(
        {
            "enterprise": "7d",
            "domains": {"bronze": "30d", "bronze.raw": "20d"},
            "products": {"bronze.raw.orders": "90d"},
        }
    )
    asked = timedelta(days=days)
    if refused_by is None:
        assert validated_retention(FloorEnforcer(), floor, ORDERS, asked) == asked
        return
    with pytest.raises(ConfigurationError, match=refused_by):
        validated_retention(FloorEnforcer(), floor, ORDERS, asked)


def test_a_domain_and_the_enterprise_have_a_say_each() -> None:
    floor = RetentionFloor.model_validate({"enterprise": "7d", "domains": {"bronze": "30d", "gold": "2d"}})
    with pytest.raises(ConfigurationError, match=r"domains\.bronze.*not for 29d"):
        validated_retention(FloorEnforcer(), floor, ORDERS, timedelta(days=29))
    gold = TableIdentifier.from_string("gold.sales")
    with pytest.raises(ConfigurationError, match=r"enterprise.*not for 3d"):
        validated_retention(FloorEnforcer(), floor, gold, timedelta(days=3))


def test_an_enforcer_of_ones_own_decides() -> None:
    class Doubling:
        def get_snapshot_retention(
            self,
            table: TableIdentifier,
            asked: timedelta,
            *,
            enterprise_policy: RetentionRule,
            domain_policy: RetentionRule | None,
            product_policy: RetentionRule | None,
        ) -> timedelta:
            assert (table, enterprise_policy.minimum, domain_policy, product_policy) == (
                ORDERS,
                timedelta(days=1),
                None,
                None,
            )
            return asked * 2

    assert isinstance(Doubling(), PolicyEnforcer)
    assert validated_retention(Doubling(), RetentionFloor(), ORDERS, timedelta(days=4)) == timedelta(days=8)


@pytest.mark.parametrize("answer", [timedelta(minutes=1), timedelta(0), None, 7])
def test_an_enforcer_that_answers_less_than_was_asked_for_is_not_believed(answer: Any) -> None:
    class Careless:
        def get_snapshot_retention(self, *_: object, **__: object) -> Any:
            return answer

    with pytest.raises(ConfigurationError, match=r"enforcer answered .* not shorter than the 4d"):
        validated_retention(Careless(), RetentionFloor(), ORDERS, timedelta(days=4))


def test_a_floor_that_the_namespace_keeps_is_taken() -> None:
    floor = {"domains": {"bronze": "90d"}}
    kept = {"bronze": {"expire": {"older_than": "90d"}}}
    config = MaintenanceConfig.model_validate({"floor": floor, "namespaces": kept}).resolved()
    assert of(config).expire.older_than == timedelta(days=90)
    off = MaintenanceConfig.model_validate({"floor": floor, "namespaces": {"bronze": {"enabled": False}}}).resolved()
    assert not of(off).enabled


def test_bytes_are_a_size_and_a_stranger_is_not_taken_for_a_neighbour() -> None:
    config = MaintenanceConfig().resolved()
    key = "floe.maintenance.compact.target-file-size"
    assert of(config, {key: "1048576"}).compact.target_file_size == of(config, {key: "1MB"}).compact.target_file_size
    with pytest.raises(ConfigurationError, match=r"unknown table property 'floe.maintenance.schedule'$"):
        of(config, {"floe.maintenance.schedule": "@daily"})


@pytest.mark.parametrize("cron", ["0 3 * * *", "*/15 0-6,22 1,15 jan-mar mon-fri", "30 2 * * 7", "@daily"])
def test_a_schedule_is_a_cron_schedule(cron: str) -> None:
    assert MaintenanceConfig(schedule=cron).schedule == cron


def test_half_of_a_policy_is_laid_over_the_other_half() -> None:
    config = MaintenanceConfig.model_validate(
        {"compact": {"strategy": "sort", "columns": ["a"]}, "namespaces": {"bronze": {"compact": {"columns": ["b"]}}}}
    ).resolved()
    policy = of(config)
    assert (policy.compact.strategy, policy.compact.columns) == (CompactionStrategy.SORT, ("b",))
    assert of(config, {"floe.maintenance.compact.columns": "c,d"}).compact.columns == ("c", "d")


def test_a_table_may_be_maintained_in_a_namespace_that_is_not() -> None:
    config = MaintenanceConfig.model_validate({"namespaces": {"bronze": {"enabled": False}}}).resolved()
    assert not of(config).enabled
    assert of(config, {"floe.maintenance.enabled": "true"}).enabled
