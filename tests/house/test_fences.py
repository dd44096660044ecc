"""Private names of PyIceberg, PySpark, Py4J and Dagster are used in the fences alone."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "packages").glob("*/src/**/*.py"))
PACKAGES = ("floe_core", "floe_iceberg", "floe_polaris", "floe_spark", "floe_dagster", "floe_runtime")
FENCES = ("floe_iceberg._pyiceberg", "floe_spark._pyspark", "floe_dagster._dagster")
FOREIGN = re.compile(r"(pyiceberg|pyspark|py4j|dagster\w*)(\.|$)")
NAMED_IN_TEXT = re.compile(r"\b(pyiceberg|pyspark|py4j|dagster)(\.\w+)*\._\w+")


def is_fenced(module: str) -> bool:
    return any(module == fence or module.startswith(f"{fence}.") for fence in FENCES)


def module_of(path: Path) -> str:
    parts = path.relative_to(path.parents[[one.name for one in path.parents].index("src")]).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_uses(tree: ast.Module) -> Iterator[str]:
    """Imports of private modules and names of the libraries, and texts that name such a module."""
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            names = [one[0] for one in NAMED_IN_TEXT.finditer(node.value)]
        for name in names:
            if FOREIGN.match(name) and any(is_private(part) for part in name.split(".")):
                yield f"{getattr(node, 'lineno', 0)}: {name}"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from pyiceberg.io.pyarrow import _read_deletes", True),
        ("from dagster._core.events import ASSET_EVENTS", True),
        ("import dagster._check as check", True),
        ("command = ['-m', 'dagster._daemon']", True),
        ("from pyiceberg.table import Table", False),
        ("from floe_iceberg._pyiceberg.tables import table_of", False),
        ("'''Like dagster._check.'''", False),
    ],
)
def test_a_private_import_is_found(code: str, found: bool) -> None:
    assert bool(list(private_uses(ast.parse(code)))) is found


def test_no_module_outside_the_fences_imports_private_names() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{use}"
        for path in SOURCES
        if not is_fenced(module_of(path))
        for use in private_uses(ast.parse(path.read_text()))
    ]
    assert found == []


@functools.cache
def classes_of_floe() -> list[type]:
    classes = []
    for package in PACKAGES:
        top = importlib.import_module(package)
        for found in pkgutil.walk_packages(top.__path__, f"{package}."):
            module = importlib.import_module(found.name)
            classes += [
                one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == module.__name__
            ]
    return classes


@functools.cache
def body_of(owner: type) -> ast.Module | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError):  # made at run time
        return None


@functools.cache
def private_members(owner: type) -> set[str]:
    """What a class defines, declares or sets on itself."""
    names = {*vars(owner), *inspect.get_annotations(owner)}
    body = body_of(owner)
    if body is not None:
        names |= {node.attr for node in own_attributes(body) if isinstance(node.ctx, ast.Store)}
    return {one for one in names if is_private(one)} - {"_abc_impl"}


def own_attributes(body: ast.Module) -> Iterator[ast.Attribute]:
    """The attributes of self, cls and super()."""
    for node in ast.walk(body):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            of = node.value
            by_name = isinstance(of, ast.Name) and of.id in ("self", "cls")
            by_super = isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "super"
            if by_name or by_super:
                yield node


@functools.cache
def trespasses(owner: type) -> set[str]:
    """The private members of foreign base classes that a class defines, overrides or uses."""
    foreign = [one for one in owner.__mro__ if FOREIGN.match(one.__module__)]
    if not foreign:
        return set()
    theirs = {name for one in foreign for name in private_members(one)}
    body = body_of(owner)
    used = {node.attr for node in own_attributes(body)} if body is not None else set()
    return theirs & (private_members(owner) | used)


def test_no_class_outside_the_fences_uses_private_members_of_its_foreign_bases() -> None:
    found = {
        f"{one.__module__}.{one.__name__}: {', '.join(sorted(names))}"
        for one in classes_of_floe()
        if not is_fenced(one.__module__) and (names := trespasses(one))
    }
    assert found == set()


def test_the_fences_are_where_private_members_are_used() -> None:
    fenced = {one.__name__ for one in classes_of_floe() if is_fenced(one.__module__) and trespasses(one)}
    assert {"AdaptedRestCatalog", "AdaptedSqlCatalog", "AdaptedEventLog", "SingleAttemptTransaction"} <= fenced
