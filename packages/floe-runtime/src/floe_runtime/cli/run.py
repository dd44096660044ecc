"""floe run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    RefusedError,
    compile_here,
    console,
    environment_option,
    json_option,
    observe,
    only_json,
    plain_warnings,
    print_error,
    print_json,
    print_warning,
    project_option,
    tells_errors,
)

if TYPE_CHECKING:
    from dagster import AssetKey, PartitionsDefinition

    from floe_dagster.differences import Difference
    from floe_runtime.runs.pipeline import Pipeline
    from floe_runtime.runs.planning import Batch
    from floe_runtime.runs.runner import RunReport

__all__ = ["run"]


@click.command()
@project_option
@environment_option
@click.option("--select", metavar="A,B", help="Only these assets.")
@click.option("--partition", metavar="KEY", multiple=True, help="Only this partition; may be repeated.")
@click.option("--partition-range", metavar="START...END", help="These partitions, both ends included.")
@click.option(
    "--missing",
    is_flag=True,
    help="Whatever was never materialized or is no longer in its table, and what depends on it.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also print what assets log with context.log, at any level.")
@json_option
@tells_errors
def run(
    project: Path | None,
    environment: str | None,
    select: str | None,
    partition: tuple[str, ...],
    partition_range: str | None,
    missing: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Materialize the assets of the project.

    Without options: every asset; assets partitioned by time for the latest complete partition, other partitioned
    assets for every partition.

    Dagster's history is compared with the tables: materializations that a table no longer holds are reported,
    and --missing recomputes them.

    Spark starts if the project imports PySpark, or when an asset asks for it; other projects run without Java.

    If an asset fails, the assets that depend on it are skipped, and the log of the run with the traceback is written
    to .floe/logs.
    """
    if sum(map(bool, (partition, partition_range, missing))) > 1:
        raise click.UsageError("--partition, --partition-range and --missing are mutually exclusive.")
    from floe_core.java import java_problem
    from floe_iceberg import Lake
    from floe_runtime.console import check_lines, log_printer, progress, report_table
    from floe_runtime.runs.pipeline import open_pipeline
    from floe_runtime.runs.runner import RunFailedError, RunReport, run_batches

    out = console(quiet=as_json)
    artifacts = compile_here(project, environment)
    observe(artifacts)
    failure: str | None = None
    report = RunReport()
    with only_json(as_json), plain_warnings(artifacts.root), open_pipeline(artifacts) as pipeline:
        assets = pipeline.assets([name.strip() for name in (select or "").split(",") if name.strip()])
        differences = _differences(pipeline, assets) if missing else []
        chosen = _batches(pipeline, assets, partition, partition_range, differences if missing else None)
        for difference in differences:
            print_warning(f"{difference.message}; {_action(difference)}")
        if chosen:
            if pipeline.imports_pyspark and (artifacts.spark.remote or java_problem() is None):
                with out.status("starting Spark (the first start on a machine fetches its jars)"):
                    _ = Lake(artifacts).spark
            with progress(out, _title(artifacts.name, chosen), keep=False) as watch:
                try:
                    report = run_batches(pipeline, chosen, watch, listen=log_printer(out, verbose=verbose))
                except RunFailedError as exc:
                    failure, report = str(exc), exc.report
        if not missing and failure is None:
            differences = _remaining(pipeline, assets)
    if as_json:
        compared = {"differences": [dataclasses.asdict(difference) for difference in differences]}
        print_json({"ok": failure is None, "error": failure, **dataclasses.asdict(report), **compared})
        raise click.exceptions.Exit(0 if failure is None else 1)
    if not chosen:
        complete = "nothing is missing: everything was materialized before"
        out.print("nothing is recomputed; see the warnings" if differences else complete)
    if report.materialized:
        out.print(report_table(report, out))
    for line in check_lines(report):
        out.print(line)
    if failure is not None:
        _print_failure(failure, report)
        raise click.exceptions.Exit(1)


def _print_failure(message: str, report: RunReport) -> None:
    """Print each error with the line of the user's code, then the skipped assets and the path of the log."""
    from floe_runtime.console import failure_lines

    if not report.failed:
        print_error(message)
    for failure in report.failed:
        print_error(str(failure))
        for line in failure_lines(failure):
            click.echo(f"  {line}", err=True)
    if report.skipped:
        by_partitions: dict[str, list[str]] = {}
        for skipped in report.skipped:
            by_partitions.setdefault(skipped.partitions, []).append(skipped.asset)
        groups = [f"{', '.join(names)}{f' ({keys})' if keys else ''}" for keys, names in by_partitions.items()]
        click.echo(f"skipped because of it: {'; '.join(groups)}", err=True)
    log = f"; log with the traceback: {report.log}" if report.log else ""
    click.echo(f"run {report.run_ids[-1]}{log}", err=True)


