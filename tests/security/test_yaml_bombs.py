"""Aliases in floe.yaml cannot make a small file into a large one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError

Project = Callable[[str], Path]


def laughs(opening: str, closing: str, depth: int = 30) -> str:
    """Each line holds the line before ten times."""
    lines = ["name: shop", f"a0: &a0 {opening.format('lol')}x{closing}"]
    for number in range(1, depth):
        aliases = ", ".join(f"k{one}: *a{number - 1}" if opening == "{{k: " else f"*a{number - 1}" for one in range(10))
        lines.append(f"a{number}: &a{number} {'{' if opening == '{{k: ' else '['}{aliases}{closing}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{{k: ", "}")], ids=["lists", "mappings"])
def test_nested_aliases_are_refused_with_their_line(opening: str, closing: str, new_project: Project) -> None:
    project = new_project(laughs(opening, closing, depth=8 if opening == "[" else 7))
    began = time.monotonic()
    with pytest.raises(ConfigurationError, match=r"floe.yaml:\d+.*aliases.*10,000") as caught:
        compile_project(project)
    assert time.monotonic() - began < 5
    assert len(caught.value.problems) == 1


def test_the_deepest_bomb_is_refused_at_once(new_project: Project) -> None:
    with pytest.raises(ConfigurationError, match="aliases"):
        compile_project(new_project(laughs("[", "]", depth=60)))


def test_an_alias_that_is_used_a_few_times_is_fine(new_project: Project) -> None:
    text = "name: &shop shop\ntables:\n  properties: {a: *shop, b: *shop}\n"
    assert compile_project(new_project(text)).artifacts.tables.properties == {"a": "shop", "b": "shop"}


def test_a_large_file_without_aliases_is_fine(new_project: Project) -> None:
    lines = "\n".join(f"    key{number}: value" for number in range(15_000))
    compiled = compile_project(new_project(f"name: shop\ntables:\n  properties:\n{lines}\n"))
    assert len(compiled.artifacts.tables.properties) == 15_000
