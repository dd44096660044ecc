"""Which target runs a case: `make test`, `make test-full` or `make test-wide`.

A promise is tested with both engines on the embedded catalog. On the catalog servers it is tested where the catalog
decides: the marker `every_catalog` says so, for some of a test's parameters if it names them. Everything else of the
product of tests, engines and catalogs is wide. Cases on Polaris exist only where a Polaris is given.

The parameters of a behaviour are kinds of one fact. In `make test` it runs with the first of them on Spark and the
first few on Arrow; with all of them in `make test-full`. The examples of public names are facts of their own.

The processes share the cases one by one, and unit tests file by file; those that share a fixture stay together.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types

from tests.catalogs import polaris_is_given

_SERVERS = ("rest", "polaris")
_ENGINES = ("arrow", "spark")
# How many cases of a behaviour run in `make test`; on Spark, each takes seconds.
_ON_ARROW, _ON_SPARK = 3, 1
_EXAMPLES = "test_examples_spark.py"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    given = polaris_is_given()
    without = [item for item in items if not given and _needs_polaris(item)]
    if without:
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in set(without)]
    for item in items:
        catalog = next((one for one in _parameters(item).values() if one in _SERVERS), None)
        if "polaris" in item.path.name or catalog == "polaris":
            item.add_marker(pytest.mark.full)
        if catalog is not None and not _on_every_catalog(item):
            item.add_marker(pytest.mark.wide)
        elif _is_spark_on_rest(item) or (catalog == "rest" and "maintenance" in item.path.name):
            item.add_marker(pytest.mark.full)  # each of the two alone is in `make test`
    _keep_first_kinds(items)


def _keep_first_kinds(items: list[pytest.Item]) -> None:
    met: Counter[tuple[str, ...]] = Counter()
    for item in items:
        if "behaviours" not in item.path.parts or item.path.name == _EXAMPLES:
            continue
        if any(item.iter_markers("full")) or any(item.iter_markers("wide")):
            continue
        by = tuple(one for one in item.name.partition("[")[2].rstrip("]").split("-") if one in (*_ENGINES, *_SERVERS))
        kind = (item.nodeid.partition("[")[0], *by)
        met[kind] += 1
        if met[kind] > (_ON_ARROW if "arrow" in by else _ON_SPARK):
            item.add_marker(pytest.mark.full)


def _is_spark_on_rest(item: pytest.Item) -> bool:
    return "[spark-rest" in item.nodeid or (item.path.name.endswith("_rest.py") and "[spark" in item.nodeid)


class _ByFixtures(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out cases one by one, but a file at once if it has unit tests or shares a fixture."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        # Handing a case out takes longer than most unit tests.
        return file if file.startswith("tests/unit/") or _shares_fixtures(file) else nodeid


@lru_cache
def _shares_fixtures(file: str) -> bool:
    text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
    return re.search(r'scope="(class|module|package)"', text) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    # Not xdist's own groups: pytest 9 does not show it the names that they would be read from.
    return _ByFixtures(config, log) if config.getvalue("dist") == "loadgroup" else None


def _parameters(item: pytest.Item) -> dict[str, Any]:
    """The parameters of a case; of unit tests and the rules of the house none, which know catalogs only by name."""
    if not isinstance(item, pytest.Function) or not {"unit", "house"}.isdisjoint(item.path.parts):
        return {}
    specification = getattr(item, "callspec", None)  # only cases of tests with parameters have one
    return {} if specification is None else specification.params


def _needs_polaris(item: pytest.Item) -> bool:
    fixtures = item.fixturenames if isinstance(item, pytest.Function) else []
    return "polaris" in (*fixtures, *_texts(item)) or ("behaviours" in item.path.parts and "polaris" in item.path.name)


def _texts(item: pytest.Item) -> list[str]:
    return [one for one in _parameters(item).values() if isinstance(one, str)]


def _on_every_catalog(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("every_catalog")
    return marker is not None and (not marker.args or any(one in marker.args for one in _texts(item)))
