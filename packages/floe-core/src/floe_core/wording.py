"""Errors of Pydantic and PyYAML, in terms of the file that users edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

__all__ = ["value_problem", "yaml_problem"]

_TEXT = 'this must be text; to keep it as written, put it in quotes: "..."'
_WHOLE = "this must be a whole number"
_NUMBER = "this must be a number"
_SWITCH = "this must be true or false"
_LIST = "this must be a list, such as [a, b]"
_KEYS = "this must hold keys and values"

# By Pydantic's error type; names in braces are keys of its context.
_VALUES = {
    "string_type": _TEXT,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": _NUMBER,
    "bool_type": _SWITCH,
    "bool_parsing": _SWITCH,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "set_type": _LIST,
    "frozen_set_type": _LIST,
    "model_type": _KEYS,
    "model_attributes_type": _KEYS,
    "dict_type": _KEYS,
    "mapping_type": _KEYS,
    "greater_than_equal": "this must be {ge} or more",
    "less_than_equal": "this must be {le} or less",
    "greater_than": "this must be greater than {gt}",
    "less_than": "this must be less than {lt}",
    "string_pattern_mismatch": "this must match {pattern}",
    "none_required": "this must be left out",
}


def value_problem(kind: str, message: str, context: Mapping[str, Any] | None = None) -> str:
    """The message for one Pydantic error, given its type, message and context."""
    facts = dict(context or {})
    if kind in ("too_short", "too_long", "string_too_short", "string_too_long"):
        return _length(kind, facts)
    known = _VALUES.get(kind)
    if known is not None:
        return known.format(**facts)
    for prefix in ("Value error, ", "Assertion failed, "):
        message = message.removeprefix(prefix)
    return message.replace("Input should be", "this must be")


def _length(kind: str, facts: Mapping[str, Any]) -> str:
    unit = "character" if kind.startswith("string") else "item"
    short = kind.endswith("short")
    bound = int(facts["min_length" if short else "max_length"])
    if short and bound == 1:
        return "this must not be empty" if unit == "character" else "this must not be empty: name at least one"
    return f"this must have at {'least' if short else 'most'} {bound} {unit}{'' if bound == 1 else 's'}"


# By a part of PyYAML's message that its two loaders share; {line} is the line of the open bracket or quote.
_YAML = (
    ("tab character", "this line is indented with a tab; indent with spaces"),
    ("unexpected end of stream", "the quote opened on line {line} is not closed"),
    ("',' or ']'", "the list opened with [ on line {line} needs , or ] here"),
    ("',' or '}'", "the mapping opened with {{ on line {line} needs , or }} here"),
    ("mapping values are not allowed", "a ':' is not expected here; indent this line like its neighbours, or quote it"),
    ("expected ':'", "this line is not 'key: value'; add the ':' and a space after it"),
    ("expected key", "the indentation of this line matches no key above it; indent it like its neighbours"),
    ("expected <block end>", "the indentation of this line matches no key above it; indent it like its neighbours"),
    ("'-' indicator", "this line is in a list and does not begin with '- '"),
    (
        "block sequence entries are not allowed",
        "a list item ('- ') is not expected here; begin it on a line of its own",
    ),
    ("undefined alias", "a value that begins with * is an alias, and its anchor is not defined; put it in quotes"),
    ("tag", "a value that begins with ! is a tag, and this one is unknown; put it in quotes"),
    ("escape", "a backslash starts an escape sequence in double quotes; write \\\\, or use single quotes"),
    ("another document", "a second document begins here with ---; keep one"),
)
_ANYTHING = "check the quotes, the indentation and the ':' here"


def yaml_problem(exc: yaml.MarkedYAMLError, text: str) -> str:
    """Why a text is not valid YAML. At most one character of the text is shown, because it may hold secrets."""
    opened = exc.context_mark.line + 1 if exc.context_mark else "above"
    if "cannot start any token" in str(exc.problem):
        character = _character(text, exc.problem_mark)
        if character == "\t":
            return _YAML[0][1]
        return f"a value cannot begin with {character}; put it in quotes" if character else _ANYTHING
    for part, meaning in _YAML:
        if part in str(exc.problem):
            return meaning.format(line=opened)
    return _ANYTHING


def _character(text: str, mark: yaml.Mark | None) -> str:
    lines = text.splitlines()
    if mark is None or mark.line >= len(lines):
        return ""
    return lines[mark.line][mark.column : mark.column + 1]
