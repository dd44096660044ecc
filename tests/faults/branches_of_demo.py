"""Two branches of the demo, worked on at once while main moves; writes what was seen as JSON. Argument: the folder."""

from __future__ import annotations

import json
import re
import sys
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from floe_core.errors import ConcurrencyConflictError
from floe_runtime import connect
from floe_runtime.demo.story import check_figures, prepare

DAY, OTHER, THIRD = "2026-01-05", "2026-01-08", "2026-01-10"
SOURCED = ("bronze/orders", "silver/orders", "silver/rejected_orders")
GOLD = ("gold/daily_revenue", "gold/top_products", "gold/customer_cohorts")


def source(folder: Path, **changes: object) -> None:
    path = folder / "source.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), encoding="utf-8")


def states(main: Any, name: str) -> dict[str, str]:
    return {one.table: one.state.value for one in main.branches.show(name).tables}


def work(folder: Path) -> dict[str, Any]:
    prepare(folder, rows=20_000, console=Console(file=StringIO()))
    main = connect(folder)
    main.run(partition_range="2026-01-01...2026-01-14", with_unpartitioned=True)
    files = set((folder / ".floe" / "warehouse").rglob("*.parquet"))
    one, two, third = (connect(folder, branch=name) for name in ("one", "two", "three"))
    source(folder, corrected_days=[DAY])
    one.run(*SOURCED, *GOLD, partitions=[DAY], with_unpartitioned=True)
    source(folder, corrected_days=[OTHER])
    two.run(*SOURCED, *GOLD, partitions=[OTHER], with_unpartitioned=True)
    third.run(*SOURCED, partitions=[THIRD])
    main.run(*SOURCED, partitions=[THIRD])
    seen: dict[str, Any] = {"one before": states(main, "one"), "two before": states(main, "two")}
    for name in ("one", "two"):
        found = {each.table: [each.rows_added, each.rows_removed] for each in main.branches.diff(name)}
        partitions = {
            each.table: [next(iter(part.partition.values()), None) for part in each.partitions]
            for each in main.branches.diff(name, "silver.orders")
        }
        seen[f"{name} diff"] = {**found, "days": partitions["silver.orders"]}
    published = main.branches.publish("one")
    seen["replayed"] = sorted(each.table for each in published.tables if each.replayed)
    try:
        main.branches.publish("two")
    except ConcurrencyConflictError as exc:
        seen["refused"] = str(exc)
    seen["two after"] = states(main, "two")
    main.branches.update("two", restart=True)
    two = connect(folder, branch="two")
    two.run(*GOLD)
    seen["two ready"] = states(main, "two")
    main.branches.publish("two")
    output = StringIO()
    check_figures(main.tables, Console(file=output, width=120))
    seen["figures"] = output.getvalue().strip().splitlines()[-1]
    seen["missing"] = [asset.asset for asset in main.plan(missing=True).assets]
    main.branches.discard("three")
    refs = {str(name): sorted(main.tables.load_table(name).metadata.refs) for name in main.tables.find_tables()}
    seen["refs"] = {name: found for name, found in refs.items() if found != ["main"]}
    seen["branches"] = [each.name for each in main.branches.list()]
    seen["homes"] = sorted(path.name for path in (folder / ".floe").glob("dagster@*"))
    held = {
        re.sub("^file:/+", "/", str(task["file_path"]))
        for name in main.tables.find_tables()
        for task in main.tables.inspect(name).all_data_files().to_pylist()
    }
    there = set((folder / ".floe" / "warehouse").rglob("*.parquet"))
    seen["left behind"] = sorted(str(path) for path in there - files if str(path) not in held)
    return seen


sys.stdout.write(json.dumps(work(Path(sys.argv[1]))) + "\n")
