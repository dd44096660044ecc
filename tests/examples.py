"""The docstrings of public names, and the examples in them."""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
from doctest import ELLIPSIS, DocTest, DocTestFinder, DocTestRunner
from enum import Enum
from functools import lru_cache
from symtable import symtable
from typing import Any

from pydantic import BaseModel

__all__ = ["EXECUTED_IN_UNIT_TESTS", "documented", "examples", "given", "parameters", "public_names", "run"]

_PACKAGES = ("floe_core", "floe_iceberg", "floe_polaris", "floe_spark", "floe_dagster", "floe_runtime")
# What examples may use without creating it, if they need neither a JVM nor a server: PyArrow, and a manager of tables.
EXECUTED_IN_UNIT_TESTS = {"pa", "tables"}


@lru_cache
def public_names() -> dict[str, Any]:
    """The classes and functions in `__all__` of the roots of the packages, by their full names."""
    roots = {package: importlib.import_module(package) for package in _PACKAGES}
    return {
        f"{package}.{name}": getattr(root, name)
        for package, root in roots.items()
        for name in root.__all__
        if not name.startswith("__")
    }


def parameters(public: Any) -> list[str]:
    """The arguments that a docstring must describe: none for enums and for exceptions without their own `__init__`."""
    if inspect.isclass(public):
        if issubclass(public, Enum) or (issubclass(public, Exception) and "__init__" not in vars(public)):
            return []
        if issubclass(public, BaseModel):
            return list(public.model_fields)
    return list(inspect.signature(public).parameters)


def documented(public: Any) -> set[str]:
    """The arguments that a docstring describes: under `Args:`, or under `Attributes:` where Floe creates the object."""
    found = re.search(r"^(?:Args|Attributes):\n(.*?)(?=^\S|\Z)", inspect.getdoc(public) or "", re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^    (\w+): \S", found[1], re.MULTILINE)) if found else set()


@lru_cache
def examples() -> dict[str, DocTest]:
    """The examples of the public names and of their methods."""
    finder = DocTestFinder()
    return {
        test.name: test
        for name, public in public_names().items()
        for test in finder.find(public, name, globs={})
        if test.examples
    }


def given(test: DocTest) -> set[str]:
    """The names that an example uses and does not define."""
    top = symtable("".join(example.source for example in test.examples), test.name, "exec")
    scopes = [top]
    for scope in scopes:
        scopes.extend(scope.get_children())
    used = {
        symbol.get_name()
        for scope in scopes
        for symbol in scope.get_symbols()
        if symbol.is_referenced() and (scope is top or symbol.is_global())
    }
    defined = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    return used - defined - set(dir(builtins))


def run(test: DocTest, **given: Any) -> None:
    """Execute an example; its lines must print what it says."""
    report: list[str] = []
    # A copy: the runner clears the names of the example afterwards.
    copy = DocTest(test.examples, given, test.name, test.filename, test.lineno, test.docstring)
    failed = DocTestRunner(optionflags=ELLIPSIS).run(copy, out=report.append).failed
    assert failed == 0, "".join(report)
