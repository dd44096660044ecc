"""Checks of everything that Floe depends on, in order, on the real engines and services."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from floe_core.config import CompiledArtifacts
from floe_core.errors import FloeError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.java import java_executable, java_problem, java_version
from floe_core.models import WriteMode
from floe_core.plugins import check_health
from floe_core.security import redact

if TYPE_CHECKING:
    from floe_iceberg import Lake
    from floe_runtime.probe import Probe

__all__ = ["Finding", "examine"]

Step = tuple[str, Callable[[], str]]


@dataclass(frozen=True)
class Finding:
    """The result of one check; a failed one says what to do."""

    name: str
    ok: bool
    message: str


def examine(artifacts: CompiledArtifacts) -> Iterator[Finding]:
    """Yields each check as it ends; checks that a failure makes impossible are left out."""
    java = java_problem()
    yield Finding("java", java is None, java or f"Java {java_version(java_executable() or '')} at {java_executable()}")
    if java is not None and artifacts.spark.remote is None:
        return
    from floe_iceberg import Lake

    lake = Lake(artifacts)
    steps = _steps_to_catalog(lake)
    if steps:
        from floe_runtime.probe import Probe

        yield from _examine_server(Probe(lake), steps)
        return
    for name, check in (
        ("catalog", _catalog),
        ("storage", _storage),
        ("place", _place),
        ("timestamps", _timestamps),
        ("spark", _spark),
        ("tables", _probe),
    ):
        finding = _try(name, partial(check, lake))
        yield finding
        if not finding.ok and name not in ("place", "timestamps"):
            return


def _steps_to_catalog(lake: Lake) -> list[Step]:
    try:
        return list(lake.tables.catalog_plugin.diagnose())
    except FloeError as exc:
        return [("config", partial(_raise, exc))]


def _raise(exc: FloeError) -> str:
    raise exc


def _examine_server(probe: Probe, steps: list[Step]) -> Iterator[Finding]:
    """The connection to the catalog, then the privileges there, with a probe table that is always removed."""
    for name, check in steps:
        finding = _try(name, check)
        yield finding
        if not finding.ok and name != "clock":  # a wrong clock breaks only some later checks
            return
    try:
        for name, check in (
            ("privileges", probe.create),
            ("storage", probe.write),
            ("spark", partial(_spark, probe.lake)),
            ("tables", probe.exchange),
        ):
            finding = _try(name, check)
            yield finding
            if not finding.ok:
                break
    finally:
        removal = _try("removal", probe.remove)
    if probe.was_there or not removal.ok:
        yield removal


def _try(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, redact(check()))
    except FloeError as exc:
        return Finding(name, False, redact(str(exc)))
    except Exception as exc:  # noqa: BLE001 - any failure is a finding, not a crash
        return Finding(name, False, redact(f"{type(exc).__name__}: {exc}".splitlines()[0]))


def _catalog(lake: Lake) -> str:
    status = check_health(lake.tables.catalog_plugin)
    if not status.healthy:
        raise FloeError(f"the {lake.artifacts.catalog.type} catalog does not answer: {status.message}")
    return f"{lake.artifacts.catalog.type}: {status.message}"


def _storage(lake: Lake) -> str:
    status = check_health(lake.tables.storage_plugin)
    if not status.healthy:
        raise FloeError(f"the {lake.artifacts.storage.type} storage does not answer: {status.message}")
    return f"{lake.artifacts.storage.type}: {status.message}"


def _place(lake: Lake) -> str:
    """Iceberg records absolute paths: a local lake that was moved or copied needs new ones, from `floe move`."""
    count = 0
    for identifier in _all_tables(lake):
        count += 1
        lake.tables.refuse_moved(lake.tables.load_table(identifier), identifier)
    return f"{count} tables are where the catalog says" if count else "no tables yet"


def _timestamps(lake: Lake) -> str:
    """Find tables that a wrong clock left in a state that Spark cannot load, or cannot write to."""
    from floe_iceberg.snapshots import GRACE_MS, disorder, latest_ms, now_ms

    unsorted: list[str] = []
    ahead: list[str] = []
    for identifier in _all_tables(lake):
        metadata = lake.tables.load_table(identifier).metadata
        if disorder(metadata) is not None:
            unsorted.append(str(identifier))
        elif latest_ms(metadata) - now_ms() > GRACE_MS:
            ahead.append(str(identifier))
    problems = []
    if unsorted:
        named = "".join(f" --table {table}" for table in unsorted)
        problems.append(
            f"Spark cannot load {', '.join(unsorted)}: the clock of a writer went back. The next commit through Floe "
            f"repairs a table, such as: floe maintain run{named}"
        )
    if ahead:
        problems.append(
            f"Spark cannot write to {', '.join(ahead)}: stamped in the future of this clock. Set the clocks (NTP), and "
            f"see: floe tables health"
        )
    if problems:
        raise FloeError(". ".join(problems))
    return "the timestamps of all tables are in order"


def _all_tables(lake: Lake) -> Iterator[TableIdentifier]:
    """All tables whose names Floe supports; other tools may have created others."""
    for namespace in lake.tables.list_namespaces(recursive=True):
        yield from lake.tables.list_tables(namespace)


def _spark(lake: Lake) -> str:
    """Start Spark, with its jars and the catalog."""
    spark = lake.spark
    spark.sql("SELECT 1").collect()
    where = lake.artifacts.spark.remote or lake.artifacts.spark.master or "local[*]"
    return f"Spark {spark.version} on {where}, Iceberg {_iceberg_version(lake)}"


def _iceberg_version(lake: Lake) -> str:
    from floe_spark.names import quoted

    function = f"{quoted(lake.tables.catalog_name)}.system.iceberg_version()"
    return str(lake.spark.sql(f"SELECT {function}").collect()[0][0])


def _probe(lake: Lake) -> str:
    """Write a table with Spark, read it with PyIceberg, and remove it with its namespace and files."""
    namespace = Namespace(levels=(f"floe_doctor_{uuid.uuid4().hex[:8]}",))
    identifier = TableIdentifier(namespace=namespace.levels, name="probe")
    try:
        lake.write(lake.spark.range(3), identifier, mode=WriteMode.APPEND)
        seen = lake.tables.load_table(identifier).scan().to_arrow().num_rows
        if seen != 3:
            raise FloeError(f"Spark wrote 3 rows and PyIceberg read {seen}; the engines do not see the same table")
    finally:
        _remove(lake, namespace, identifier)
    return "a probe table written by Spark was read by PyIceberg, and removed"


def _remove(lake: Lake, namespace: Namespace, identifier: TableIdentifier) -> None:
    from floe_spark.names import table_name

    if lake.tables.table_exists(identifier):
        lake.spark.sql(f"DROP TABLE {table_name(lake.tables.catalog_name, identifier)} PURGE")
    if str(namespace) in lake.tables.catalog_plugin.list_namespaces():
        lake.tables.catalog_plugin.delete_namespace(str(namespace))
    folder = lake.tables.storage_plugin.get_warehouse_uri(str(namespace))
    if folder.startswith("file://"):  # a purge leaves empty folders; this one belongs to the probe
        shutil.rmtree(folder.removeprefix("file://"), ignore_errors=True)
