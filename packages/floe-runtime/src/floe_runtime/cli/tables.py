"""floe tables."""

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

__all__ = ["tables"]


@dataclass(frozen=True)
class Health:
    """How one table is; without facts it could not be read, and the finding says why."""

    table: str
    light: Light
    facts: TableFacts | None
    findings: list[Finding]
    refused: bool = False  # what it says about its maintenance is


@click.group()
def tables() -> None:
    """Show how healthy tables are."""


@tables.command()
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
    """Show files, history and deletes of each table, and what mends what is not well."""
    from floe_iceberg import Lake
    from floe_iceberg.maintenance import Light, Maintenance
    from floe_runtime.console import health_table, print_findings

    artifacts = compile_here(project, environment)
    observe(artifacts)
    lake = Lake(artifacts)
    chosen = Maintenance(lake).tables(*named(tables, namespaces))
    out = console(quiet=as_json)
    with out.status("looking at the tables"):
        found = [one for identifier in chosen if (one := _health(lake, identifier)) is not None]
    unread = [one.table for one in found if one.facts is None]
    refused = [one.table for one in found if one.refused]
    problems = [
        *([f"{', '.join(unread)} cannot be read"] if unread else []),
        *([f"{', '.join(refused)} cannot be maintained as it is said"] if refused else []),
    ]
    here = "".join(f" {option} {value}" for option, value in (("--project", project), ("--env", environment)) if value)
    if as_json:
        error = "; ".join(problems) or None
        print_json({"ok": not problems, "error": error, "tables": [_document(one, here) for one in found]})
    elif not found:
        out.print("no tables to look at")
    else:
        out.print(health_table([(one.table, one.light, one.facts) for one in found], out))
        for one in found:
            if one.findings:
                print_findings(out, one.table, one.light, _mended(one.findings, here))
        lights = [one.light for one in found]
        out.print(", ".join(f"{lights.count(light)} {light.value}" for light in Light if light in lights))
    raise click.exceptions.Exit(1 if problems else 0)


def _health(lake: Lake, identifier: TableIdentifier) -> Health | None:
    """How the table is; None if it was dropped meanwhile."""
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
    except Exception as exc:  # noqa: BLE001 - whatever is wrong with the files of one table, the others are told of
        reason = (
            str(exc)
            if isinstance(exc, FloeError)
            else f"cannot be read: {type(exc).__name__}: {' '.join(str(exc).split())}"
        )
        return Health(str(identifier), Light.RED, None, [Finding(Light.RED, reason, "")])
    found = [*refusal, *findings(str(identifier), facts, policy)]
    light = found[0].light if found else Light.GREEN
    return Health(str(identifier), light, facts, found, refused=bool(refusal))


def _policy(lake: Lake, identifier: TableIdentifier, table: Table) -> tuple[MaintenancePolicy, list[Finding]]:
    """The policy of the table; where it is refused, that of its namespace, and why."""
    from floe_core.errors import ConfigurationError
    from floe_iceberg.maintenance import Finding, Light, table_policy

    config = lake.artifacts.maintenance
    try:
        return table_policy(config, identifier, table, given=lake.tables.config.table_properties), []
    except ConfigurationError as exc:
        return config.of_namespace(identifier.namespace), [Finding(Light.RED, f"it is not maintained: {exc}", "")]


def _mended(findings: list[Finding], here: str) -> list[Finding]:
    """The commands with the options that lead to this project."""
    return [replace(one, mend=f"{one.mend}{here}") if one.mend.startswith("floe ") else one for one in findings]


def _document(one: Health, here: str) -> dict[str, Any]:
    return {
        "table": one.table,
        "light": one.light.value,
        "facts": None if one.facts is None else facts_document(one.facts),
        "findings": [
            {"light": finding.light.value, "reason": finding.reason, "mend": finding.mend}
            for finding in _mended(one.findings, here)
        ],
    }
