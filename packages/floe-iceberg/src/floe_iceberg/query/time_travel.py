"""`VERSION AS OF` and `TIMESTAMP AS OF` after the name of a table, in the syntax of Spark, for every engine.

They are taken out of the query before it is parsed: DuckDB does not have them, and Spark understands a tag, a branch
and a time without a zone differently from the rest of Floe.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from floe_iceberg.query.text import problem

__all__ = ["TimeTravel", "blanked", "find_time_travel"]

_VERSION = ("VERSION", "SYSTEM_VERSION")
_TIME = ("TIMESTAMP", "SYSTEM_TIME")
_AFTER_ALIAS = (TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN, TokenType.SEMICOLON)


@dataclass(frozen=True)
class TimeTravel:
    """A snapshot by its id, by the name of a tag or branch, or by a time; and where that is in the query."""

    by_time: bool
    value: int | str
    start: int
    end: int
    # The end of the token before it: of the name of the table.
    after: int


def find_time_travel(text: str, tokens: Sequence[Token]) -> list[TimeTravel]:
    """Every time travel in the query; QueryError for one without a value in the text."""
    found = []
    for place, token in enumerate(tokens):
        word = token.text.upper()
        is_start = token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) and word in (*_VERSION, *_TIME)
        if not is_start or [one.text.upper() for one in tokens[place + 1 : place + 3]] != ["AS", "OF"]:
            continue
        values = list(tokens[place + 3 : place + 5])
        if word in _TIME and len(values) > 1 and values[0].text.upper() in ("TIMESTAMP", "TIMESTAMPTZ"):
            values = values[1:]
        first = place - 1 if place > 0 and tokens[place - 1].text.upper() == "FOR" else place
        if first == 0 or not values or values[0].token_type in _AFTER_ALIAS:
            continue  # a column with the alias `of`
        found.append(
            _travel(text, word in _TIME, values[0], start=tokens[first].start, after=tokens[first - 1].end + 1)
        )
    return found


def _travel(text: str, by_time: bool, value: Token, *, start: int, after: int) -> TimeTravel:
    is_text = value.token_type is TokenType.STRING
    is_id = value.token_type is TokenType.NUMBER and value.text.isdecimal()
    if by_time and not is_text:
        raise problem(
            text, value.start, "TIMESTAMP AS OF takes a time as text: TIMESTAMP AS OF '2026-01-31T12:00:00+00:00'"
        )
    if not (is_text or is_id):
        raise problem(
            text,
            value.start,
            "VERSION AS OF takes a snapshot id, or a tag or branch as text: VERSION AS OF 4703845732859 or 'audited'",
        )
    return TimeTravel(by_time, value.text if is_text else int(value.text), start, value.end + 1, after)


def blanked(text: str, travels: Sequence[TimeTravel]) -> str:
    """The query with spaces in the place of each time travel: every other character stays where it is."""
    for travel in travels:
        spaces = re.sub(r"[^\n]", " ", text[travel.start : travel.end])
        text = f"{text[: travel.start]}{spaces}{text[travel.end :]}"
    return text
