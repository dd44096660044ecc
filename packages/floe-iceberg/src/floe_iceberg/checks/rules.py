"""What an engine computes for each rule: in the pass over the rows that all rules share, or in a query of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DateType, NestedField, TimestampType, TimestamptzType

from floe_core.config import TableCheck, check_name, duration_text
from floe_core.errors import ConfigurationError
from floe_core.formatting import counted
from floe_core.identifiers import TableIdentifier
from floe_iceberg.checks.row_rules import RowRule, row_rule
from floe_iceberg.checks.rows import CheckedRows
from floe_iceberg.checks.sql_text import SqlText, field_named
from floe_iceberg.snapshots import ancestors_of, is_rewrite, snapshot_info

__all__ = ["Finding", "Query", "Rule", "TableRule", "ValueRule", "rule_of"]

# A newest value that is later than now by more than this is no sign of fresh data.
_CLOCKS_DIFFER = timedelta(hours=1)


@dataclass(frozen=True)
class Finding:
    """What a rule says of what was computed."""

    passed: bool
    message: str
    failing: int | None = None
    rows: int | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ValueRule:
    """An aggregate of the shared pass, and what its value means."""

    expression: str
    judge: Callable[[Any], Finding]


@dataclass(frozen=True)
class Query:
    """A query of its own: it returns the number of failing rows, and `examples` returns some of them."""

    count: str
    examples: str
    words: str


@dataclass(frozen=True)
class TableRule:
    """A rule that metadata answers; None if only a pass over the rows can, which `otherwise` judges by their number."""

    judge: Callable[[], Finding | None]
    otherwise: Callable[[int], Finding]


Rule = RowRule | ValueRule | Query | TableRule


def rule_of(
    check: TableCheck,
    rows: CheckedRows,
    sql: SqlText,
    *,
    other: Callable[[TableIdentifier], CheckedRows],
    now: datetime,
    hidden: frozenset[str] = frozenset(),
) -> Rule:
    """What is computed for a check; ConfigurationError if it does not fit the table.

    Args:
        check: The check.
        rows: The rows that are checked.
        sql: The SQL of the engine.
        other: Loads another table.
        now: The current time.
        hidden: Columns that are never shown, in lower case.
    """
    made = _Rules(check, rows, sql, other, now, hidden)
    methods: dict[str, Callable[[], Rule]] = {
        "not_null": made.row_rule,
        "unique": made.unique,
        "accepted_values": made.row_rule,
        "range": made.row_rule,
        "condition": made.row_rule,
        "references": made.references,
        "row_count": made.row_count,
        "freshness": made.freshness,
        "columns": made.columns,
        "sql": made.custom_query,
    }
    return methods[check.rule]()


@dataclass(frozen=True)
class _Rules:
    """A method for each rule."""

    check: TableCheck
    rows: CheckedRows
    sql: SqlText
    other: Callable[[TableIdentifier], CheckedRows]
    now: datetime
    hidden: frozenset[str]

    @property
    def _what(self) -> str:
        return f"check {check_name(self.check)} of '{self.rows.identifier}'"

    @property
    def _schema(self) -> Schema:
        return self.rows.schema

    def _field(self, column: str) -> NestedField:
        return field_named(self._schema, column, self._what)

    def _column(self, column: str) -> str:
        return self.sql.column(self._schema, self._field(column))

    def _source(self) -> str:
        return self.sql.table(self.rows.identifier, self.rows.snapshot_id)

    def _inside(self) -> str:
        return self.sql.slice(self.rows.within, self._schema)

    # Conditions on rows

    def row_rule(self) -> RowRule:
        return row_rule(self.check, self._schema, self.sql, self._what)

    # Queries

    def unique(self) -> Query:
        names = self.check.unique or ()
        columns = [self._column(name) for name in names]
        known = [f"{column} IS NOT NULL" for column in columns]
        grouped = f" GROUP BY {', '.join(columns)} HAVING count(*) > 1"
        groups = self.sql.select(["count(*) AS n"], self._source(), self._inside(), *known, rest=grouped)
        shown = [*columns, "count(*) AS n"]
        if self.hidden & {name.lower() for name in names}:
            shown = ["count(*) AS n"]
        return Query(
            count=f"SELECT coalesce(sum(n - 1), 0) FROM ({groups}) AS repeated",  # noqa: S608 - names are quoted
            examples=self.sql.select(shown, self._source(), self._inside(), *known, rest=grouped),
            words=f"repeat the {' and '.join(names)} of another row",
        )

    def references(self) -> Query:
        reference = _given(self.check.references)
        target = self.other(TableIdentifier.from_string(reference.table))
        what = f"{self._what}, table '{target.identifier}'"
        pairs = [
            (self._column(name), self.sql.column(target.schema, field_named(target.schema, to, what)))
            for name, to in zip(reference.columns, reference.to, strict=True)
        ]
        source, there = (
            f"{self._source()} AS checked",
            f"{self.sql.table(target.identifier, target.snapshot_id)} AS other",
        )
        met = " AND ".join(f"other.{to} = checked.{name}" for name, to in pairs)
        known = [f"checked.{name} IS NOT NULL" for name, _ in pairs]
        missing = f"NOT EXISTS (SELECT 1 FROM {there} WHERE {met})"  # noqa: S608 - names are quoted
        inside = self._inside()
        shown = [f"checked.{column}" for column in self._shown()]
        return Query(
            count=self.sql.select(["count(*)"], source, inside, *known, missing),
            examples=self.sql.select(shown, source, inside, *known, missing),
            words=f"refer to a row that '{target.identifier}' does not have",
        )

    def custom_query(self) -> Query:
        custom = _given(self.check.sql)
        this = self.sql.select(["*"], self._source(), self._inside())
        text = custom.query.strip().rstrip(";")
        # The line break ends a comment in the query's last line.
        count, examples = (
            f"WITH this AS ({this}) SELECT {what} FROM ({text}\n) AS wrong"  # noqa: S608 - of the project, read only
            for what in ("count(*)", "*")
        )
        return Query(count, examples, "are returned by the query")

    def _shown(self) -> list[str]:
        fields = [one for one in self._schema.fields if one.name.lower() not in self.hidden]
        return [self.sql.name(one.name) for one in fields]

    # Metadata and aggregates

    def row_count(self) -> TableRule:
        def judge() -> Finding | None:
            count = self.rows.count(self.rows.within)
            return None if count is None else self._count(count)

        return TableRule(judge, self._count)

    def _count(self, count: int) -> Finding:
        wanted = _given(self.check.row_count)
        numbers: dict[str, Any] = {}
        problems: list[str] = []
        notes: list[str] = []
        if wanted.min is not None and count < wanted.min:
            problems.append(f"at least {wanted.min:,} are expected")
        if wanted.max is not None and count > wanted.max:
            problems.append(f"at most {wanted.max:,} are expected")
        if wanted.change is not None:
            parts = max(1, len(self.rows.parts))
            before = self.rows.earlier_counts(wanted.history)
            mean = sum(before) / len(before) if before else None
            if mean is None:
                notes.append("there is nothing to compare with")
            numbers = {"compared_with": len(before), "mean_before": mean}
            if mean is not None and abs(count / parts - mean) > wanted.change * mean:
                each = " in each partition" if parts > 1 else ""
                problems.append(
                    f"{mean:,.0f}{each} were there on average of the {len(before)} before, and at most "
                    f"{wanted.change:.0%} of difference is expected"
                )
        message = "; ".join([counted(count, "row"), *problems, *notes])
        return Finding(not problems, message, rows=count, numbers=numbers)

    def freshness(self) -> ValueRule | TableRule:
        wanted = _given(self.check.freshness)
        if wanted.column is None:
            return TableRule(self._age_of_the_table, lambda _: self._age_of_the_table())
        field = self._field(wanted.column)
        if not isinstance(field.field_type, TimestampType | TimestamptzType | DateType):
            raise ConfigurationError(
                f"{self._what}: column {wanted.column!r} is {field.field_type}; freshness needs a timestamp or a date"
            )

        def judge(newest: Any) -> Finding:
            return self._age(_moment(newest), f"the newest {wanted.column}")

        return ValueRule(f"max({self._column(wanted.column)})", judge)

    def _age_of_the_table(self) -> Finding:
        table, snapshot_id = self.rows.table, self.rows.snapshot_id
        head = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
        changes = (one for one in ancestors_of(head, table.metadata) if _changes_rows(one))
        latest = next(changes, None)
        moment = None if latest is None else datetime.fromtimestamp(latest.timestamp_ms / 1000, timezone.utc)
        return self._age(moment, "the latest change of the table")

    def _age(self, moment: datetime | None, what: str) -> Finding:
        wanted = _given(self.check.freshness)
        if moment is None:
            return Finding(passed=False, message="there are no rows")
        age = self.now - moment
        shown = f"{what} is of {moment:%Y-%m-%d %H:%M:%S} UTC, {_age_text(age)} ago"
        numbers = {"newest": moment.isoformat(), "age_seconds": round(age.total_seconds())}
        if -age > _CLOCKS_DIFFER:
            message = f"{what} is of {moment:%Y-%m-%d %H:%M:%S} UTC, which is in the future"
            return Finding(False, message, numbers=numbers)
        if age > wanted.max_age:
            return Finding(False, f"{shown}; at most {duration_text(wanted.max_age)} is expected", numbers=numbers)
        return Finding(True, shown, numbers=numbers)

    def columns(self) -> TableRule:
        return TableRule(self._columns, lambda _: self._columns())

    def _columns(self) -> Finding:
        wanted = _given(self.check.columns)
        head = self.rows.table.current_snapshot()
        is_now = head is None or head.snapshot_id == self.rows.snapshot_id
        schema = self.rows.table.schema() if is_now else self._schema  # a column may have been added since, unwritten
        there = {field.name.lower(): field for field in schema.fields}
        problems = []
        for name, kind in wanted.columns.items():
            field = there.get(name.lower())
            if field is None:
                problems.append(f"{name} is missing")
            elif _type_text(str(field.field_type)) != _type_text(kind):
                problems.append(f"{name} is {field.field_type} and not {kind}")
        if wanted.exact:
            known = {name.lower() for name in wanted.columns}
            problems += [f"{field.name} is not declared" for name, field in there.items() if name not in known]
        text = f"{counted(len(wanted.columns), 'column')} as declared"
        return Finding(not problems, "; ".join(problems) or text, numbers={"problems": problems} if problems else {})


def _changes_rows(snapshot: Snapshot) -> bool:
    """Did a commit add or remove rows? A compaction did not, and neither did a write without rows."""
    summary = snapshot_info(snapshot).summary
    counts = [summary.get(name) for name in ("added-records", "deleted-records", "added-delete-files")]
    known = [count for count in counts if count is not None]
    # Iceberg leaves out counts of 0, and other writers may leave out all of them.
    is_told = bool(known) or "total-records" in summary
    return not is_rewrite(snapshot) and (not is_told or any(count != "0" for count in known))


def _given(value: Any) -> Any:
    """The settings of the rule, which the check has."""
    if value is None:
        raise AssertionError("the check has another rule")
    return value


def _type_text(text: str) -> str:
    return re.sub(r"\s+", "", text).lower()


def _moment(value: date | None) -> datetime | None:
    """A value of an engine as a time; one without a zone is in UTC."""
    if value is None:
        return None
    moment = value if isinstance(value, datetime) else datetime.combine(value, time())
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)


def _age_text(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
