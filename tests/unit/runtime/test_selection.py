"""The assets that a selection names, and the error for one that names nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dagster import AssetSpec, Definitions, asset

from floe_core.errors import ConfigurationError
from floe_runtime.runs.selection import select


def _chain() -> Iterator[Any]:
    """raw/orders -> bronze/orders -> silver/orders -> gold/revenue and gold/top; bronze/customers -> silver/orders."""
    made: list[tuple[str, str, list[str], dict[str, Any]]] = [
        ("bronze", "orders", ["raw/orders"], {"tags": {"nightly": "", "team": "sales"}, "kinds": {"spark"}}),
        ("bronze", "customers", [], {"tags": {"team": "crm"}, "owners": ["team:crm"]}),
        ("silver", "orders", ["bronze/orders", "bronze/customers"], {"tags": {"nightly": "late"}}),
        ("gold", "revenue", ["silver/orders"], {"group_name": "finance"}),
        ("gold", "top", ["silver/orders"], {"group_name": "marketing"}),
    ]
    for prefix, name, deps, options in made:

        def compute() -> None: ...

        parents = [dep.split("/") for dep in deps]
        yield asset(name=name, key_prefix=prefix, deps=parents, **options)(compute)


GRAPH = Definitions([*_chain(), AssetSpec(["raw", "orders"])]).resolve_asset_graph()
ALL = "bronze/customers bronze/orders gold/revenue gold/top silver/orders"


def selected(*selections: str) -> str:
    return " ".join(sorted(key.to_user_string() for key in select(GRAPH, selections)))


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        ("*", ALL),
        ("bronze/orders", "bronze/orders"),
        ("key:bronze/orders", "bronze/orders"),
        ('key:"bronze/orders"', "bronze/orders"),
        ("bronze/*", "bronze/customers bronze/orders"),
        ("*/orders", "bronze/orders silver/orders"),
        ("silver/orders, gold/top", "gold/top silver/orders"),
        ("silver/orders gold/top", "gold/top silver/orders"),
        ("silver/orders,gold/top,", "gold/top silver/orders"),
        ("+silver/orders", "bronze/customers bronze/orders silver/orders"),
        ("silver/orders+", "gold/revenue gold/top silver/orders"),
        ("+silver/orders+", ALL),
        ("1+gold/top", "gold/top silver/orders"),
        ("2+gold/top", "bronze/customers bronze/orders gold/top silver/orders"),
        ("0+gold/top", "gold/top"),
        ("bronze/orders+1", "bronze/orders silver/orders"),
        ("1+key:gold/top", "gold/top silver/orders"),
        ("tag:nightly", "bronze/orders silver/orders"),
        ("tag:nightly=late", "silver/orders"),
        ("tag:team=*", "bronze/customers bronze/orders"),
        ("+tag:nightly=late", "bronze/customers bronze/orders silver/orders"),
        ("group:finance", "gold/revenue"),
        ("group:fin*", "gold/revenue"),
        ("kind:spark", "bronze/orders"),
        ("owner:team:crm", "bronze/customers"),
        ("tag:nightly and bronze/*", "bronze/orders"),
        ("tag:nightly or group:finance", "bronze/orders gold/revenue silver/orders"),
        ("not gold/*", "bronze/customers bronze/orders silver/orders"),
        ("bronze/* and not tag:nightly", "bronze/customers"),
        ("1+(gold/top or gold/revenue)", "gold/revenue gold/top silver/orders"),
        ("(bronze/orders)+1", "bronze/orders silver/orders"),
        ("sinks(+gold/top)", "gold/top"),
        ("roots(+gold/top)", "bronze/customers bronze/orders"),
        ("gold/top, bronze/* and tag:nightly", "bronze/orders gold/top"),
    ],
)
def test_a_selection_names_assets_as_in_dbt_and_dagster(selection: str, names: str) -> None:
    assert selected(selection) == names


def test_without_a_selection_all_assets_are_selected() -> None:
    assert selected() == ALL


def test_several_selections_are_added_up_and_are_upstream_first() -> None:
    assert [key.to_user_string() for key in select(GRAPH, ["gold/top", "silver/orders"])] == [
        "silver/orders",
        "gold/top",
    ]


@pytest.mark.parametrize(
    ("selection", "problem"),
    [
        ("bronze/ordres", "no asset bronze/ordres; did you mean bronze/orders"),
        ("bronze.orders", "no asset bronze.orders; did you mean bronze/orders"),
        ("orders", "no asset orders; did you mean bronze/orders or silver/orders"),
        ("platinum/*", "no asset platinum/*; there are: bronze/customers, bronze/orders, gold/revenue"),
        ("tag:nigthly", "no asset has the tag nigthly; did you mean nightly?"),
        ("tag:team=hr", "no asset has the tag team=hr; did you mean team="),
        ("group:finanse", "no asset has the group finanse; did you mean finance?"),
        ("group:xyz", "no asset has the group xyz; the groups are: default, finance, marketing"),
        ("tags:nightly", "tags: is no attribute of assets; did you mean tag:?"),
        ("status:missing", "status: selects in Dagster's web UI only; there are key:, tag:, group:, kind:, owner:"),
        ("raw/orders", "asset raw/orders is external: this project does not materialize it"),
        ("gold/* and bronze/*", "no asset matches 'gold/* and bronze/*'; there are: "),
        ("(bronze/*", "the parenthesis at 1 is not closed"),
        ("bronze/*)", "')' at 9 has no opening parenthesis"),
        ('key:"bronze', "the quote at 5 is not closed"),
        ("bronze/* and", "its end is where a name was expected"),
        ("and bronze/*", "'and' at 1 is where a name was expected"),
        ("", "selection '' names no asset; leave it out to select all"),
        (" ", "selection ' ' names no asset"),
        (" , ", "selection ' , ' names no asset"),
        ("tag:", "no asset has the tag ''; the tags are: nightly, team"),
        ("key:", "no asset ''; there are: bronze/customers"),
        ("++gold/top", "'++gold/top' names no asset; write +name, 1+name, name+ or name+1"),
    ],
)
def test_a_selection_that_names_nothing_says_what_exists(selection: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        select(GRAPH, ["bronze/*", selection])
    assert problem in str(refused.value)


def test_definitions_without_assets_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match="no asset that can be materialized"):
        select(Definitions().resolve_asset_graph())
