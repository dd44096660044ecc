"""One SparkSession for a project: its catalog, UTC, a quiet log; a session with another catalog is refused."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from floe_core.config import CompiledArtifacts, SparkConfig, resolve_model
from floe_core.errors import ConfigurationError
from floe_core.java import java_problem
from floe_core.jvm import JAR_SHA256, iceberg_runtime, jar_name
from floe_core.observability import operation
from floe_core.plugins import CatalogPlugin, StoragePlugin
from floe_core.security import SPARK_REDACTION_REGEX, is_credential_key, redact
from floe_spark._pyspark import current_gateway, jvm_of, reset_catalogs
from floe_spark.jvm.connect import forget_sessions, is_remote
from floe_spark.jvm.jars import unfetched, with_verified_jars
from floe_spark.jvm.launch import handed_over, launch_settings
from floe_spark.jvm.logs import new_log
from floe_spark.jvm.process import log_of_jvm, remember_log, reset_dead_jvm
from floe_spark.names import quoted

__all__ = ["LOG_FILE", "catalog_conf", "is_running", "renew_catalog", "session_conf", "spark_session"]

LOG_FILE = Path(".floe/logs/spark.log")

_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_HTTP_LOGGERS = (
    "org.apache.iceberg.shaded.org.apache.hc",
    "org.apache.hc",
    "org.apache.http",
    "software.amazon.awssdk",
)
# Settings that hold several values: Floe's and the user's are joined.
_LISTS = ("spark.jars.packages", "spark.jars", "spark.sql.extensions")
_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")


def spark_session(artifacts: CompiledArtifacts, catalog: CatalogPlugin, storage: StoragePlugin) -> SparkSession:
    """Return the running Spark session of a project, or start it. A running session with another catalog is an error.

    Args:
        artifacts: The compiled project.
        catalog: The catalog of the session.
        storage: Where the files of the tables are.

    Example:
        >>> from floe_spark import spark_session
        >>> spark = spark_session(lake.artifacts, lake.tables.catalog_plugin, lake.tables.storage_plugin)
        >>> spark.catalog.currentCatalog() == lake.tables.catalog_name
        True
        >>> spark.range(3).count()
        3
    """
    settings = resolve_model(artifacts.spark, root=artifacts.root)
    catalog_settings = catalog_conf(catalog, storage)
    running = _running_session()
    if running is not None:
        _refuse_other_catalog(running, catalog_settings)
        if any(
            running.conf.get(key, None) != catalog_settings[key] for key in catalog_settings if is_credential_key(key)
        ):
            renew_catalog(running, catalog_settings)  # a secret was rotated
        return running
    conf = session_conf(settings, catalog_settings, root=artifacts.root)
    with operation("spark.start", master=settings.master, remote=settings.remote):
        if settings.remote:
            return _builder(artifacts.name, conf).remote(settings.remote).getOrCreate()
        problem = java_problem()
        if problem:
            raise ConfigurationError(problem)
        _choose_python(conf)
        jvm = _earlier_jvm()
        if jvm is not None:
            _prepare(jvm, conf)
            return _start(_builder(artifacts.name, conf), settings, log_of_jvm() or artifacts.root / LOG_FILE)
        log = new_log(artifacts.root / LOG_FILE)
        conf = with_verified_jars(conf, defaults=launch_settings(), log=log)
        # Spark adds resolved packages to the jars in the properties file, but not to the jars of the builder.
        in_file = {key: value for key, value in conf.items() if is_credential_key(key) or key == "spark.jars"}
        on_command_line = {key: value for key, value in conf.items() if key not in in_file}
        with _standard_error_in(log), handed_over(in_file, log.parent):
            spark = _start(_builder(artifacts.name, on_command_line), settings, log)
        remember_log(log)
        _limit_http_logging(spark)
        return spark


def _choose_python(conf: Mapping[str, str]) -> None:
    """Set the Python of the executors in the environment: PySpark does not read it from the settings."""
    if "spark.pyspark.python" in conf:
        os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    elif _local_cores(conf["spark.master"]) is not None:
        # Otherwise it would be the `python3` on the PATH, without this environment.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _earlier_jvm() -> Any:
    """The JVM of an earlier session that was stopped: PySpark keeps it, with the settings it was started with."""
    gateway = current_gateway()
    return None if gateway is None else gateway.jvm


def _prepare(jvm: Any, conf: Mapping[str, str]) -> None:
    """Clear the settings of another project's catalog, secrets included, before the next session starts."""
    system = jvm.java.lang.System
    for key in [str(key) for key in system.getProperties().stringPropertyNames()]:
        if key.startswith("spark.sql.catalog."):
            system.clearProperty(key)
    held = system.getProperty("spark.jars") or ""
    missing = [
        key
        for key in ("spark.jars.packages", *_OPTIONS)
        for value in re.split(r"[,\s]+", conf.get(key, ""))
        if value
        and value not in (system.getProperty(key) or "")
        and not (value in JAR_SHA256 and jar_name(value) in held)
    ]
    if missing:
        raise ConfigurationError(
            f"the JVM of this process was started for another project, without settings this one needs (different: "
            f"{', '.join(dict.fromkeys(missing))}); run this project in a process of its own"
        )


