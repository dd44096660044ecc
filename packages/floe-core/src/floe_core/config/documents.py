"""A YAML document with the line number of each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from floe_core.errors import ConfigurationError, Problem
from floe_core.wording import yaml_problem

__all__ = ["Document", "KeyPath", "dotted", "read_document"]

KeyPath = tuple[str, ...]

# How many values the aliases of a file may repeat in total.
MAX_REPEATED = 10_000

# The type of a section that sets none; an overlay that sets this type does not replace the section.
_DEFAULT_TYPES = {"catalog": "sql", "storage": "local"}

_Loader: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class Document:
    """The data, the line of each key, and the problems found while reading."""

    file: str
    data: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: KeyPath) -> int | None:
        """The line of a key, or of its nearest parent in the file."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def overlaid(self, overlay: Mapping[str, Any], at: KeyPath) -> Document:
        """This document with `overlay`, the mapping found at `at`, merged over it."""
        lines = dict(self.lines)
        lines.update({path[len(at) :]: line for path, line in self.lines.items() if path[: len(at)] == at})
        return Document(self.file, _merge(self.data, overlay), lines)


def dotted(path: KeyPath) -> str:
    """`catalog.credentials.client_id`; list indexes in brackets."""
    text = ""
    for part in path:
        text += f"[{part}]" if part.isdigit() else f".{part}" if text else part
    return text


def read_document(path: Path) -> Document:
    """Read floe.yaml; invalid YAML is an error with its line."""
    if not path.is_file():
        raise ConfigurationError(f"{path.name} not found in {path.parent}; create a project with: floe init NAME")
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as exc:
        line = exc.problem_mark.line + 1 if exc.problem_mark else None
        raise ConfigurationError.of([Problem(f"not valid YAML: {yaml_problem(exc, text)}", path.name, line)]) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        problem = "not a text file in UTF-8, or it contains control characters; save it as UTF-8"
        raise ConfigurationError.of([Problem(problem, path.name)]) from None
    if node is None:
        raise ConfigurationError.of([Problem("the file is empty; the smallest valid file is: name: shop", path.name)])
    document = Document(path.name, {})
    if not isinstance(node, yaml.MappingNode):
        raise ConfigurationError.of(
            [
                Problem(
                    "the file must hold keys and values, such as: name: shop",
                    path.name,
                    node.start_mark.line + 1,
                )
            ]
        )
    try:
        _refuse_multiplied(node, path.name)
        document.data = _Reader(document).mapping(node, ())
    except RecursionError:
        raise ConfigurationError.of([Problem("the file is nested too deeply", path.name)]) from None
    return document


def _refuse_multiplied(root: yaml.Node, file: str) -> None:
    """Refuse aliases that repeat more than MAX_REPEATED values: a file of a kilobyte could expand to billions."""
    sizes: dict[int, int] = {}  # the number of values of a node, with its aliases expanded

    def size(node: yaml.Node) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        sizes[id(node)] = 1  # for a value that contains itself, which is reported separately
        total = 1 + sum(size(child) for child in _children(node))
        sizes[id(node)] = total
        if total - len(sizes) > MAX_REPEATED:
            line = node.start_mark.line + 1
            message = f"aliases repeat more than {MAX_REPEATED:,} values here; write the values out"
            raise ConfigurationError.of([Problem(message, file, line)])
        return total

    size(root)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


class _Reader:
    """Turns YAML nodes into plain data, and records lines and duplicate keys."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._scalars = yaml.SafeLoader("")
        self._open: list[yaml.Node] = []

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        if any(node is parent for parent in self._open):
            self._problem("this value contains itself; write it out", node, path)
            return None
        self._open.append(node)
        try:
            return self._value(node, path)
        finally:
            self._open.pop()

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                here = (*path, str(index))
                self._document.lines[here] = item.start_mark.line + 1
                items.append(self.value(item, here))
            return items
        try:
            return self._scalars.construct_object(node)
        # PyYAML has a bug: for `!!bool maybe`, `!!int ""` and `!!timestamp soon` it raises plain Python errors.
        except (yaml.YAMLError, ValueError, LookupError, AttributeError):
            self._problem("this value cannot be read; put it in quotes", node, path)
            return None

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key == "<<":
                self._problem("keys must be plain names", key_node, path)
                continue
            here = (*path, key)
            if key in result:
                self._problem(f"the key {key!r} is given twice; keep one", key_node, here)
                continue
            self._document.lines[here] = key_node.start_mark.line + 1
            result[key] = self.value(value_node, here)
        return result

    def _problem(self, message: str, node: yaml.Node, path: KeyPath) -> None:
        self._document.problems.append(Problem(message, self._document.file, node.start_mark.line + 1, dotted(path)))


def _merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings merge key by key; a section that changes its `type` is replaced whole."""
    merged = dict(base)
    for key, value in overlay.items():
        below = merged.get(key)
        same_kind = (
            isinstance(below, Mapping)
            and isinstance(value, Mapping)
            and ("type" not in value or below.get("type", _DEFAULT_TYPES.get(key)) == value["type"])
        )
        merged[key] = _merge(below, value) if same_kind and isinstance(below, Mapping) else value
    return merged
