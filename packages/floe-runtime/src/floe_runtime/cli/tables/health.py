"""floe tables health."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floe_runtime.cli.common import (
    compile_here,
    console,
    environment_option,
    facts_document,
    json_option,
    named,
    namespaces_option,
    observe,
    options_here,
    print_json,
    project_option,
    tables_option,
    tells_errors,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from floe_core.config import MaintenancePolicy
    from floe_core.identifiers import TableIdentifier
    from floe_iceberg import Lake
    from floe_iceberg.maintenance import Finding, Light, TableFacts

__all__ = ["health"]


@dataclass(frozen=True)
class Health:
    """The health of one table; without facts it could not be read, and the finding says why."""

    table: str
    light: Light
    facts: TableFacts | None
    findings: list[Finding]
    refused: bool = False  # its maintenance settings are invalid


@click.command()
@tables_option
@namespaces_option
@project_option
@environment_option
@json_option
@tells_errors
def health(
    tables: tuple[str, ...],
    namespaces: tuple[str, ...],
    project: Path | None,
    environment: str | None,
    as_json: bool,
) -> None:
    """Show files, history and deletes of each table, and how to fix what is wrong."""
    from floe_iceberg import Lake
    from floe_iceberg.maintenance import Light, Maintenance
    from floe_runtime.console import health_table, print_findings

    artifacts = compile_here(project, environment)
    observe(artifacts)
    lake = Lake(artifacts)
    chosen = Maintenance(lake).tables(*named(tables, namespaces))
    out = console(quiet=as_json)
    with out.status("inspecting tables"):
        examined = [state for identifier in chosen if (state := _health(lake, identifier)) is not None]
    unread = [state.table for state in examined if state.facts is None]
    refused = [state.table for state in examined if state.refused]
    problems = [
        *([f"{', '.join(unread)} cannot be read"] if unread else []),
        *([f"{', '.join(refused)} cannot be maintained: invalid maintenance settings"] if refused else []),
    ]
    here = options_here(project, environment)
    if as_json:
        error = "; ".join(problems) or None
        print_json({"ok": not problems, "error": error, "tables": [_document(state, here) for state in examined]})
    elif not examined:
        out.print("no tables found")
    else:
        out.print(health_table([(state.table, state.light, state.facts) for state in examined], out))
        for state in examined:
            if state.findings:
                print_findings(out, state.table, state.light, _with_options(state.findings, here))
        lights = [state.light for state in examined]
        out.print(", ".join(f"{lights.count(light)} {light.value}" for light in Light if light in lights))
    raise click.exceptions.Exit(1 if problems else 0)


def _health(lake: Lake, identifier: TableIdentifier) -> Health | None:
    """The health of the table; None if it was dropped in the meantime."""
    from floe_core.errors import FloeError
    from floe_iceberg.errors import translated
    from floe_iceberg.maintenance import Finding, Light, findings, look

    try:
        with translated("health", identifier):
            table = lake.tables.find_table(identifier)
            if table is None:
                return None
            policy, refusal = _policy(lake, identifier, table)
            facts = look(table, policy, now=datetime.now(timezone.utc))
    except Exception as exc:  # noqa: BLE001 - a broken table must not hide the others
        reason = (
            str(exc)
            if isinstance(exc, FloeError)
            else f"cannot be read: {type(exc).__name__}: {' '.join(str(exc).split())}"
        )
        return Health(str(identifier), Light.RED, None, [Finding(Light.RED, reason, "")])
    all_findings = [*refusal, *findings(str(identifier), facts, policy)]
    light = all_findings[0].light if all_findings else Light.GREEN
    return Health(str(identifier), light, facts, all_findings, refused=bool(refusal))


def _policy(lake: Lake, identifier: TableIdentifier, table: Table) -> tuple[MaintenancePolicy, list[Finding]]:
    """The policy of the table; if its settings are invalid, that of its namespace, and the finding."""
    from floe_core.errors import ConfigurationError
    from floe_iceberg.maintenance import Finding, Light, table_policy

    config = lake.artifacts.maintenance
    try:
        return table_policy(config, identifier, table, given=lake.tables.config.table_properties), []
    except ConfigurationError as exc:
        return config.of_namespace(identifier.namespace), [Finding(Light.RED, f"it is not maintained: {exc}", "")]


def _with_options(findings: list[Finding], here: str) -> list[Finding]:
    """The findings, with the options of this project added to their commands."""
    return [
        replace(finding, mend=f"{finding.mend}{here}") if finding.mend.startswith("floe ") else finding
        for finding in findings
    ]


def _document(state: Health, here: str) -> dict[str, Any]:
    return {
        "table": state.table,
        "light": state.light.value,
        "facts": None if state.facts is None else facts_document(state.facts),
        "findings": [
            {"light": finding.light.value, "reason": finding.reason, "mend": finding.mend}
            for finding in _with_options(state.findings, here)
        ],
    }
