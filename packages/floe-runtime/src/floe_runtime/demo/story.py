"""The demo: two weeks of a small retailer on real tables, with every figure checked at the end."""

from __future__ import annotations

import filecmp
import json
import os
import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from floe_core.compiler import SPEC_FILE, compile_project
from floe_core.config import CompiledArtifacts, LocalStorageConfig, SqlCatalogConfig, read_document
from floe_core.errors import ConfigurationError, FloeError
from floe_core.formatting import human_bytes
from floe_core.identifiers import TableIdentifier, TableSlice
from floe_iceberg import IcebergTableManager, Lake
from floe_runtime import templates
from floe_runtime.branches import ProjectBranches
from floe_runtime.console import command_name, progress, report_table
from floe_runtime.console.branches import print_publication
from floe_runtime.console.row_differences import print_differences
from floe_runtime.demo.recount import TOP, Difference, compare, recompute, recorded
from floe_runtime.runs.pipeline import Pipeline, open_pipeline
from floe_runtime.runs.planning import batches
from floe_runtime.runs.runner import RunFailedError, RunReport, run_batches

__all__ = ["DAYS", "DemoFailedError", "FileChange", "check_figures", "file_change", "prepare", "run_demo"]

DAYS = tuple(date(2026, 1, 1) + timedelta(days=number) for number in range(14))

_NAME = "floe-demo"
_TEMPLATE = Path(templates.__file__).parent / "retail"
_CORRECTED = date(2026, 1, 5)
_CHANNEL_SINCE = DAYS[-1]
_SPOILED = DAYS[-1]
_NEXT_STEPS = (
    "tables list",
    "snapshots list silver.orders",
    f"run --partition {_CORRECTED}",
    "runs list",
    "branches list",
    "maintain plan",
    "dev",
)
# The assets that depend on the orders; customers and products do not change.
_AFFECTED = (
    "bronze/orders",
    "silver/orders",
    "silver/rejected_orders",
    "gold/daily_revenue",
    "gold/top_products",
    "gold/customer_cohorts",
)


# What the bad delivery would reach first.
_DELIVERED = ("bronze/orders", "silver/orders", "silver/rejected_orders")
# The change of logic, and where it is tried.
_BRANCH = "top-ten"
_CHANGED = Path("retail") / "gold.py"
_LOGIC = (
    'return sold.select(rank.alias("rank"), "*").where(F.col("rank") <= 20)',
    'return sold.select(rank.alias("rank"), "*").where(F.col("rank") <= 10)',
)
_TOP_AFTERWARDS, _TOP_PRODUCTS = 10, "gold/top_products"


class DemoFailedError(FloeError):
    """The tables do not hold what the demo expects."""


@dataclass(frozen=True)
class FileChange:
    """How the data files of a table differ between two snapshots, and in which days."""

    kept: int
    removed: int
    added: int
    days: tuple[date, ...]


@dataclass(frozen=True)
class _Stage:
    """What the steps of the story share."""

    console: Console
    folder: Path
    lake: Lake
    pipeline: Pipeline


def run_demo(folder: Path, *, rows: int, console: Console) -> None:
    """Create the project, tell its story on real tables, and check every figure; DemoFailedError if one differs."""
    started = time.monotonic()
    # Compiling for speed costs the JVM more than it saves in a minute: a quarter of all processor time.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    console.print(f"[bold]A small retailer[/bold]: {len(DAYS)} days of orders, {rows:,} rows, in {escape(str(folder))}")
    artifacts = prepare(folder, rows=rows, console=console)
    with open_pipeline(artifacts) as pipeline:
        stage = _Stage(console, artifacts.root, Lake(artifacts), pipeline)
        with console.status("Starting Spark …"):
            stage.lake.spark  # noqa: B018 - so that the first asset's time excludes the start of Spark
        first = _backfill(stage)
        second = _correct_a_day(stage, first)
        _take_a_new_column(stage, second)
        _travel_in_time(stage, first, second)
        _stop_a_bad_delivery(stage, artifacts)
        changed = _change_logic_on_a_branch(stage, artifacts)
        _step(console, 7, "The check", "Every figure again from the raw orders, without Spark: PyIceberg and Arrow.")
        check_figures(stage.lake.tables, console, top=_TOP_AFTERWARDS if changed else TOP)
    _say_where(folder, console, time.monotonic() - started)


