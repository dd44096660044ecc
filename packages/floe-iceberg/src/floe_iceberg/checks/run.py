"""Run checks: one pass over the rows for all rules about single rows and aggregates, one query for each other rule."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Protocol

from floe_core.config import TableCheck, check_name
from floe_core.errors import ConfigurationError, FloeError, QueryError, QueryRefusedError, TimeLimitError
from floe_core.formatting import counted
from floe_core.identifiers import TableIdentifier
from floe_core.observability import operation
from floe_core.plugins import ComputePlugin
from floe_iceberg.checks.outcome import CheckOutcome
from floe_iceberg.checks.row_rules import RowRule
from floe_iceberg.checks.rows import CheckedRows
from floe_iceberg.checks.rules import Finding, Query, Rule, TableRule, ValueRule, rule_of
from floe_iceberg.checks.sql_text import SqlText
from floe_iceberg.query import ENGINES, QueryResult

__all__ = ["engine_of", "refuse_equal_names", "run_checks"]

_EXAMPLES = 5
# Partitions are told apart in the shared pass up to this number; the failing rows of more are only counted together.
_PARTS = 100
_PART = "floe_part"


class _Lake(Protocol):
    @property
    def compute(self) -> ComputePlugin: ...

    def sql(self, query: str, *, engine: Any) -> QueryResult: ...


def engine_of(lake: _Lake, engine: str | None) -> str:
    """The engine that is asked for; by default Spark if a session of the lake is running, and DuckDB otherwise.

    Args:
        lake: The lake.
        engine: `duckdb`, `spark` or None.
    """
    if engine is None:
        return "spark" if "pyspark" in sys.modules and lake.compute.has_session else "duckdb"
    if engine not in ENGINES:
        raise ConfigurationError(f"engine is {engine!r}; it must be {' or '.join(ENGINES)}")
    return engine


def refuse_equal_names(checks: Sequence[TableCheck], subject: str) -> None:
    """Refuse two checks of one name."""
    names = [check_name(check) for check in checks]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{subject} has two checks called {name}; give one of them a name of its own")


def run_checks(
    lake: _Lake,
    checks: Sequence[TableCheck],
    rows: CheckedRows,
    *,
    other: Callable[[TableIdentifier], CheckedRows],
    engine: str | None = None,
    hidden: frozenset[str] = frozenset(),
    now: datetime | None = None,
    until: float | None = None,
) -> list[CheckOutcome]:
    """Run checks on a table at a snapshot; a check that cannot be run is an outcome that has not passed.

    Args:
        lake: The lake.
        checks: The checks.
        rows: The rows of checks whose scope is the slice.
        other: Loads a table that a check refers to.
        engine: `duckdb` or `spark`. By default Spark if a session is running.
        hidden: Columns that are never shown, in lower case.
        now: The current time.
        until: The value of `time.monotonic` after which no query is started; TimeLimitError.
    """
    refuse_equal_names(checks, f"'{rows.identifier}'")
    made = _Run(lake, SqlText(engine_of(lake, engine)), other, hidden, now or datetime.now(timezone.utc), until)
    with operation("iceberg.check", table=str(rows.identifier), checks=len(checks), engine=made.sql.engine) as op:
        found: dict[str, CheckOutcome] = {}
        for scope in ("slice", "table"):
            chosen = [check for check in checks if check.scope == scope]
            if chosen:
                found |= made.run(chosen, rows if scope == "slice" else rows.whole())
        op.set(failed=sum(not outcome.passed for outcome in found.values()))
    return [found[check_name(check)] for check in checks]


@dataclass
class _Pass:
    """What the shared pass over the rows has counted."""

    rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Run:
    lake: _Lake
    sql: SqlText
    other: Callable[[TableIdentifier], CheckedRows]
    hidden: frozenset[str]
    now: datetime
    until: float | None

    def run(self, checks: Sequence[TableCheck], rows: CheckedRows) -> dict[str, CheckOutcome]:
        """The outcome of each check of one scope, by its name."""
        rules: dict[str, Rule] = {}
        outcomes: dict[str, CheckOutcome] = {}
        by_name = {check_name(check): check for check in checks}
        for name, check in by_name.items():
            try:
                rules[name] = rule_of(check, rows, self.sql, other=self.other, now=self.now, hidden=self.hidden)
            except FloeError as exc:  # noqa: PERF203 - one check that cannot be run does not keep others from it
                outcomes[name] = self._error(check, rows, exc)
        findings = self._by_metadata(rules)
        shared = {name: rule for name, rule in rules.items() if name not in findings and not isinstance(rule, Query)}
        counted_rows, errors = self._shared_pass(shared, rows)
        for name, error in errors.items():
            outcomes[name] = self._error(by_name[name], rows, error)
        for name, rule in rules.items():
            if name in outcomes:
                continue
            check = by_name[name]
            try:
                finding = findings.get(name) or self._finding(name, rule, counted_rows, rows)
                outcomes[name] = self._outcome(check, rows, rule, finding, counted_rows)
            except FloeError as exc:
                outcomes[name] = self._error(check, rows, exc)
        return outcomes

    def _by_metadata(self, rules: Mapping[str, Rule]) -> dict[str, Finding]:
        found = {name: rule.judge() for name, rule in rules.items() if isinstance(rule, TableRule)}
        return {name: finding for name, finding in found.items() if finding is not None}

    # The shared pass

    def _shared_pass(self, rules: Mapping[str, Rule], rows: CheckedRows) -> tuple[_Pass, dict[str, FloeError]]:
        """One query for all rules; if it fails, one for each, so that only those are lost that cannot be run."""
        if not rules or rows.snapshot_id is None:
            return _Pass(), {}
        try:
            return self._counted(rules, rows), {}
        except TimeLimitError:
            raise
        except FloeError as exc:
            if len(rules) == 1:
                return _Pass(), dict.fromkeys(rules, exc)
        merged = _Pass()
        errors: dict[str, FloeError] = {}
        for name, rule in rules.items():
            one, failed = self._shared_pass({name: rule}, rows)
            errors |= failed
            merged.rows = max(merged.rows, one.rows)
            merged.counts |= one.counts
            merged.values |= one.values
            for part, numbers in one.parts.items():
                merged.parts.setdefault(part, {}).update(numbers)
        return merged, errors

    def _counted(self, rules: Mapping[str, Rule], rows: CheckedRows) -> _Pass:
        expressions: dict[str, str] = {}
        places: dict[str, tuple[str, str | None]] = {}
        for number, (name, rule) in enumerate(rules.items()):
            if isinstance(rule, RowRule):
                conditions: list[tuple[str | None, str]] = [(None, rule.bad), *rule.columns.items()]
                for place, (column, condition) in enumerate(conditions):
                    expressions[f"c{number}_{place}"] = f"count_if({condition})"
                    places[f"c{number}_{place}"] = (name, column)
            elif isinstance(rule, ValueRule):
                expressions[f"v{number}"] = rule.expression
                places[f"v{number}"] = (name, None)
        grouped = 1 < len(rows.parts) <= _PARTS
        selected = [f"{expression} AS {alias}" for alias, expression in expressions.items()]
        part = [f"{self._part(rows)} AS {_PART}"] if grouped else []
        query = self.sql.select(
            [*part, "count(*) AS n", *selected],
            self.sql.table(rows.identifier, rows.snapshot_id),
            self.sql.slice(rows.within, rows.schema),
            rest=f" GROUP BY {_PART}" if grouped else "",
        )
        made = _Pass()
        for row in self._fetched(query):
            made.rows += int(row["n"])
            for alias, (name, column) in places.items():
                self._add(made, alias, name, column, row)
        return made

    def _add(self, made: _Pass, alias: str, name: str, column: str | None, row: Mapping[str, Any]) -> None:
        if alias.startswith("v"):
            known, value = made.values.get(name), row[alias]
            made.values[name] = value if known is None or (value is not None and value > known) else known
            return
        key, count = name if column is None else f"{name}\0{column}", int(row[alias] or 0)
        made.counts[key] = made.counts.get(key, 0) + count
        if column is None and count and row.get(_PART) is not None:
            made.parts.setdefault(str(row[_PART]), {})[name] = count

    def _part(self, rows: CheckedRows) -> str:
        cases = " ".join(
            f"WHEN {self.sql.slice(within, rows.schema)} THEN {self.sql.text(key)}"
            for key, within in rows.parts.items()
        )
        return f"CASE {cases} END"

    # Outcomes

    def _finding(self, name: str, rule: Rule, made: _Pass, rows: CheckedRows) -> Finding:
        if isinstance(rule, RowRule):
            failing = made.counts.get(name, 0)
            columns = {column: made.counts.get(f"{name}\0{column}", 0) for column in rule.columns}
            found = {column: count for column, count in columns.items() if count}
            return _of_rows(failing, rule.words, made.rows, {"columns": found} if found else {})
        if isinstance(rule, ValueRule):
            return replace(rule.judge(made.values.get(name)), rows=made.rows)
        if isinstance(rule, TableRule):
            return rule.otherwise(made.rows)
        if rows.snapshot_id is None:
            return _of_rows(0, rule.words, None, {})
        (row,) = self._fetched(rule.count)
        return _of_rows(int(next(iter(row.values())) or 0), rule.words, None, {})

    def _outcome(self, check: TableCheck, rows: CheckedRows, rule: Rule, finding: Finding, made: _Pass) -> CheckOutcome:
        name = check_name(check)
        return CheckOutcome(
            name=name,
            rule=check.rule,
            passed=finding.passed,
            severity=check.severity,
            scope=check.scope,
            message=finding.message,
            snapshot_id=rows.snapshot_id,
            rows=finding.rows,
            failing=finding.failing,
            numbers=finding.numbers,
            examples=self._examples(rule, rows) if finding.failing else (),
            partitions={part: counts[name] for part, counts in made.parts.items() if name in counts},
        )

    def _examples(self, rule: Rule, rows: CheckedRows) -> list[dict[str, Any]]:
        if isinstance(rule, RowRule):
            shown = [self.sql.name(one.name) for one in rows.schema.fields if one.name.lower() not in self.hidden] or [
                "1"
            ]
            source, inside = self.sql.table(rows.identifier, rows.snapshot_id), self.sql.slice(rows.within, rows.schema)
            query = self.sql.select(shown, source, inside, rule.bad)
        elif isinstance(rule, Query):
            query = rule.examples
        else:
            return []
        found = self._fetched(query, _EXAMPLES)
        if not self.hidden:
            return found
        # A query may give a sensitive column another name: only columns of the table are shown.
        shown_names = {one.name.lower() for one in rows.schema.fields} - self.hidden | {"n"}
        return [{column: value for column, value in row.items() if column.lower() in shown_names} for row in found]

    def _error(self, check: TableCheck, rows: CheckedRows, exc: FloeError) -> CheckOutcome:
        """The outcome of a check that could not be run: whether the rule holds is unknown, so it has not passed."""
        if isinstance(exc, TimeLimitError):
            raise exc
        return CheckOutcome(
            name=check_name(check),
            rule=check.rule,
            passed=False,
            severity="error",
            scope=check.scope,
            message=f"could not be run: {self._reason(exc)}",
            snapshot_id=rows.snapshot_id,
        )

    def _reason(self, exc: FloeError) -> str:
        """The error; without the words of the engine, which may be values, if the table has sensitive columns."""
        if self.hidden and isinstance(exc, QueryError) and not isinstance(exc, QueryRefusedError):
            return "the engine refused the query; its error is not shown, because the table has sensitive columns"
        return str(exc)

    def _fetched(self, query: str, limit: int | None = None) -> list[dict[str, Any]]:
        if self.until is not None and time.monotonic() > self.until:  # the error of the timer may have been translated
            raise TimeLimitError("the checks took longer than their time limit and were stopped")
        with self.lake.sql(query, engine=self.sql.engine) as result:
            return [row for batch in result.batches(limit) for row in batch.to_pylist()]


def _of_rows(failing: int, words: str, rows: int | None, numbers: Mapping[str, Any]) -> Finding:
    """The finding of a rule about rows."""
    many = counted(failing, "row") if rows is None else f"{failing:,} of {rows:,} rows"
    message = f"{many} {_singular(words) if failing == 1 else words}"
    return Finding(not failing, message, failing, rows, numbers)


def _singular(words: str) -> str:
    """The words of one row: has, does, repeats."""
    verb, _, rest = words.partition(" ")
    known = {"have": "has", "do": "does", "are": "is"}
    return f"{known.get(verb, f'{verb}s')} {rest}".replace(" or have ", " or has ")