def _differences(pipeline: Pipeline, assets: Sequence[AssetKey], *, quick: bool = False) -> list[Difference]:
    """Materializations that Dagster recorded and the tables do not hold."""
    from floe_dagster.differences import find_differences

    return find_differences(pipeline.definitions, assets, pipeline.instance, quick=quick)


def _remaining(pipeline: Pipeline, assets: Sequence[AssetKey]) -> list[Difference]:
    """The differences after a run, with a warning each; the run succeeded, so nothing here may fail it."""
    try:
        differences = _differences(pipeline, assets, quick=True)
    except Exception as exc:  # noqa: BLE001 - the run succeeded, whatever fails here
        print_warning(f"the tables could not be compared with Dagster's history: {type(exc).__name__}: {exc}")
        return []
    for difference in differences:
        hint = "; recompute it with: floe run --missing" if difference.recompute else ""
        print_warning(f"{difference.message}{hint}")
    return differences


def _action(difference: Difference) -> str:
    if not difference.recompute:
        return "it is not recomputed"
    return "only its latest materialization is computed again" if difference.appends else "it is recomputed"


def _title(name: str, chosen: Sequence[Batch]) -> str:
    keys = [key for batch in chosen for key in batch.keys]
    if not keys:
        return name
    return (
        f"{name}, partition {keys[0]}" if len(keys) == 1 else f"{name}, {len(keys)} partitions {keys[0]} … {keys[-1]}"
    )


def _batches(
    pipeline: Pipeline,
    assets: Sequence[AssetKey],
    partition: Sequence[str],
    partition_range: str | None,
    lost: Sequence[Difference] | None,
) -> list[Batch]:
    """The runs that the options select; with `lost` given, those of missing and lost partitions."""
    from floe_core.errors import ConfigurationError
    from floe_runtime.runs import planning

    if lost is not None:
        try:
            return planning.missing_and_lost(pipeline, assets, lost)
        except planning.AppendAgainError as exc:
            raise RefusedError(str(exc)) from exc
    partitions = planning.shared_partitions(pipeline.graph, assets)
    if partitions is None:
        if partition or partition_range:
            raise ConfigurationError("no selected asset is partitioned; leave the partition options out")
        return planning.batches(pipeline.graph, assets, [], pipeline.instance)
    keys = _keys(partitions, pipeline, partition, partition_range)
    return planning.batches(pipeline.graph, assets, keys, pipeline.instance)


def _keys(
    partitions: PartitionsDefinition[str], pipeline: Pipeline, partition: Sequence[str], partition_range: str | None
) -> list[str]:
    """The partitions that the options select: by default the latest complete time window, or all that have no time."""
    from floe_core.errors import ConfigurationError
    from floe_runtime.runs.partition_keys import is_dynamic, keys_between, known_keys, latest_keys

    known = known_keys(partitions, pipeline.instance)
    add = "add keys in the web UI (floe dev), or with instance.add_dynamic_partitions"
    if not known:
        raise ConfigurationError(
            f"these assets have no partition yet; {add if is_dynamic(partitions) else 'wait for the first one'}"
        )
    if not partition and partition_range is None:
        latest = latest_keys(partitions, pipeline.instance)
        if not latest:
            raise ConfigurationError("the first window of these assets is not over yet; name it with --partition")
        return latest
    first, separator, last = (partition_range or "").partition("...")
    if partition_range and not (first and separator and last):
        raise ConfigurationError(f"--partition-range {partition_range!r}: write it as START...END")
    for key in partition or (first, last):
        if key not in known:
            hint = f"; {add}" if is_dynamic(partitions) else ""
            raise ConfigurationError(f"there is no partition {key!r}; they go from {known[0]} to {known[-1]}{hint}")
    if partition:
        return [key for key in known if key in partition]
    if known.index(first) > known.index(last):
        raise ConfigurationError(f"--partition-range: {first} comes after {last}; swap them")
    return keys_between(partitions, pipeline.instance, first, last)