def prepare(folder: Path, *, rows: int, console: Console) -> CompiledArtifacts:
    """Create the project, or reuse that of an earlier demo, with an empty lake."""
    again = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if again:
        spec = folder / SPEC_FILE
        if not spec.is_file() or read_document(spec).data.get("name") != _NAME:
            raise ConfigurationError(f"{folder} is not empty and holds no earlier demo; choose another --dir")
    else:
        templates.copy_template("retail", folder, {})
    artifacts = compile_project(folder.resolve()).artifacts
    if artifacts.catalog != SqlCatalogConfig() or artifacts.storage != LocalStorageConfig():
        raise ConfigurationError(
            f"the demo fills an empty lake under .floe, but {folder / SPEC_FILE} names another catalog or storage; "
            f"run that project with floe run, or choose another --dir for the demo"
        )
    if again:
        _start_over(folder, console)
    settings = json.loads((_TEMPLATE / "source.json").read_text(encoding="utf-8"))
    _set_source(folder, {**settings, "rows": rows})
    artifacts.write()
    return artifacts


def _start_over(folder: Path, console: Console) -> None:
    if (folder / ".floe").exists():
        shutil.rmtree(folder / ".floe")
    console.print("It holds an earlier demo: its tables are removed, its code is kept.")
    gold = folder / _CHANGED
    if gold.is_file() and gold.read_text(encoding="utf-8") == _after_the_demo():
        shutil.copyfile(_TEMPLATE / _CHANGED, gold)
    shipped = [path.relative_to(_TEMPLATE) for path in (_TEMPLATE / SPEC_FILE, *_TEMPLATE.rglob("*.py"))]
    own = [str(path) for path in shipped if not _same(_TEMPLATE / path, folder / path)]
    if own:
        console.print(f"Not as Floe ships it: {', '.join(sorted(own))}", style="yellow", markup=False)


def _after_the_demo() -> str:
    """The code that a demo leaves in place of what Floe ships."""
    return (_TEMPLATE / _CHANGED).read_text(encoding="utf-8").replace(*_LOGIC)


def _same(shipped: Path, own: Path) -> bool:
    return own.is_file() and filecmp.cmp(shipped, own, shallow=False)


