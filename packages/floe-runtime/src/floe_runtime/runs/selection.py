"""The assets that a selection names: names with wildcards, tags, groups, kinds and owners, with what is around them.

The syntax is Dagster's, and that of dbt where both agree. Dagster's own parser is not used: it reads `+name` as one
level and `+key:name` as all levels, and cannot say which part of a selection matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster import AssetKey, AssetSelection

from floe_core.errors import ConfigurationError
from floe_iceberg.inspection import similar

if TYPE_CHECKING:
    from floe_dagster._dagster.names import AssetGraph

__all__ = ["select"]

_LISTED = 10  # names that an error lists
_TOKEN = re.compile(r'(?P<space>[\s]+)|(?P<mark>[(),])|(?P<word>(?:"[^"]*"|[^\s(),"])+)')
_TERM = re.compile(r"(?:(?P<up>\d*)\+)?(?P<body>[^+].*?|)(?:\+(?P<down>\d*))?")
_OPENING = re.compile(r"(?:(?P<up>\d*)\+)?(?P<function>sinks|roots)?")
_OPERATORS = ("and", "or", "not")
# Attributes that Dagster's web UI can select by; they are not in the definitions of a project.
_ELSEWHERE = (
    "code_location",
    "status",
    "column",
    "table_name",
    "column_tag",
    "changed_in_branch",
    "sensor",
    "schedule",
)

Keys = frozenset[AssetKey]


def select(graph: AssetGraph, selections: Sequence[str] = ()) -> list[AssetKey]:
    """The assets that any of the selections names, upstream first; without a selection, all that can be materialized.

    Raises:
        ConfigurationError: A part of a selection matches nothing; the message says what exists.
    """
    known = graph.materializable_asset_keys
    if not known:
        raise ConfigurationError("the definitions hold no asset that can be materialized; add one")
    chosen: set[AssetKey] = set() if selections else set(known)
    for text in selections:
        if not text.strip(" \t\n,"):  # as of an empty variable of a shell
            raise ConfigurationError(f"selection {text!r} names no asset; leave it out to select all")
        named = _Parser(graph, text).parse()
        if not named:
            raise ConfigurationError(f"no asset matches {text!r}; there are: {_listed(_names(graph))}")
        chosen |= named
    return [key for key in graph.toposorted_asset_keys if key in chosen]


@dataclass(frozen=True)
class _Token:
    text: str
    position: int
    is_glued: bool  # nothing is between it and the token before


class _Parser:
    """Evaluates a selection while reading it, by recursive descent.

    union = either {[","] either}; either = both {"or" both}; both = one {"and" one}; one = ["not"] term
    """

    def __init__(self, graph: AssetGraph, text: str) -> None:
        self._graph = graph
        self._text = text
        self._tokens = self._split()
        self._next = 0

    def parse(self) -> Keys:
        chosen = self._union()
        if self._next < len(self._tokens):  # a closing parenthesis
            raise self._problem("has no opening parenthesis")
        return chosen

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        position, glued = 0, False
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                raise ConfigurationError(f"selection {self._text!r}: the quote at {position + 1} is not closed")
            if match["space"] is None:
                tokens.append(_Token(match[0], position, glued))
            glued = match["space"] is None
            position = match.end()
        return tokens

    def _peek(self) -> str:
        return self._tokens[self._next].text if self._next < len(self._tokens) else ""

    def _is_operator(self, *operators: str) -> bool:
        return self._peek().lower() in operators

    def _take(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1].text

    def _union(self) -> Keys:
        chosen: Keys = frozenset()
        while self._peek() not in ("", ")"):
            if self._peek() == ",":
                self._take()
            else:
                chosen |= self._either()
        return chosen

    def _either(self) -> Keys:
        chosen = self._both()
        while self._is_operator("or"):
            self._take()
            chosen |= self._both()
        return chosen

    def _both(self) -> Keys:
        chosen = self._one()
        while self._is_operator("and"):
            self._take()
            chosen &= self._one()
        return chosen

    def _one(self) -> Keys:
        if self._is_operator("not"):
            self._take()
            return frozenset(self._graph.materializable_asset_keys) - self._one()
        if self._is_operator("", ")", ",", *_OPERATORS):
            raise self._problem("is where a name was expected")
        opening = _OPENING.fullmatch("" if self._peek() == "(" else self._peek())
        if opening is not None and self._opens_group():
            return self._group(opening)
        return self._term(self._take())

    def _opens_group(self) -> bool:
        if self._peek() == "(":
            return True
        after = self._tokens[self._next + 1 : self._next + 2]
        return bool(after) and after[0].text == "(" and after[0].is_glued

    def _group(self, opening: re.Match[str]) -> Keys:
        """A selection in parentheses, of which sinks(…) and roots(…) take the ends, with what is around it."""
        if self._peek() != "(":
            self._take()
        at = self._tokens[self._next].position + 1
        self._take()
        chosen = self._union()
        if self._peek() != ")":
            raise ConfigurationError(f"selection {self._text!r}: the parenthesis at {at} is not closed")
        self._take()
        if opening["function"]:
            ends = AssetSelection.assets(*chosen)
            chosen = frozenset((ends.sinks() if opening["function"] == "sinks" else ends.roots()).resolve(self._graph))
        down = re.fullmatch(r"\+(\d*)", self._peek())
        if down is not None and self._tokens[self._next].is_glued:
            self._take()
        else:
            down = None
        return self._around(chosen, opening["up"], down[1] if down is not None else None)

    def _term(self, word: str) -> Keys:
        match = _TERM.fullmatch(word)
        if match is None or not match["body"]:
            raise ConfigurationError(
                f"selection {self._text!r}: {word!r} names no asset; write +name, 1+name, name+ or name+1"
            )
        return self._around(self._named(match["body"]), match["up"], match["down"])

    def _around(self, keys: Keys, up: str | None, down: str | None) -> Keys:
        """The assets, with so many levels upstream and downstream of them; an empty text stands for all levels."""
        start = AssetSelection.assets(*keys)
        chosen = set(keys)
        if up is not None:
            chosen |= start.upstream(depth=int(up) if up else None).resolve(self._graph)
        if down is not None:
            chosen |= start.downstream(depth=int(down) if down else None).resolve(self._graph)
        return frozenset(chosen & self._graph.materializable_asset_keys)

    def _named(self, body: str) -> Keys:
        attribute, separator, value = body.partition(":")
        if not separator or attribute.startswith('"'):
            return _by_name(self._graph, body)
        found = _ATTRIBUTES.get(attribute)
        if found is None:
            where = " selects in Dagster's web UI only" if attribute in _ELSEWHERE else " is no attribute of assets"
            near = similar(attribute, _ATTRIBUTES) if attribute not in _ELSEWHERE else []
            hint = f"did you mean {near[0]}:?" if near else f"there are {', '.join(f'{name}:' for name in _ATTRIBUTES)}"
            raise ConfigurationError(f"selection {self._text!r}: {attribute}:{where}; {hint}")
        return found(self._graph, value)

    def _problem(self, reason: str) -> ConfigurationError:
        if self._next >= len(self._tokens):
            return ConfigurationError(f"selection {self._text!r}: its end {reason}")
        token = self._tokens[self._next]
        return ConfigurationError(f"selection {self._text!r}: {token.text!r} at {token.position + 1} {reason}")


def _names(graph: AssetGraph) -> dict[str, AssetKey]:
    return {key.to_user_string(): key for key in sorted(graph.materializable_asset_keys)}


def _by_name(graph: AssetGraph, pattern: str) -> Keys:
    known, name = _names(graph), pattern.replace('"', "")
    chosen = frozenset(key for text, key in known.items() if _matches(text, pattern))
    if chosen:
        return chosen
    if any(key.to_user_string() == name for key in graph.get_all_asset_keys()):
        raise ConfigurationError(f"asset {name} is external: this project does not materialize it")
    raise ConfigurationError(_nothing("no asset", name, known, plural="there are"))


def _by_values(what: str, values: Callable[[AssetGraph, AssetKey], Collection[str]]) -> Callable[..., Keys]:
    """Selects the assets that have a value which matches, such as the groups that begin with `fin`."""

    def find(graph: AssetGraph, pattern: str) -> Keys:
        by_asset = {key: values(graph, key) for key in graph.materializable_asset_keys}
        chosen = frozenset(key for key, found in by_asset.items() if any(_matches(text, pattern) for text in found))
        if not chosen:
            known = sorted({text for found in by_asset.values() for text in found})
            name = pattern.replace('"', "")
            raise ConfigurationError(_nothing(f"no asset has the {what}", name, known, plural=f"the {what}s are"))
        return chosen

    return find


def _by_tag(graph: AssetGraph, pattern: str) -> Keys:
    """The assets with a tag, whatever its value, or with this value."""
    name, separator, value = pattern.partition("=")
    tags = {key: graph.get(key).tags for key in graph.materializable_asset_keys}
    chosen = frozenset(
        key
        for key, own in tags.items()
        if any(_matches(tag, name) and (not separator or _matches(text, value)) for tag, text in own.items())
    )
    if chosen:
        return chosen
    pairs = {(tag, text) for own in tags.values() for tag, text in own.items() if not tag.startswith("dagster/kind/")}
    known = sorted({f"{tag}={text}" if separator and text else tag for tag, text in pairs})
    raise ConfigurationError(_nothing("no asset has the tag", pattern.replace('"', ""), known, plural="the tags are"))


def _kinds(graph: AssetGraph, key: AssetKey) -> Collection[str]:
    prefix = "dagster/kind/"
    return [tag.removeprefix(prefix) for tag in graph.get(key).tags if tag.startswith(prefix)]


_ATTRIBUTES: Mapping[str, Callable[[AssetGraph, str], Keys]] = {
    "key": _by_name,
    "tag": _by_tag,
    "group": _by_values("group", lambda graph, key: (graph.get(key).group_name,)),
    "kind": _by_values("kind", _kinds),
    "owner": _by_values("owner", lambda graph, key: tuple(graph.get(key).owners)),
}


def _matches(text: str, pattern: str) -> bool:
    """Whether a text is the pattern, in which an unquoted `*` stands for any characters, slashes included."""
    if pattern.startswith('"'):
        return text == pattern.strip('"')
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def _nothing(subject: str, name: str, known: Collection[str], *, plural: str) -> str:
    """The error for a name that nothing has: the nearest names, or else the existing ones."""
    shown = name or "''"
    dotted = {other.replace("/", "."): other for other in known}
    near = [dotted[match] for match in similar(name.replace("/", "."), dotted)]
    if "*" in name or not near:
        return f"{subject} {shown}; {plural}: {_listed(known) or 'none'}"
    return f"{subject} {shown}; did you mean {' or '.join(near)}?"


def _listed(names: Collection[str]) -> str:
    shown = list(names)[:_LISTED]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(shown)}{more}"
