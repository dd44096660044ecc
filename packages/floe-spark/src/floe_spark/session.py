"""One SparkSession for a project: its catalog, UTC, quiet, and never the wrong catalog by accident."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from floe_core.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError
from floe_core.java import java_problem
from floe_core.jvm import JAR_SHA256, iceberg_runtime, jar_name
from floe_core.ports import CatalogPlugin, StoragePlugin
from floe_core.redaction import SPARK_REDACTION_REGEX, is_credential_key, redact
from floe_core.references import resolve_model
from floe_core.spec import SparkConfig
from floe_core.telemetry import operation
from floe_spark.connect import forget_sessions, is_remote
from floe_spark.jars import unfetched, with_verified_jars
from floe_spark.launch import handed_over, launch_settings
from floe_spark.life import forget_the_dead, log_of_jvm, remember_log
from floe_spark.logs import new_log
from floe_spark.names import quoted

__all__ = ["LOG_FILE", "catalog_conf", "renew_catalog", "session_conf", "spark_session"]

LOG_FILE = Path(".floe/logs/spark.log")

_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_WIRE = ("org.apache.iceberg.shaded.org.apache.hc", "org.apache.hc", "org.apache.http", "software.amazon.awssdk")
# Settings that hold several values: Floe's and the user's are joined.
_LISTS = ("spark.jars.packages", "spark.jars", "spark.sql.extensions")
_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")


def spark_session(artifacts: CompiledArtifacts, catalog: CatalogPlugin, storage: StoragePlugin) -> SparkSession:
    """The running session of this project, or a new one. A session with another catalog is an error."""
    settings = resolve_model(artifacts.spark, root=artifacts.root)
    world = catalog_conf(catalog, storage)
    running = _running_session()
    if running is not None:
        _refuse_another_world(running, world)
        if any(running.conf.get(key, None) != world[key] for key in world if is_credential_key(key)):
            renew_catalog(running, world)  # a secret was rotated
        return running
    conf = session_conf(settings, world, root=artifacts.root)
    with operation("spark.start", master=settings.master, remote=settings.remote):
        if settings.remote:
            return _builder(artifacts.name, conf).remote(settings.remote).getOrCreate()
        problem = java_problem()
        if problem:
            raise ConfigurationError(problem)
        _choose_python(conf)
        jvm = _jvm_of_before()
        if jvm is not None:
            _make_ready(jvm, conf)
            return _start(_builder(artifacts.name, conf), settings, log_of_jvm() or artifacts.root / LOG_FILE)
        log = new_log(artifacts.root / LOG_FILE)
        conf = with_verified_jars(conf, defaults=launch_settings(), log=log)
        # Spark adds what it resolves to the jars of the file; to those of the builder it would not.
        apart = {key: value for key, value in conf.items() if is_credential_key(key) or key == "spark.jars"}
        shown = {key: value for key, value in conf.items() if key not in apart}
        with _standard_error_in(log), handed_over(apart, log.parent):
            spark = _start(_builder(artifacts.name, shown), settings, log)
        remember_log(log)
        _keep_the_wire_quiet(spark)
        return spark


def _choose_python(conf: Mapping[str, str]) -> None:
    """Say on which Python the executors run Python functions: PySpark asks the environment, never the settings."""
    if "spark.pyspark.python" in conf:
        os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    elif _local_cores(conf["spark.master"]) is not None:
        # Otherwise it would be whatever `python3` is on the PATH, without this environment.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _jvm_of_before() -> Any:
    """The JVM of an earlier session that was stopped: PySpark keeps it, with the settings it was started with."""
    gateway = SparkContext._gateway
    return None if gateway is None else gateway.jvm


def _make_ready(jvm: Any, conf: Mapping[str, str]) -> None:
    """Let nothing of another project's catalog, its secret least of all, be in the session that starts next."""
    system = jvm.java.lang.System
    for key in [str(key) for key in system.getProperties().stringPropertyNames()]:
        if key.startswith("spark.sql.catalog."):
            system.clearProperty(key)
    held = system.getProperty("spark.jars") or ""
    missing = [
        key
        for key in ("spark.jars.packages", *_OPTIONS)
        for one in re.split(r"[,\s]+", conf.get(key, ""))
        if one and one not in (system.getProperty(key) or "") and not (one in JAR_SHA256 and jar_name(one) in held)
    ]
    if missing:
        raise ConfigurationError(
            f"the JVM of this process was started for another project, without what this one needs (different: "
            f"{', '.join(dict.fromkeys(missing))}); run this project in a process of its own"
        )


def _keep_the_wire_quiet(spark: SparkSession) -> None:
    """At level DEBUG, HTTP clients log every header and body, tokens and keys among them."""
    jvm: Any = spark._jvm
    log4j = jvm.org.apache.logging.log4j
    for name in _WIRE:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.INFO)


def _builder(name: str, conf: Mapping[str, str]) -> SparkSession.Builder:
    builder = SparkSession.builder.appName(f"floe-{name}")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder


