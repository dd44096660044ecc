"""floe doctor."""

from __future__ import annotations

from pathlib import Path

import click

from floe_runtime.cli.common import (
    compile_here,
    console,
    environment_option,
    json_option,
    observe,
    print_json,
    project_option,
    tells_errors,
)

__all__ = ["doctor"]


@click.command()
@project_option
@environment_option
@json_option
@tells_errors
def doctor(project: Path | None, environment: str | None, as_json: bool) -> None:
    """Check Java, Spark, the jars, the catalog and the storage, and say what to do."""
    from floe_runtime.console import sign
    from floe_runtime.doctor import examine

    out = console(quiet=as_json)
    artifacts = compile_here(project, environment)
    observe(artifacts)
    findings = []
    for finding in examine(artifacts):
        findings.append(finding)
        if not as_json:
            style = "green" if finding.ok else "red"
            out.print(f"[{style}]{sign(out, good=finding.ok)}[/{style}] {finding.name:<10}", end=" ")
            out.print(finding.message, markup=False, style=None if finding.ok else "red")
    ok = all(finding.ok for finding in findings)
    if as_json:
        print_json({"ok": ok, "checks": [vars(finding) for finding in findings]})
    raise click.exceptions.Exit(0 if ok else 1)
