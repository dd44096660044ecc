"""What is not a query of tables: statements that write or change settings, and functions that read something else.

DuckDB also runs with external access switched off; these refusals come before it, and state the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from floe_iceberg.query.text import problem, refusal

__all__ = ["check_functions", "check_quotes", "check_start", "check_statement", "check_table_function"]

_QUERY = "only queries run: start with SELECT, WITH, FROM or VALUES"
_FIRST = {"SELECT", "WITH", "FROM", "VALUES", "TABLE", "("}
_WRITES = "INSERT UPDATE DELETE MERGE UPSERT REPLACE CREATE DROP ALTER TRUNCATE COPY EXPORT IMPORT"
_SETTINGS = "SET RESET PRAGMA USE ATTACH DETACH INSTALL LOAD UPDATE ADD CACHE UNCACHE REFRESH CLEAR"
_INSTEAD = {
    **dict.fromkeys(_SETTINGS.split(), f"changes the session; {_QUERY}"),
    **dict.fromkeys(_WRITES.split(), f"writes, and {_QUERY}"),
    **dict.fromkeys(("DESCRIBE", "DESC", "SUMMARIZE"), f"is not supported; {_QUERY}. To see columns: floe tables show"),
    "SHOW": f"is not supported; {_QUERY}. To see the tables: floe tables list",
    **dict.fromkeys(("PIVOT", "UNPIVOT"), "is not supported as a statement; write SELECT * FROM a table PIVOT (…)"),
}

_WRITERS = (
    exp.DML,
    exp.Create,
    exp.Drop,
    exp.Alter,
    exp.TruncateTable,
    exp.Into,
    exp.MultitableInserts,
)

# Functions that read files, addresses, memory or settings, run other text as SQL, or call code. DuckDB's and Spark's.
_FORBIDDEN = re.compile(
    r"""
    read_\w+ | scan_\w+ | \w+_scan(_\w+)? | parquet_\w+ | iceberg_\w+ | delta_\w+ | sniff_csv | glob | st_read\w*
    | (sqlite|postgres|mysql)_\w+ | http_\w+ | load_\w+ | import_\w+ | export_\w+
    | query | query_table | json_execute_serialized_sql | python_\w+ | reflect | try_reflect | java_method
    | getenv | getvariable | current_setting | set_config | nextval | currval
    | duckdb_\w+ | pragma_\w+ | which_secret | write_log | (en|dis)able_\w+ | \w+_external_resource\w*
    | checkpoint | force_checkpoint | truncate_duckdb_logs | test_\w+ | summary
    """,
    re.VERBOSE | re.IGNORECASE,
)

# Functions that make rows from their arguments; no other function may stand in the place of a table.
_MAKE_ROWS = {
    *("RANGE", "GENERATE_SERIES", "UNNEST", "REPEAT", "REPEAT_ROW", "JSON_EACH", "JSON_TREE", "JSON_TUPLE"),
    *(
        "EXPLODE",
        "EXPLODE_OUTER",
        "POSEXPLODE",
        "POSEXPLODE_OUTER",
        "INLINE",
        "INLINE_OUTER",
        "STACK",
        "VARIANT_EXPLODE",
    ),
}


def check_start(text: str, tokens: Sequence[Token]) -> None:
    """Refuse a statement by its first word."""
    first = tokens[0]
    word = first.text.upper()
    if word not in _FIRST or first.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        reason = _INSTEAD.get(word, f"does not start a query; {_QUERY}")
        raise refusal(text, first.start, f"{first.text} {reason}")


def check_quotes(text: str, tokens: Sequence[Token]) -> None:
    """Refuse double quotes in Spark's SQL: there they are a text, in DuckDB and in standard SQL a name."""
    for token in tokens:
        if token.token_type is TokenType.STRING and text[token.start : token.start + 1] == '"':
            raise problem(
                text,
                token.start,
                f"\"{token.text}\" would be a text to Spark, and is a name in standard SQL; write '{token.text}' for a "
                f"text, or `{token.text}` for a name",
            )


def check_statement(text: str, tokens: Sequence[Token], tree: exp.Expr) -> None:
    """Refuse a statement that writes or runs a program somewhere inside."""
    for node in tree.walk():
        if isinstance(node, _WRITERS):
            word = "INTO" if isinstance(node, exp.Into | exp.MultitableInserts) else node.key.upper()
            raise refusal(text, _place(tokens, {word}), f"{word} writes, and {_QUERY}")
        if isinstance(node, exp.QueryTransform):
            raise refusal(
                text, _place(tokens, {"TRANSFORM"}), "TRANSFORM runs a program, and only queries of tables run"
            )
        if isinstance(node, exp.Command):
            raise refusal(text, tokens[0].start, f"this is not a query; {_QUERY}")


def check_functions(text: str, tokens: Sequence[Token], tree: exp.Expr) -> None:
    """Refuse functions that read something else than tables."""
    for function in tree.find_all(exp.Func):
        for name in _names(function):
            if _FORBIDDEN.fullmatch(name):
                raise refusal(
                    text,
                    _place(tokens, {name.upper()}, called=True),
                    f"{name.lower()} reads or runs something other than tables of the lake, so it is refused",
                )


def check_table_function(text: str, tokens: Sequence[Token], function: exp.Expr) -> None:
    """Refuse a function in the place of a table, unless it makes rows from its arguments."""
    names = {name.upper() for node in (function, *function.find_all(exp.Func)) for name in _names(node)}
    if not names & _MAKE_ROWS:
        name = next(iter(sorted(names)), "this")
        raise refusal(
            text,
            _place(tokens, names, called=True),
            f"{name.lower()} is not a table of the lake; functions that read something else are refused",
        )


def _names(function: exp.Expr) -> list[str]:
    """The names of a function, as they may be written."""
    if isinstance(function, exp.Anonymous):
        return [str(function.name)]
    return list(function.sql_names()) if isinstance(function, exp.Func) else []


def _place(tokens: Sequence[Token], words: set[str], *, called: bool = False) -> int | None:
    """Where one of these words is in the query, before a parenthesis if it is called."""
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.text.upper() in words and (
            not called or (after is not None and after.token_type is TokenType.L_PAREN)
        ):
            return token.start
    return None