def session_conf(settings: SparkConfig, world: Mapping[str, str], *, root: Path) -> dict[str, str]:
    """Every Spark setting of a session: Floe's defaults, the user's over them, the catalog over all."""
    if settings.remote:
        # The server has its jars and extensions already; what belongs to its start cannot be set from here.
        return {key: value for key, value in {**settings.conf, **world}.items() if key not in (*_LISTS, *_OPTIONS)}
    master = settings.master or "local[*]"
    conf = {
        "spark.master": master,
        "spark.log.level": "WARN",
        "spark.redaction.regex": SPARK_REDACTION_REGEX,
        "spark.sql.extensions": _EXTENSIONS,
        "spark.ui.showConsoleProgress": "false",
        "spark.jars.packages": iceberg_runtime(pyspark.__version__),
    }
    cores = _local_cores(master)
    if cores is not None:
        conf |= {
            # Twice the cores: small enough for quick tasks, large enough to spill little. 200 is for clusters.
            "spark.sql.shuffle.partitions": str(max(4, 2 * cores)),
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
        }
    conf = _joined(conf, settings.conf, world)
    if settings.jars is not None:
        conf = _joined(conf, {"spark.jars": ",".join(_local_jars(root / settings.jars))})
        del conf["spark.jars.packages"]
        if "spark.jars.packages" in settings.conf:  # what the user asked for stays, Floe's own come from the folder
            conf["spark.jars.packages"] = settings.conf["spark.jars.packages"]
    return conf


def catalog_conf(catalog: CatalogPlugin, storage: StoragePlugin) -> dict[str, str]:
    """The settings that make Spark see the lake that PyIceberg sees."""
    catalog.check_for_spark()
    name = catalog.catalog_name
    own = {
        # Spark would go on showing a table as it was before PyIceberg's last commit.
        f"spark.sql.catalog.{name}.cache-enabled": "false",
        "spark.sql.defaultCatalog": name,
        "spark.sql.session.timeZone": "UTC",
    }
    files = storage.get_spark_conf(name)
    return _joined(files, catalog.get_spark_conf(name, storage.get_warehouse_uri()), own)


def renew_catalog(spark: SparkSession, world: Mapping[str, str]) -> None:
    """Let a session connect to its catalog anew, with the settings and the tokens of now.

    Iceberg renews a token before it ends, but knows nothing of one that was revoked, or that others fetch for it.
    """
    if is_remote(spark):
        raise ConfigurationError(
            "a secret of the catalog was rotated, and a session on a Spark Connect server cannot take a new one; stop "
            "it with spark.stop(), and go on with a new one"
        )
    for key, value in world.items():
        if key.startswith("spark.sql.catalog.") and spark.conf.get(key, None) != value:
            spark.conf.set(key, value)
    catalog, namespace = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    spark._jsparkSession.sessionState().catalogManager().reset()
    if (catalog, namespace) != (world["spark.sql.defaultCatalog"], ""):  # whoever was elsewhere goes back there
        spark.sql(f"USE {'.'.join(quoted(level) for level in (catalog, *namespace.split('.')) if level)}")
    forget_sessions(spark)


def _running_session() -> SparkSession | None:
    forget_the_dead()
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _refuse_another_world(running: SparkSession, world: Mapping[str, str]) -> None:
    """getOrCreate() would report the new settings and go on using the old catalog."""
    apart = (*_LISTS, *_OPTIONS)
    differing = [
        key for key, value in world.items() if key not in apart and not _alike(key, running.conf.get(key, None), value)
    ]
    if differing == ["spark.sql.session.timeZone"]:
        raise ConfigurationError(
            "the time zone of the Spark session was changed, and timestamps would shift; set it back with "
            'spark.conf.set("spark.sql.session.timeZone", "UTC")'
        )
    if differing:
        raise ConfigurationError(
            f"a Spark session with another catalog configuration is already running (different: "
            f"{', '.join(sorted(differing))}); stop it first with spark.stop(), or run this project in its own process"
        )


def _alike(key: str, running: str | None, wanted: str) -> bool:
    """Is it the same setting? A secret may be rotated; whose it is may not change."""
    if running is None or not is_credential_key(key):
        return running == wanted
    return not key.endswith(".credential") or running.partition(":")[0] == wanted.partition(":")[0]


def _joined(*parts: Mapping[str, str]) -> dict[str, str]:
    conf: dict[str, str] = {}
    for part in parts:
        for key, value in part.items():
            joint = "," if key in _LISTS else " "
            conf[key] = f"{conf[key]}{joint}{value}" if key in (*_LISTS, *_OPTIONS) and conf.get(key) else value
    return conf


def _local_cores(master: str) -> int | None:
    """How many cores `local[…]` uses, or None for a cluster."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def _local_jars(path: Path) -> list[str]:
    jars = sorted(path.glob("*.jar")) if path.is_dir() else [path] if path.is_file() else []
    if not jars:
        raise ConfigurationError(f"spark.jars: there is no jar at {path}; put the jars there, or remove the key")
    return [str(jar) for jar in jars]


def _start(builder: SparkSession.Builder, settings: SparkConfig, log: Path) -> SparkSession:
    try:
        return builder.getOrCreate()
    except Exception as exc:
        words = redact(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else ""
        reason = unfetched(words)
        if reason is None:
            told = re.findall(
                r"^(?:Caused by: |Exception in thread \S+ )?([\w.$]+(?:Exception|Error): .+)$", words, re.M
            )
            reason = told[-1] if told else redact(f"{type(exc).__name__}: {exc}").splitlines()[0]
        raise ConfigurationError(
            f"Spark did not start on {settings.master or 'local[*]'}: {reason}; its own words are in {log}"
        ) from exc


@contextmanager
def _standard_error_in(log: Path) -> Iterator[None]:
    """A JVM started inside writes its log to this file for as long as it lives, not between the user's lines."""
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_APPEND)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)
