"""The step of the checks of an asset: which rows they look at, and what Dagster records of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetKey,
    MetadataValue,
    PartitionsDefinition,
    TimeWindowPartitionsDefinition,
)
from pyiceberg.table.refs import MAIN_BRANCH

from floe_core.config import TableCheck, check_name, quarantine_of
from floe_core.errors import ConfigurationError, QueryRefusedError
from floe_core.formatting import markdown_table
from floe_core.identifiers import TableIdentifier
from floe_dagster._dagster.names import step_of_op
from floe_dagster.assets.names import table_of
from floe_dagster.assets.options import OutputOptions, output_options
from floe_dagster.assets.partitions import Partitioning, partitioning
from floe_dagster.assets.values import Kind
from floe_dagster.checks.functions import FunctionCheck, run_function
from floe_dagster.io_manager import IcebergIOManager
from floe_dagster.resources import lake_of
from floe_dagster.runs.description import sensitive_columns
from floe_dagster.runs.partitions import partition_keys_of
from floe_dagster.runs.steps import partition_label
from floe_dagster.runs.transaction import current_run
from floe_iceberg import Lake
from floe_iceberg.checks import CheckedRows, CheckOutcome, run_checks
from floe_iceberg.quarantine import moved_rows, with_moved_rows
from floe_iceberg.query import tables_read_now
from floe_iceberg.snapshots import refuse_unpublished

__all__ = ["results_of"]

# Earlier partitions that are offered to row counts for comparison: as many as a check may ask for.
_EARLIER = 1000


def results_of(
    context: AssetCheckExecutionContext,
    key: AssetKey,
    checks: Sequence[TableCheck | FunctionCheck],
    manager: Any,
    *,
    engine: str | None,
    timeout: float | None,
) -> list[AssetCheckResult]:
    """Run checks of an asset on the rows that the run has written, or on the whole table outside of a run of it."""
    asset = key.to_user_string()
    if not isinstance(manager, IcebergIOManager):
        raise ConfigurationError(f"asset {asset} is not stored by an IcebergIOManager, so Floe cannot check it")
    step = step_of_op(context.op_execution_context)
    node = step.job_def.asset_layer.get(key)
    options = output_options(node.metadata, asset)
    lake = lake_of(manager.lake, manager.table_manager)
    hidden = frozenset(sensitive_columns(options, node.metadata))
    keys = partition_keys_of(step, node.partitions_def)
    branch = options.branch or manager.branch or MAIN_BRANCH
    rows = _rows(lake, manager, key, options, node.partitions_def, keys)
    until = None if timeout is None else time.monotonic() + timeout
    by_rule = [check for check in checks if isinstance(check, TableCheck)]
    outcomes = {
        outcome.name: outcome
        for outcome in run_checks(
            _in_run(lake),
            by_rule,
            rows,
            other=lambda name: _other(lake, name, branch),
            engine=engine,
            hidden=hidden,
            until=until,
        )
    }
    outcomes |= _with_moved_rows(lake, by_rule, outcomes, rows, hidden)
    default = Kind.SPARK if engine == "spark" else Kind.ARROW
    for check in checks:
        if isinstance(check, FunctionCheck):
            outcomes[check.name] = run_function(check, lake, rows, default=default)
    return [_result(outcome, key, rows.identifier, keys) for outcome in outcomes.values()]


def _with_moved_rows(
    lake: Lake,
    checks: Sequence[TableCheck],
    outcomes: Mapping[str, CheckOutcome],
    rows: CheckedRows,
    hidden: frozenset[str],
) -> dict[str, CheckOutcome]:
    """The outcomes of the checks that move rows, with the rows that the atomic run has moved because of them."""
    run, moving = current_run(), [check for check in checks if check.quarantine]
    target = quarantine_of(moving, rows.identifier)
    if run is None or target is None or run.branch not in rows.table.metadata.refs:
        return {}  # nothing was written, as when only checks run
    moved = moved_rows(lake.tables, target, run.branch)
    names = map(check_name, moving)
    return {name: with_moved_rows(lake.tables, outcomes[name], moved, hidden=hidden) for name in names}


def _in_run(lake: Lake) -> Any:
    """The lake, for the queries of checks of an atomic run."""
    run = current_run()
    return lake if run is None else _LakeOfRun(lake, run.branch)


@dataclass(frozen=True)
class _LakeOfRun:
    """Refuses queries that would read main of a table that the run has written, and not what would be published."""

    lake: Lake
    branch: str

    @property
    def compute(self) -> Any:
        return self.lake.compute

    def sql(self, query: str, *, engine: Any) -> Any:
        for name in tables_read_now(query, engine=engine):
            with suppress(ConfigurationError):  # no name of a table: the query itself says what is wrong
                table = self.lake.tables.find_table(TableIdentifier.from_string(name))
                if table is not None and self.branch in table.metadata.refs:
                    raise QueryRefusedError(
                        f"the query names {name}, which this run has written, and would read it as it was before the "
                        f"run; name the rows to check as this, or use checks.references or checks.function"
                    )
        return self.lake.sql(query, engine=engine)


def _rows(
    lake: Lake,
    manager: IcebergIOManager,
    key: AssetKey,
    options: OutputOptions,
    definition: PartitionsDefinition[Any] | None,
    keys: Sequence[str],
) -> CheckedRows:
    """The table at the branch that the asset is written to, or at that of the atomic run."""
    asset = key.to_user_string()
    identifier = table_of(key.path, options, manager.naming)
    branch = options.branch or manager.branch or MAIN_BRANCH
    rows = _at(lake, identifier, branch)
    if not keys or definition is None:
        return rows
    parts = partitioning(definition, options.partition_expr, asset)
    return CheckedRows(
        identifier,
        rows.table,
        rows.snapshot_id,
        within=parts.slice(keys),
        parts={one: parts.slice([one]) for one in keys},
        earlier=[parts.slice([one]) for one in _earlier(parts, keys[0])],
    )


def _earlier(parts: Partitioning, first: str) -> list[str]:
    """The windows of time before the first one, the latest first."""
    if not isinstance(parts.definition, TimeWindowPartitionsDefinition):
        return []
    known = list(parts.definition.get_partition_keys())
    if first not in known:
        return []
    return known[: known.index(first)][: -_EARLIER - 1 : -1]


def _other(lake: Lake, identifier: TableIdentifier, branch: str) -> CheckedRows:
    """A table that a check refers to: as the atomic run has written it, on the branch of the asset, or on main."""
    has_it = branch in lake.tables.load_table(identifier).metadata.refs
    return _at(lake, identifier, branch if has_it else MAIN_BRANCH)


def _at(lake: Lake, identifier: TableIdentifier, branch: str) -> CheckedRows:
    table, run = lake.tables.load_table(identifier), current_run()
    if run is not None and run.branch in table.metadata.refs:
        branch = run.branch
    elif branch == MAIN_BRANCH:
        table = lake.tables.as_shown(table, identifier)
        refuse_unpublished(table, identifier)
    if branch != MAIN_BRANCH and branch not in table.metadata.refs:
        raise ConfigurationError(
            f"table '{identifier}' has no branch {branch!r}, so there is nothing to check; create it with create_branch"
        )
    head = table.snapshot_by_name(branch)
    return CheckedRows(identifier, table, None if head is None else head.snapshot_id)


def _result(outcome: CheckOutcome, key: AssetKey, table: TableIdentifier, keys: Sequence[str]) -> AssetCheckResult:
    return AssetCheckResult(
        passed=outcome.passed,
        asset_key=key,
        check_name=outcome.name,
        severity=AssetCheckSeverity.WARN if outcome.severity == "warn" else AssetCheckSeverity.ERROR,
        description=outcome.message,
        metadata=dict(_metadata(outcome, table, keys)),
    )


def _metadata(outcome: CheckOutcome, table: TableIdentifier, keys: Sequence[str]) -> Mapping[str, Any]:
    """What was found; Dagster records no partition for checks, so these are part of it."""
    examples = outcome.examples
    known: dict[str, Any] = {
        "floe/table": str(table),
        "floe/rule": outcome.rule,
        "floe/scope": outcome.scope,
        "floe/snapshot_id": str(outcome.snapshot_id) if outcome.snapshot_id is not None else None,
        "floe/partitions": partition_label(keys) if outcome.scope == "slice" else None,
        "floe/rows_checked": outcome.rows,
        "floe/rows_failing": outcome.failing,
        "floe/rows_failing_by_partition": dict(outcome.partitions) or None,
        "floe/rows_quarantined": outcome.quarantined,
        "floe/quarantine_table": outcome.quarantine,
        "floe/numbers": _plain(outcome.numbers) or None,
        "floe/examples": MetadataValue.md(markdown_table(examples, list(examples[0]))) if examples else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _plain(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that JSON has; others as text."""
    kinds = (str, int, float, bool, list, dict, type(None))
    return {name: value if isinstance(value, kinds) else str(value) for name, value in numbers.items()}
