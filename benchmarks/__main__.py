"""Run every benchmark and print what it measured: `make bench`, or `make bench ARGS=arrow` for a part."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from benchmarks import (
    arrow,
    branches,
    checks,
    dagster,
    flights,
    history,
    maintenance,
    publication,
    query,
    rest,
    start_up,
    upsert,
    writes,
)

console = Console(width=120)
MEASURES = {
    "start-up": start_up.measure,
    "arrow": arrow.measure,
    "reads": arrow.measure_reads,
    "history": history.measure,
    "rest": rest.measure,
    "spark": writes.measure,
    "dagster": dagster.measure,
    "query": query.measure,
    "publication": publication.measure,
    "checks": checks.measure,
    "branches": branches.measure,
    "upsert": upsert.measure,
    "maintenance": maintenance.measure,
    "flights": flights.measure,
}
chosen = sys.argv[1:] or [*MEASURES, "memory"]
for title in chosen:
    if title == "memory":
        console.print(arrow.measure_memory())
        continue
    table = Table("what", "seconds", "beside", "seconds", "ratio", "target", title=title, title_justify="left")
    for row in MEASURES[title]():
        table.add_row(
            row.what,
            f"{row.seconds:.3f}",
            row.beside,
            "-" if row.beside_seconds is None else f"{row.beside_seconds:.3f}",
            "-" if row.ratio is None else f"{row.ratio:.2f}",
            row.target,
        )
    console.print(table)