def _limit_http_logging(spark: SparkSession) -> None:
    """At level DEBUG, HTTP clients log every header and body, including tokens and keys."""
    log4j = jvm_of(spark).org.apache.logging.log4j
    for name in _HTTP_LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.INFO)


def _builder(name: str, conf: Mapping[str, str]) -> SparkSession.Builder:
    builder = SparkSession.builder.appName(f"floe-{name}")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder


def session_conf(settings: SparkConfig, catalog_settings: Mapping[str, str], *, root: Path) -> dict[str, str]:
    """Every Spark setting of a session: Floe's defaults, overridden by the user's, overridden by the catalog's."""
    if settings.remote:
        # The server has its jars and extensions already; a client cannot change the settings that it was started with.
        return {
            key: value
            for key, value in {**settings.conf, **catalog_settings}.items()
            if key not in (*_LISTS, *_OPTIONS)
        }
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
    conf = _joined(conf, settings.conf, catalog_settings)
    if settings.jars is not None:
        conf = _joined(conf, {"spark.jars": ",".join(_local_jars(root / settings.jars))})
        del conf["spark.jars.packages"]
        if "spark.jars.packages" in settings.conf:  # the user's packages stay, Floe's own come from the folder
            conf["spark.jars.packages"] = settings.conf["spark.jars.packages"]
    return conf


def catalog_conf(catalog: CatalogPlugin, storage: StoragePlugin) -> dict[str, str]:
    """The settings with which Spark uses the same catalog and storage as PyIceberg."""
    catalog.check_for_spark()
    name = catalog.catalog_name
    own = {
        # Spark caches table metadata: PyIceberg's commits would be invisible.
        f"spark.sql.catalog.{name}.cache-enabled": "false",
        "spark.sql.defaultCatalog": name,
        "spark.sql.session.timeZone": "UTC",
    }
    files = storage.get_spark_conf(name)
    return _joined(files, catalog.get_spark_conf(name, storage.get_warehouse_uri()), own)


def renew_catalog(spark: SparkSession, catalog_settings: Mapping[str, str]) -> None:
    """Reconnect a session to its catalog, with the current settings and tokens.

    Iceberg renews a token before it expires, but not one that was revoked, or that is issued outside of it.
    """
    if is_remote(spark):
        raise ConfigurationError(
            "a secret of the catalog was rotated, and a Spark Connect session cannot switch to the new one; "
            "stop the session with spark.stop(), and start a new one"
        )
    for key, value in catalog_settings.items():
        if key.startswith("spark.sql.catalog.") and spark.conf.get(key, None) != value:
            spark.conf.set(key, value)
    catalog, namespace = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    reset_catalogs(spark)
    if (catalog, namespace) != (
        catalog_settings["spark.sql.defaultCatalog"],
        "",
    ):  # back to the namespace that was in use
        spark.sql(f"USE {'.'.join(quoted(level) for level in (catalog, *namespace.split('.')) if level)}")
    forget_sessions(spark)


def is_running(catalog: CatalogPlugin, storage: StoragePlugin) -> bool:
    """Whether a session with this catalog is running."""
    running = _running_session()
    if running is None:
        return False
    try:
        _refuse_other_catalog(running, catalog_conf(catalog, storage))
    except ConfigurationError:
        return False
    return True


def _running_session() -> SparkSession | None:
    reset_dead_jvm()
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _refuse_other_catalog(running: SparkSession, catalog_settings: Mapping[str, str]) -> None:
    """getOrCreate() would report the new settings and keep using the old catalog."""
    at_start = (*_LISTS, *_OPTIONS)
    differing = [
        key
        for key, value in catalog_settings.items()
        if key not in at_start and not _alike(key, running.conf.get(key, None), value)
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
    """Whether it is the same setting: a rotated secret is, if its owner is the same."""
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
    """The number of cores that `local[…]` uses, or None for a cluster."""
    match = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master)
    if match is None:
        return None
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1] or 1)


def _local_jars(path: Path) -> list[str]:
    jars = sorted(path.glob("*.jar")) if path.is_dir() else [path] if path.is_file() else []
    if not jars:
        raise ConfigurationError(f"spark.jars: there is no jar at {path}; put the jars there, or remove the key")
    return [str(jar) for jar in jars]


def _start(builder: SparkSession.Builder, settings: SparkConfig, log: Path) -> SparkSession:
    try:
        return builder.getOrCreate()
    except Exception as exc:
        text = redact(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else ""
        reason = unfetched(text)
        if reason is None:
            causes = re.findall(
                r"^(?:Caused by: |Exception in thread \S+ )?([\w.$]+(?:Exception|Error): .+)$", text, re.M
            )
            reason = causes[-1] if causes else redact(f"{type(exc).__name__}: {exc}").splitlines()[0]
        raise ConfigurationError(
            f"Spark did not start on {settings.master or 'local[*]'}: {reason}; its log is {log}"
        ) from exc


@contextmanager
def _standard_error_in(log: Path) -> Iterator[None]:
    """A JVM started inside writes its standard error to this file until it ends, not to the user's terminal."""
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
