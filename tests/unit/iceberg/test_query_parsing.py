"""What a query reads, and where a query that cannot run is wrong."""

from __future__ import annotations

import pytest

from floe_core.errors import QueryError, QueryRefusedError
from floe_iceberg.query.parsing import Dialect, ParsedQuery, parse

DIALECTS: tuple[Dialect, ...] = ("duckdb", "spark")


def found(query: ParsedQuery) -> list[tuple[str, object]]:
    """The tables by their text in the query, each with its time travel."""
    return [
        (query.text[use.start : use.end], None if use.travel is None else (use.travel.by_time, use.travel.value))
        for use in query.tables
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_tables_are_found_wherever_they_are(dialect: Dialect) -> None:
    query = parse(
        "WITH recent AS (SELECT * FROM a.b.c), d AS (SELECT * FROM recent) "
        "SELECT (SELECT max(x) FROM e.f) FROM d JOIN Recent r ON d.id = r.id, `g`.`h-i` AS e "
        "WHERE EXISTS (SELECT 1 FROM j.k WHERE j.k.id = d.id) UNION ALL SELECT 1 FROM l.m",
        dialect,
    )
    assert sorted(name for name, _ in found(query)) == ["`g`.`h-i`", "a.b.c", "e.f", "j.k", "l.m"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_time_travel_belongs_to_the_table_before_it(dialect: Dialect) -> None:
    query = parse(
        "SELECT version AS of, 1 FROM a.b VERSION AS OF 12 x JOIN a.b FOR SYSTEM_VERSION AS OF 'v1' AS y ON true "
        "JOIN c.d\nTIMESTAMP AS OF '2026-01-31T00:00:00Z' ON true, c.d FOR SYSTEM_TIME AS OF TIMESTAMP '2026', e.f",
        dialect,
    )
    assert sorted(found(query), key=str) == sorted(
        [
            ("a.b", (False, 12)),
            ("a.b", (False, "v1")),
            ("c.d", (True, "2026-01-31T00:00:00Z")),
            ("c.d", (True, "2026")),
            ("e.f", None),
        ],
        key=str,
    )
    assert len(query.plain) == len(query.text)
    assert "AS OF" not in query.plain
    assert query.plain.count("\n") == 1


def test_texts_and_comments_are_left_alone() -> None:
    text = "SELECT 'FROM x.y VERSION AS OF 1', \"a;b\" -- FROM q.r; SELECT\nFROM s.t /* ; */;\n-- end"
    query = parse(text, "duckdb")
    assert found(query) == [("s.t", None)]
    assert query.plain == text.replace("*/;", "*/ ")


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("", None, None, "the query is empty"),
        (" -- nothing\n", None, None, "the query is empty"),
        ("SELECT 'abc", 1, 8, "not closed"),
        ("SELECT 1 /* abc", 1, 10, "not closed"),
        ("SELECT *\nFROM a.b WHERE (x = 1", 2, 22, "ends too early"),
        ("SELECT *\nFRM a.b", 2, 5, "'a' is not expected here"),
        ("SELECT 1 FROM a.b VERSION AS OF latest", 1, 33, "VERSION AS OF takes"),
        ("SELECT 1 FROM a.b TIMESTAMP AS OF 12", 1, 35, "TIMESTAMP AS OF takes"),
        ("SELECT 1 FROM a.b x VERSION AS OF 12", 1, 21, "right after the name"),
        ("WITH c AS (SELECT 1) SELECT * FROM c VERSION AS OF 12", 1, 38, "right after the name"),
        ("SELECT * FROM a.b AT (VERSION => 1)", 1, 15, "write time travel as VERSION AS OF"),
    ],
)
def test_the_place_of_a_mistake_is_shown(text: str, line: int | None, column: int | None, said: str) -> None:
    with pytest.raises(QueryError, match=said) as raised:
        parse(text, "duckdb")
    assert (raised.value.line, raised.value.column) == (line, column)
    assert not isinstance(raised.value, QueryRefusedError)
    if column is not None:
        shown, caret = str(raised.value).splitlines()[1:]
        assert (
            caret.index("^")
            == (text.splitlines() or [""])[(line or 1) - 1].expandtabs(1).index(shown.strip()) + column + 1
        )


def test_a_long_line_is_cut_around_the_place() -> None:
    text = f"SELECT {', '.join(f'column_{number}' for number in range(30))} FROM a.b HAVIN {'x' * 50}"
    with pytest.raises(QueryError) as raised:
        parse(text, "duckdb")
    shown, caret = str(raised.value).splitlines()[1:]
    assert len(shown) <= 58
    assert shown[caret.index("^") :].startswith("xxx")


def test_double_quotes_are_refused_for_spark_because_they_mean_a_text_there() -> None:
    with pytest.raises(QueryError, match=r"write 'Oslo' for a text, or `Oslo` for a name"):
        parse('SELECT * FROM a.b WHERE city = "Oslo"', "spark")
    assert found(parse('SELECT "city" FROM "a"."b"', "duckdb")) == [('"a"."b"', None)]
