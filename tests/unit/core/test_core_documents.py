"""What is not YAML, or not the YAML that Floe reads, is told with its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from floe_core.compiler import compile_project
from floe_core.config import documents
from floe_core.errors import ConfigurationError, Problem

Project = Callable[[str], Path]
ProblemsOf = Callable[..., tuple[Problem, ...]]


def test_a_missing_file_is_told_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"floe\.yaml not found in .*; create a project with: floe init NAME"):
        compile_project(tmp_path)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n"])
def test_an_empty_file_is_told_what_the_smallest_one_is(problems_of: ProblemsOf, text: str) -> None:
    (problem,) = problems_of(text)
    assert str(problem) == "floe.yaml: the file is empty; the smallest valid file is: name: shop"


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: shop\ncatalog: {token: hunter2\n", 3),
        ("name: shop\ntoken: *hunter2\n", 2),
        ("name: shop\n\ttoken: hunter2\n", 2),
        ("name: shop\ntoken: 'hunter2\n", 3),
        ('name: shop\ntoken: "\\hunter2"\n', 2),
        ("name: shop\ntoken: !hunter2!x y\n", 2),
        ("name: shop\ntoken: @hunter2\n", 2),
        ("name: shop\n---\ntoken: hunter2\n", 2),
    ],
)
def test_what_is_not_yaml_is_told_with_its_line_and_without_its_text(
    problems_of: ProblemsOf, monkeypatch: pytest.MonkeyPatch, loader: str, text: str, line: int
) -> None:
    monkeypatch.setattr(documents, "_Loader", getattr(yaml, loader))
    (problem,) = problems_of(text)
    assert problem.message.startswith("not valid YAML: ")
    assert problem.line == line
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@pytest.mark.parametrize(
    ("text", "line", "advice"),
    [
        ("name: @shop\n", 1, "a value cannot begin with @; put it in quotes"),
        ("name: `shop`\n", 1, "a value cannot begin with `; put it in quotes"),
        ("name: shop\nspark:\n\tmaster: x\n", 3, "this line is indented with a tab; indent with spaces"),
        ("name: shop\nversion: 'x\nspark: y\n", 4, "the quote opened on line 2 is not closed"),
        ("name: shop\nspark: {conf: {a: b}\n", 3, "the mapping opened with { on line 2 needs , or } here"),
        ("name: shop\ncolumns: [a, b\n", 3, "the list opened with [ on line 2 needs , or ] here"),
        ("name: shop: retail\n", 1, "a ':' is not expected here; indent this line like its neighbours, or quote it"),
        ("name: shop\nspark:\n  master: x\n conf: y\n", 4, "the indentation of this line matches no key above it"),
        ("name: shop\nspark\nversion: x\n", 3, "this line is not 'key: value'"),
        ('name: "a\\d"\n', 1, "a backslash starts an escape sequence in double quotes"),
        ("name: *shop\n", 1, "put it in quotes"),
        ("name: shop\n---\nname: other\n", 2, "a second document begins here with ---; keep one"),
    ],
)
def test_a_slip_in_yaml_is_explained_by_what_to_change(
    problems_of: ProblemsOf, monkeypatch: pytest.MonkeyPatch, loader: str, text: str, line: int, advice: str
) -> None:
    monkeypatch.setattr(documents, "_Loader", getattr(yaml, loader))
    (problem,) = problems_of(text)
    assert problem.message.startswith(f"not valid YAML: {advice}") or problem.message.endswith(advice)
    assert problem.line == line


@pytest.mark.parametrize("content", [b"name: \xff\xfe\n", b"name: a\x01b\n"])
def test_what_is_not_text_is_told_without_a_stack_trace(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "floe.yaml").write_bytes(content)
    with pytest.raises(ConfigurationError, match="not a text file in UTF-8"):
        compile_project(tmp_path)


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_bytes(b"\xef\xbb\xbfname: shop\r\n")
    assert compile_project(tmp_path).artifacts.name == "shop"


@pytest.mark.parametrize("text", ["- name: shop\n", "shop\n", "42\n", "[name]\n", "---\n"])
def test_a_top_level_that_is_no_mapping_is_refused(problems_of: ProblemsOf, text: str) -> None:
    (problem,) = problems_of(text)
    assert problem.line == 1 or text == "---\n"
    assert problem.message == "the file must hold keys and values, such as: name: shop"


def test_a_duplicate_key_is_told_at_its_second_place(problems_of: ProblemsOf) -> None:
    (problem,) = problems_of("name: shop\nspark:\n  master: a\n  master: b\n")
    assert str(problem) == "floe.yaml:4: spark.master: the key 'master' is given twice; keep one"


@pytest.mark.parametrize(
    ("text", "path"),
    [("name: shop\nspark: &a {conf: *a}\n", "spark.conf"), ("&a {name: shop,\nx: *a}\n", "x.x")],
)
def test_a_value_that_contains_itself_is_refused(problems_of: ProblemsOf, text: str, path: str) -> None:
    assert (path, "this value contains itself; write it out") in [(p.path, p.message) for p in problems_of(text)]


def test_an_alias_used_twice_is_fine(new_project: Project) -> None:
    text = "name: shop\nspark: {conf: &c {spark.x: a}}\nenvironments: {one: {spark: {conf: *c}}}\n"
    assert compile_project(new_project(text), "one").artifacts.spark.conf == {"spark.x": "a"}


@pytest.mark.parametrize("key", ["? [a, b]\n: 1\n", "<<: {version: a}\n"])
def test_keys_must_be_plain_names(problems_of: ProblemsOf, key: str) -> None:
    (problem,) = problems_of("name: shop\n" + key)
    assert (problem.line, problem.message) == (2, "keys must be plain names")


@pytest.mark.parametrize(
    "value", ["!!bool maybe", '!!int ""', "!!timestamp soon", "!!float x", "!mine 1", "2024-13-45"]
)
def test_a_value_that_yaml_cannot_build_is_told_with_its_line(problems_of: ProblemsOf, value: str) -> None:
    told = [str(problem) for problem in problems_of(f"name: shop\nversion: {value}\n")]
    assert "floe.yaml:2: version: this value cannot be read; put it in quotes" in told


def test_a_file_nested_beyond_reason_is_refused_without_a_stack_trace(problems_of: ProblemsOf) -> None:
    assert problems_of("name: shop\nspark: " + "[" * 2000 + "]" * 2000)


def test_items_of_lists_are_named_by_their_index(problems_of: ProblemsOf) -> None:
    assert "spark.conf[1].x" in [p.path for p in problems_of("name: shop\nspark:\n  conf:\n  - a\n  - x: '${'\n")]
