"""The tree of errors is the one drawn in its docstring."""

from __future__ import annotations

import re

import pytest

from floe_core import errors
from floe_core.errors import ConfigurationError, FloeError, FloeStorageError, Problem, TableNotFoundError
from floe_core.models import StorageErrorDetail


def drawn_parents() -> dict[str, str]:
    """Each class of the drawing with the class above it; every branch is four characters wide."""
    parents: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"(?P<branches>[│├└─ ]*)(?P<name>\w+Error)\b", line)
        if found:
            depth = len(found["branches"]) // 4
            above[depth:] = [found["name"]]
            parents[found["name"]] = above[depth - 1] if depth else "Exception"
    return parents


def test_the_drawing_is_the_tree() -> None:
    classes = {name: getattr(errors, name) for name in errors.__all__ if name != "Problem"}
    assert drawn_parents() == {name: cls.__bases__[0].__name__ for name, cls in classes.items()}
    assert all(cls.__bases__[1:] in ((), (ImportError,)) and cls.__doc__ for cls in classes.values())


def test_every_error_of_the_module_is_public() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, FloeError)}
    assert defined <= set(errors.__all__)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("bad"), "floe.yaml: bad"),
        (Problem("bad", line=3), "floe.yaml:3: bad"),
        (Problem("bad", line=3, path="a.b"), "floe.yaml:3: a.b: bad"),
        (Problem("bad", path="a.b"), "floe.yaml: a.b: bad"),
        (Problem("bad", "other.yaml", 1), "other.yaml:1: bad"),
    ],
)
def test_a_problem_says_where_and_what(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_a_configuration_error_holds_all_its_problems_one_a_line() -> None:
    problems = [Problem("one", line=1), Problem("two", line=2)]
    error = ConfigurationError.of(problems)
    assert str(error) == "floe.yaml:1: one\nfloe.yaml:2: two"
    assert error.problems == tuple(problems)
    assert ConfigurationError("plain").problems == ()


def test_a_storage_error_keeps_its_detail_out_of_its_message() -> None:
    detail = StorageErrorDetail(error_type="NoSuchTable", operation="load", message="internal words")
    error = TableNotFoundError("table 'a.b' not found", detail=detail)
    assert str(error) == "table 'a.b' not found"
    assert error.detail is detail
    assert FloeStorageError("x").detail is None
