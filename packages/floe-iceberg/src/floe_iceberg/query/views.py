"""The tables of a query as views in DuckDB, and the query with their names in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlglot import exp

from floe_iceberg.query.parquet_files import FileGroup
from floe_iceberg.query.parsing import ParsedQuery
from floe_iceberg.query.session import quoted, quoted_text
from floe_iceberg.query.tables import FoundTable
from floe_iceberg.query.text import Replacement, Rewritten, rewrite

__all__ = ["ViewName", "name_views", "view_sql", "with_views"]

# A schema and a name in DuckDB's catalog in memory.
ViewName = tuple[str, str]

_OWN_SCHEMAS = ("information_schema", "pg_catalog")
# Partitions are folders such as day=2026-01-31, which DuckDB would take for a column.
_OPTIONS = "hive_partitioning = false, union_by_name = false, filename = false, binary_as_string = false"


def name_views(tables: Sequence[FoundTable]) -> dict[tuple[str, int | None], ViewName]:
    """A view for each table, and for each snapshot of one; the schema is called after the namespace."""
    names: dict[tuple[str, int | None], ViewName] = {}
    taken: set[ViewName] = set()
    for table in tables:
        if table.key in names:
            continue
        namespace = ".".join(table.identifier.namespace)
        schema = namespace if table.snapshot_id is None else f"{namespace} at {table.snapshot_id}"
        # DuckDB's names differ by more than case.
        while (schema.casefold(), table.identifier.name.casefold()) in taken or schema.casefold() in _OWN_SCHEMAS:
            schema += " "
        taken.add((schema.casefold(), table.identifier.name.casefold()))
        names[table.key] = (schema, table.identifier.name)
    return names


def view_sql(view: ViewName, columns: Sequence[str], groups: Sequence[FileGroup], dataset: str | None) -> str:
    """The statement that creates a view of files that DuckDB reads, and of a dataset for the others."""
    parts = []
    for group in groups:
        files = ", ".join(map(quoted_text, group.paths))
        parts.append(f"FROM read_parquet([{files}], {_OPTIONS}) SELECT {', '.join(group.expressions)}")
    if dataset is not None:
        parts.append(f"FROM {quoted(dataset)} SELECT {', '.join(map(quoted, columns))}")
    return f"CREATE VIEW {_full_name(view)} AS {' UNION ALL '.join(parts)}"


def with_views(query: ParsedQuery, views: Sequence[ViewName], *, reserved: Collection[str]) -> Rewritten:
    """The query with the name of the view in the place of each table.

    Args:
        reserved: Names of columns that DuckDB takes for keywords, such as `at`, in lower case.
    """
    pairs = list(zip(query.tables, views, strict=True))
    names = [Replacement(use.start, use.end, _full_name(view)) for use, view in pairs]
    # Without an alias, columns may be written with the full name of their table.
    unnamed = {use.parts: view for use, view in pairs if not use.node.alias}
    return rewrite(query.plain, [*names, *_qualifiers(query, unnamed), *_quotes(query, reserved)])


def _full_name(view: ViewName) -> str:
    return f"memory.{quoted(view[0])}.{quoted(view[1])}"


def _qualifiers(query: ParsedQuery, views: Mapping[tuple[str, ...], ViewName]) -> Iterator[Replacement]:
    """The namespace and table in front of each column that has them."""
    known = {tuple(part.casefold() for part in parts): view for parts, view in views.items()}
    for column in query.tree.find_all(exp.Column):
        identifiers = [part for part in column.parts if isinstance(part, exp.Identifier) and part.meta]
        levels = [str(part.name).casefold() for part in identifiers]
        for length in range(len(levels), 1, -1):
            view = known.get(tuple(levels[:length]))
            if view is not None:
                start, end = identifiers[0].meta["start"], identifiers[length - 1].meta["end"] + 1
                yield Replacement(int(start), int(end), f"{quoted(view[0])}.{quoted(view[1])}")
                break


def _quotes(query: ParsedQuery, reserved: Collection[str]) -> Iterator[Replacement]:
    """Quotes around columns that are keywords to DuckDB, and not to Spark."""
    for name in query.tree.find_all(exp.Identifier):
        is_column = isinstance(name.parent, exp.Column | exp.Join) and name.arg_key in ("this", "using")
        if is_column and not name.quoted and str(name.this).lower() in reserved and "start" in name.meta:
            yield Replacement(int(name.meta["start"]), int(name.meta["end"]) + 1, quoted(str(name.this)))
