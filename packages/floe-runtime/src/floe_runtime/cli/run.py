"""floe run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floe_runtime.cli.common import (
    compile_here,
    console,
    environment_option,
    fail,
    json_option,
    observe,
    print_json,
    project_option,
    tells_errors,
)

if TYPE_CHECKING:
    from dagster import AssetKey

    from floe_runtime.runner import Pipeline

__all__ = ["run"]


@click.command()
@project_option
@environment_option
@click.option("--select", metavar="A,B", help="Only these assets.")
@click.option("--partition", metavar="KEY", help="Only this partition.")
@click.option("--partition-range", metavar="START...END", help="These partitions, both ends included.")
@click.option("--missing", is_flag=True, help="Every partition that was never materialized.")
@json_option
@tells_errors
def run(
    project: Path | None,
    environment: str | None,
    select: str | None,
    partition: str | None,
    partition_range: str | None,
    missing: bool,
    as_json: bool,
) -> None:
    """Materialize the assets of the project.

    Without options: every asset, and of the partitioned ones the latest complete partition.
    """
    if sum(map(bool, (partition, partition_range, missing))) > 1:
        raise click.UsageError("--partition, --partition-range and --missing exclude each other.")
    from floe_core.java import java_problem
    from floe_runtime.console import progress, report_table
    from floe_runtime.runner import RunFailedError, open_pipeline
    from floe_spark import Lake

    out = console(quiet=as_json)
    artifacts = compile_here(project, environment)
    observe(artifacts)
    problem = None if artifacts.spark.remote else java_problem()
    if problem:
        fail(problem, as_json=as_json)
    with open_pipeline(artifacts) as pipeline:
        assets = pipeline.assets([name.strip() for name in select.split(",")] if select else ())
        keys = _keys(pipeline, assets, partition, partition_range, missing)
        if keys is not None and not keys:
            _nothing_to_do(as_json)
            return
        with out.status("starting Spark (the first start on a machine fetches its jars)"):
            _ = Lake(artifacts).spark
        failure: str | None = None
        with progress(out, _title(artifacts.name, keys), keep=False) as watch:
            try:
                report = pipeline.run(assets, keys, watch)
            except RunFailedError as exc:
                failure, report = str(exc), exc.report
    if as_json:
        materialized = [dataclasses.asdict(one) for one in report.materialized]
        print_json({"ok": failure is None, "error": failure, "runs": report.run_ids, "materialized": materialized})
        raise click.exceptions.Exit(0 if failure is None else 1)
    if report.materialized:
        out.print(report_table(report, out))
    if failure is not None:
        fail(failure, as_json=False)


def _nothing_to_do(as_json: bool) -> None:
    if as_json:
        print_json({"ok": True, "error": None, "runs": [], "materialized": []})
    else:
        click.echo("nothing is missing: every partition was materialized before")


def _title(name: str, keys: Sequence[str] | None) -> str:
    if keys is None:
        return name
    return (
        f"{name}, partition {keys[0]}" if len(keys) == 1 else f"{name}, {len(keys)} partitions {keys[0]} … {keys[-1]}"
    )


def _keys(
    pipeline: Pipeline,
    assets: Sequence[AssetKey],
    partition: str | None,
    partition_range: str | None,
    missing: bool,
) -> list[str] | None:
    """The partitions that the options ask for; None if no asset is partitioned."""
    from floe_core.errors import ConfigurationError

    partitions = pipeline.partitions(assets)
    if partitions is None:
        if partition or partition_range or missing:
            raise ConfigurationError("no selected asset is partitioned; leave the partition options out")
        return None
    if missing:
        return pipeline.keys_missing(assets, partitions)
    known = list(partitions.get_partition_keys())
    if not known:
        raise ConfigurationError(
            "the partitions of these assets have no complete partition yet; wait for the first one"
        )
    if partition is None and partition_range is None:
        return [known[-1]]
    first, separator, last = (partition_range or "").partition("...")
    ends = [partition] if partition else [first, last]
    if partition_range and not (first and separator and last):
        raise ConfigurationError(f"--partition-range {partition_range!r}: write it as START...END")
    for end in ends:
        if end not in known:
            raise ConfigurationError(f"there is no partition {end!r}; they go from {known[0]} to {known[-1]}")
    start, stop = known.index(str(ends[0])), known.index(str(ends[-1]))
    if start > stop:
        raise ConfigurationError(f"--partition-range: {ends[0]} comes after {ends[-1]}; swap them")
    return known[start : stop + 1]