def _set_source(folder: Path, settings: dict[str, object]) -> None:
    (folder / "source.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _change_source(stage: _Stage, **changes: object) -> None:
    """Change the settings of the simulated source system."""
    settings = json.loads((stage.folder / "source.json").read_text(encoding="utf-8"))
    _set_source(stage.folder, {**settings, **changes})


def _step(console: Console, number: int, title: str, sentence: str) -> None:
    console.print(f"\n[bold]{number}. {title}[/bold]\n{sentence}")


def _table(*columns: str) -> Table:
    """A table whose first column is a name and whose others are numbers."""
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    return table


def _run(stage: _Stage, title: str, assets: Sequence[str], days: Sequence[date], *, keep: bool = True) -> RunReport:
    with progress(stage.console, title, keep=keep) as watch:
        pipeline, keys = stage.pipeline, [day.isoformat() for day in days]
        chosen = batches(pipeline.graph, pipeline.assets(assets), keys, pipeline.instance)
        return run_batches(stage.pipeline, chosen, watch)


def _backfill(stage: _Stage) -> RunReport:
    sentence = f"One Dagster run fills {len(DAYS)} days: raw orders (bronze), clean ones (silver), figures (gold)."
    _step(stage.console, 1, "Two weeks at once", sentence)
    report = _run(stage, "Filling the lake", (), DAYS, keep=False)
    stage.console.print(report_table(report, stage.console, elsewhere=""))
    names = [TableIdentifier.from_string(entry.table) for entry in report.materialized]
    several = [str(name) for name in names if len(stage.lake.tables.list_snapshots(name)) != 1]
    if several or len(report.run_ids) != 1:
        raise DemoFailedError(f"{len(report.run_ids)} runs; not exactly one snapshot in: {', '.join(several)}")
    stage.console.print(f"One run, {len(names)} tables, one snapshot in each.")
    return report


def _correct_a_day(stage: _Stage, before: RunReport) -> RunReport:
    sentence = f"The source corrects {_CORRECTED}: wrong quantities, and orders that come in late. Only that day runs."
    _step(stage.console, 2, "A late correction", sentence)
    _change_source(stage, corrected_days=[_CORRECTED.isoformat()])
    report = _run(stage, f"Materializing {_CORRECTED} again", _AFFECTED, [_CORRECTED])
    shown = _table("table", "files kept", "removed", "added", "days touched")
    for name in ("bronze.orders", "silver.orders"):
        change = file_change(stage.lake.tables, name, _snapshot(before, name), _snapshot(report, name))
        days = ", ".join(str(day) for day in change.days)
        shown.add_row(name, str(change.kept), str(change.removed), str(change.added), days)
        if change.days != (_CORRECTED,):
            raise DemoFailedError(f"writing {_CORRECTED} to {name} changed the files of these days: {days}")
    stage.console.print(shown)
    stage.console.print(f"The other {len(DAYS) - 1} days keep exactly the files they had.")
    return report


def file_change(tables: IcebergTableManager, name: str, before: int, after: int) -> FileChange:
    """Compare the data files of two snapshots of a table that is partitioned by day; metadata only."""
    table = tables.load_table(TableIdentifier.from_string(name))
    old, new = (
        # Iceberg's day transform counts days since 1970-01-01.
        {task.file.file_path: date(1970, 1, 1) + timedelta(task.file.partition[0]) for task in scan.plan_files()}
        for scan in (table.scan(snapshot_id=before), table.scan(snapshot_id=after))
    )
    removed, added = old.keys() - new.keys(), new.keys() - old.keys()
    days = {old[path] for path in removed} | {new[path] for path in added}
    return FileChange(len(old.keys() & new.keys()), len(removed), len(added), tuple(sorted(days)))


def _take_a_new_column(stage: _Stage, before: RunReport) -> None:
    sentence = f"From {_CHANNEL_SINCE} on, the source sends the channel of each order. No code changes."
    _step(stage.console, 3, "A new column", sentence)
    _change_source(stage, channel_since=_CHANNEL_SINCE.isoformat())
    report = _run(stage, f"Materializing {_CHANNEL_SINCE} again", _AFFECTED, [_CHANNEL_SINCE])
    shown = _table("table", "columns before", "columns after", "new")
    for name in ("bronze.orders", "silver.orders"):
        old, new = (_columns(stage.lake.tables, name, _snapshot(run, name)) for run in (before, report))
        added = ", ".join(f"{column} {kind}" for column, kind in new.items() if column not in old)
        shown.add_row(name, str(len(old)), str(len(new)), added)
    stage.console.print(shown)
    counts = stage.lake.read("silver.orders", columns=["channel"]).groupBy("channel").count().orderBy("channel")
    shown = _table("channel", "orders")
    for channel, count in counts.collect():
        shown.add_row(channel or "NULL (older days)", f"{count:,}")
    stage.console.print(shown)


def _travel_in_time(stage: _Stage, first: RunReport, second: RunReport) -> None:
    _step(stage.console, 4, "Before and after", "Nothing is lost: one query, asked of two snapshots of silver.orders.")
    start = datetime(_CORRECTED.year, _CORRECTED.month, _CORRECTED.day, tzinfo=timezone.utc)
    day = TableSlice.of_windows("ordered_at", [(start, start + timedelta(days=1))])
    snapshots = [_snapshot(run, "silver.orders") for run in (first, second)]
    before, after = (
        stage.lake.read("silver.orders", slice=day, snapshot_id=snapshot)
        .agg(F.count("*").alias("orders"), F.sum("quantity").alias("items"), F.sum("revenue").alias("revenue"))
        .collect()[0]
        .asDict()
        for snapshot in snapshots
    )
    query = f"""\
  SELECT count(*), sum(quantity), sum(revenue)
  FROM silver.orders VERSION AS OF …
  WHERE to_date(ordered_at) = '{_CORRECTED}'"""  # noqa: S608 - only shown
    stage.console.print(query, style="dim", markup=False)
    shown = _table(str(_CORRECTED), "before the correction", "after it", "difference")
    shown.add_row("snapshot", *map(str, snapshots), "")
    for name, value in before.items():
        shown.add_row(name, f"{value:,}", f"{after[name]:,}", f"{after[name] - value:+,}")
    stage.console.print(shown)


def _stop_a_bad_delivery(stage: _Stage, artifacts: CompiledArtifacts) -> None:
    sentence = f"The source spoils {_SPOILED}. The run is atomic: its tables are published together, or not at all."
    _step(stage.console, 5, "A bad delivery", sentence)
    before = _heads(stage)
    with open_pipeline(artifacts, publish="run") as pipeline:
        atomic = replace(stage, pipeline=pipeline)
        _change_source(stage, spoiled_days=[_SPOILED.isoformat()])
        try:
            _run(atomic, f"Materializing {_SPOILED} as it was sent", _DELIVERED, [_SPOILED])
        except RunFailedError as exc:
            stage.console.print(f"Stopped by a check: {exc.report.checks[0].description}.", markup=False)
        else:
            raise DemoFailedError("the check did not stop the bad delivery")
        _expect(stage, before, "No reader sees a row of it: the heads of the tables are where they were.")
        _change_source(stage, spoiled_days=[])
        report = _run(atomic, f"Materializing {_SPOILED} as it should be", _DELIVERED, [_SPOILED])
    stage.console.print(f"Published in one commit: {', '.join(entry.table for entry in report.materialized)}.")
    stage.lake.tables.undo(report.run_ids[-1])
    _expect(stage, before, f"And taken back in one commit, as floe undo {report.run_ids[-1][:8]} does.")


def _change_logic_on_a_branch(stage: _Stage, artifacts: CompiledArtifacts) -> bool:
    """Returns whether the logic was changed: the user may have changed it before."""
    sentence = f"The list of top products gets shorter: ten, not twenty. The change runs on the branch {_BRANCH!r}."
    _step(stage.console, 6, "A change of logic", sentence)
    gold = stage.folder / _CHANGED
    code = gold.read_text(encoding="utf-8")
    if code.count(_LOGIC[0]) != 1:
        stage.console.print(f"{_CHANGED} is not as Floe ships it: this chapter is left out.", markup=False)
        return False
    gold.write_text(code.replace(*_LOGIC), encoding="utf-8")
    for sign, style, line in zip("-+", ("red", "green"), _LOGIC, strict=True):
        stage.console.print(f"  {sign} {line}", style=style, markup=False)
    before = _heads(stage, (_TOP_PRODUCTS,))
    with open_pipeline(artifacts.on_branch(_BRANCH)) as pipeline:
        _run(replace(stage, pipeline=pipeline), "Materializing on the branch", (_TOP_PRODUCTS,), ())
    _expect(stage, before, "Main is unchanged, and the branch holds one table. Its difference, for review:")
    branches = ProjectBranches(stage.lake)
    keys = {_TOP_PRODUCTS.replace("/", "."): ["rank"]}
    print_differences(stage.console, list(branches.diff(_BRANCH, keys=keys, examples=2)))
    print_publication(stage.console, branches.publish(_BRANCH))
    return True


def _heads(stage: _Stage, assets: Sequence[str] = _DELIVERED) -> dict[str, int | None]:
    heads = stage.lake.at_once([name.replace("/", ".") for name in assets])
    return {str(name): head.snapshot_id for name, head in heads.items()}


def _expect(stage: _Stage, heads: dict[str, int | None], sentence: str) -> None:
    if _heads(stage, [name.replace(".", "/") for name in heads]) != heads:
        raise DemoFailedError("a table of main is not where it was before")
    stage.console.print(sentence)


def _snapshot(report: RunReport, table: str) -> int:
    return next(entry.snapshot_id for entry in report.materialized if entry.table == table)


def _columns(tables: IcebergTableManager, name: str, snapshot_id: int) -> dict[str, str]:
    table = tables.load_table(TableIdentifier.from_string(name))
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.schema_id is None:
        raise DemoFailedError(f"{name} has no snapshot {snapshot_id} with a schema")
    return {field.name: str(field.field_type) for field in table.schemas()[snapshot.schema_id].fields}


def check_figures(tables: IcebergTableManager, console: Console, *, top: int = TOP) -> None:
    """Compare the figures that the pipeline wrote with those recomputed from the raw orders, and so many products."""
    with console.status("Adding up …"):
        written, expected = recorded(tables, DAYS), recompute(tables, DAYS, top=top)
        differences = compare(written, expected)
    if differences:
        raise DemoFailedError(_listed(differences))
    shown = _table("day", "orders", "revenue by Spark", "revenue by Arrow")
    for day in DAYS:
        ours, theirs = written["gold.daily_revenue"][(day,)], expected["gold.daily_revenue"][(day,)]
        shown.add_row(str(day), f"{ours['orders']:,}", f"{ours['revenue']:,}", f"{theirs['revenue']:,}")
    console.print(shown)
    figures = sum(len(row) for rows in expected.values() for row in rows.values())
    console.print(f"{figures} figures in {len(expected)} tables, all the same to the cent.")


def _listed(differences: Sequence[Difference], at_most: int = 10) -> str:
    lines = [f"  {difference}" for difference in differences[:at_most]]
    if len(differences) > at_most:
        lines.append(f"  and {len(differences) - at_most} more")
    count = "1 figure is" if len(differences) == 1 else f"{len(differences)} figures are"
    return "\n".join([f"{count} not what the raw orders give:", *lines])


def _say_where(folder: Path, console: Console, seconds: float) -> None:
    warehouse = folder / ".floe" / "warehouse"
    size = human_bytes(sum(path.stat().st_size for path in warehouse.rglob("*") if path.is_file()))
    _step(console, 8, "Yours to try", f"Done in {seconds:.0f} s. What is where:")
    places = Table.grid(padding=(0, 2))
    places.add_row("", Text(str(folder / "retail")), "the pipeline")
    places.add_row("", Text(str(folder / "source.json")), "what the source sends: change it, run a day again")
    places.add_row("", Text(str(warehouse)), f"the tables, {size}")
    places.add_row("", Text(str(folder / ".floe" / "catalog.db")), "the catalog")
    console.print(places)
    steps = [f"  {command_name()} {step}" for step in _NEXT_STEPS]
    # A command that is broken over two lines cannot be copied.
    console.print("\n".join(["\nNext:", f"  cd {shlex.quote(str(folder))}", *steps]), markup=False, soft_wrap=True)
