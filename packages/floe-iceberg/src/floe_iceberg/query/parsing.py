"""A query as it is written: one statement that reads tables, with the place of each table in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from floe_iceberg.query.refusals import (
    check_functions,
    check_quotes,
    check_start,
    check_statement,
    check_table_function,
)
from floe_iceberg.query.text import offset_of, problem, refusal
from floe_iceberg.query.time_travel import TimeTravel, blanked, find_time_travel

__all__ = ["Dialect", "ParsedQuery", "TableUse", "parse"]

Dialect = Literal["duckdb", "spark"]

_PARAMETERS = (TokenType.PARAMETER, TokenType.PLACEHOLDER)
# Views of DuckDB that show settings and paths, and what Floe registers.
_INTERNAL = re.compile(r"(?i)(duckdb|pg|sqlite|pragma|floe)_")


class _DuckDB(DuckDB):
    """DuckDB's dialect with backticks for names, which DuckDB 2 accepts."""

    class Tokenizer(DuckDB.Tokenizer):
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]


@dataclass(frozen=True)
class TableUse:
    """A table in a query, as often as it occurs; `start` and `end` are the place of its name."""

    node: exp.Table
    parts: tuple[str, ...]
    start: int
    end: int
    travel: TimeTravel | None

    @property
    def name(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class ParsedQuery:
    """A query that reads tables and nothing else.

    Attributes:
        text: The query as written.
        plain: The query without time travel, every other character in its place.
        tree: The query as sqlglot parses it.
        tables: The tables it reads, without its common table expressions.
    """

    text: str
    plain: str
    tree: exp.Expr
    tables: tuple[TableUse, ...]


def parse(text: str, dialect: Dialect) -> ParsedQuery:
    """Parse a query; QueryError for what cannot be parsed, QueryRefusedError for what is not a query of tables."""
    tokens = _tokens(text, dialect)
    if not tokens:
        raise problem(text, None, "the query is empty; write one, such as SELECT * FROM bronze.orders")
    check_start(text, tokens)
    if dialect == "spark":
        check_quotes(text, tokens)
    _check_single(text, tokens)
    travels = find_time_travel(text, tokens)
    plain = _without_semicolons(blanked(text, travels), tokens)
    tree = _tree(text, plain, dialect)
    check_statement(text, tokens, tree)
    check_functions(text, tokens, tree)
    if tree.find(exp.Parameter, exp.Placeholder) is not None:
        place = next((one.start for one in tokens if one.token_type in _PARAMETERS), None)
        raise problem(text, place, "a query has no parameters; write the value")
    tables = tuple(_tables(text, tokens, tree, travels))
    _check_claimed(text, travels, tables)
    return ParsedQuery(text, plain, tree, tables)


def _tokens(text: str, dialect: Dialect) -> list[Token]:
    try:
        return list(_dialect(dialect).tokenize(text))
    except TokenError:
        raise problem(text, _unclosed(text), "this quote or comment is not closed") from None


def _dialect(name: Dialect) -> sqlglot.Dialect:
    return _DuckDB() if name == "duckdb" else sqlglot.Dialect.get_or_raise("spark")


def _unclosed(text: str) -> int | None:
    """Where the quote or comment begins that is not closed."""
    position = 0
    closing = {"'": "'", '"': '"', "`": "`", "/*": "*/", "--": "\n"}
    while position < len(text):
        opening = next((one for one in closing if text.startswith(one, position)), None)
        if opening is None:
            position += 1
            continue
        end = text.find(closing[opening], position + len(opening))
        if end < 0:
            return None if opening == "--" else position
        position = end + len(closing[opening])
    return None


def _check_single(text: str, tokens: Sequence[Token]) -> None:
    for token, after in pairwise(tokens):
        if token.token_type is TokenType.SEMICOLON and after.token_type is not TokenType.SEMICOLON:
            raise refusal(text, after.start, "a second statement begins here; run one query at a time")


def _without_semicolons(plain: str, tokens: Sequence[Token]) -> str:
    """Without the semicolons at the end, so that the query can stand in parentheses."""
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            plain = f"{plain[: token.start]} {plain[token.end + 1 :]}"
    return plain


def _tree(text: str, plain: str, dialect: Dialect) -> exp.Expr:
    try:
        found = [one for one in sqlglot.parse(plain, dialect=_dialect(dialect)) if one is not None]
    except ParseError as exc:
        raise _parse_problem(text, plain, exc) from None
    except RecursionError:
        raise problem(text, None, "the query is nested too deeply") from None
    tree = found[0] if found else None
    if not isinstance(tree, exp.Query | exp.Values):
        raise refusal(text, None, "only queries run: start with SELECT, WITH, FROM or VALUES")
    return tree


def _parse_problem(text: str, plain: str, exc: ParseError) -> Exception:
    """sqlglot reports the last character of the word at which it stopped."""
    first = exc.errors[0] if exc.errors else {}
    line, column, word = first.get("line"), first.get("col"), str(first.get("highlight") or "")
    if not isinstance(line, int) or not isinstance(column, int):
        return problem(text, None, "the query cannot be parsed")
    reason = str(first.get("description") or "").removesuffix(".")
    expected = f": {reason[:1].lower()}{reason[1:]}" if reason.startswith("Expecting") else ""
    end = offset_of(plain, line, column) + 1
    if expected and not plain[end:].strip():  # sqlglot has no token to stop at
        return problem(text, len(plain.rstrip()), f"the query ends too early{expected}")
    shown = f"{word!r} is not expected here" if word else "it ends too early"
    return problem(text, end - len(word), f"the query cannot be parsed: {shown}{expected}")


def _tables(text: str, tokens: Sequence[Token], tree: exp.Expr, travels: Sequence[TimeTravel]) -> Iterator[TableUse]:
    by_name_end = {travel.after: travel for travel in travels}
    strings = {token.start for token in tokens if token.token_type is TokenType.STRING}
    for node in tree.find_all(exp.Table):
        if node.find_ancestor(exp.Hint) is not None:
            continue
        names = node.parts
        if not all(isinstance(one, exp.Identifier) for one in names):
            check_table_function(text, tokens, node.this)
            continue
        start, end = int(names[0].meta["start"]), int(names[-1].meta["end"]) + 1
        parts = tuple(str(one.name) for one in names)
        if any(one.meta["start"] in strings for one in names) or _is_address(parts):
            raise refusal(text, start, f"{'.'.join(parts)!r} would be read as a file; only tables of the lake are read")
        if node.args.get("when") is not None:
            raise problem(
                text, start, "write time travel as VERSION AS OF or TIMESTAMP AS OF after the name of the table"
            )
        if len(parts) == 1 and parts[0].casefold() in _common_tables(node):
            if _INTERNAL.match(parts[0]):
                raise refusal(text, start, f"{parts[0]!r} is a name of the engine's own; choose another")
            continue
        yield TableUse(node, parts, start, end, by_name_end.get(end))


def _is_address(parts: Sequence[str]) -> bool:
    """Names of tables hold letters, digits, `_` and `-`."""
    return any(set(part) & set("/\\:*?.") for part in parts)


def _common_tables(node: exp.Expr) -> set[str]:
    """The names of the common table expressions that a table can refer to: inside of one, those before it.

    With RECURSIVE also the expression itself. A later one is not in scope: the name would be a table of DuckDB's own.
    """
    found: set[str] = set()
    while node.parent is not None:
        inside, node = node, node.parent
        if isinstance(node, exp.With):
            place = next(place for place, one in enumerate(node.expressions) if one is inside)
            before = node.expressions[: place + 1 if node.args.get("recursive") else place]
            found.update(one.alias.casefold() for one in before)
        elif (common := node.args.get("with_")) is not None and common is not inside:
            found.update(one.alias.casefold() for one in common.expressions)
    return found


def _check_claimed(text: str, travels: Sequence[TimeTravel], tables: Sequence[TableUse]) -> None:
    claimed = {table.travel.start for table in tables if table.travel is not None}
    for travel in travels:
        if travel.start not in claimed:
            raise problem(
                text, travel.start, "time travel goes right after the name of a table of the lake, before its alias"
            )
