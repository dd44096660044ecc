"""Run every benchmark and print what it measured: `make bench`."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from benchmarks import start_up, writes

console = Console()
for title, measure in (("start-up", start_up.measure), ("writes", writes.measure)):
    table = Table("what", "seconds", "beside", "seconds", "ratio", "target", title=title, title_justify="left")
    for row in measure():
        table.add_row(
            row.what,
            f"{row.seconds:.3f}",
            row.beside,
            f"{row.beside_seconds:.3f}",
            f"{row.seconds / row.beside_seconds:.2f}",
            row.target,
        )
    console.print(table)
