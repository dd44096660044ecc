"""Plugins: discovery by entry point, checks before use, startup, health checks and shutdown."""

from __future__ import annotations

import atexit
import difflib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic import BaseModel, ValidationError

from floe_core.errors import ConfigurationError, IncompatibleLibraryError, PluginError
from floe_core.plugins.ports import (
    CatalogPlugin,
    ComputePlugin,
    HealthStatus,
    OrchestratorPlugin,
    Plugin,
    PluginMetadata,
    StoragePlugin,
)
from floe_core.security.redaction import redact
from floe_core.wording import value_problem

if TYPE_CHECKING:
    from floe_core.config.artifacts import CompiledArtifacts

__all__ = [
    "FLOE_API_VERSION",
    "PluginRegistry",
    "PluginType",
    "check_health",
    "create_catalog_plugin",
    "create_compute_plugin",
    "create_orchestrator_plugin",
    "create_storage_plugin",
    "registry",
    "start",
    "stop",
]

FLOE_API_VERSION: Final = "1.0"
STARTUP_SECONDS: Final = 30.0
HEALTH_SECONDS: Final = 5.0
# How long an exiting process waits for all plugins to shut down.
EXIT_SECONDS: Final = 10.0

_PROVIDED_BY = {
    "sql": "floe-iceberg",
    "local": "floe-iceberg",
    "s3": "floe-iceberg",
    "rest": "floe-polaris",
    "polaris": "floe-polaris",
    "spark": "floe-spark",
    "dagster": "floe-dagster",
}

Result = TypeVar("Result")


class PluginType(str, Enum):
    """The entry-point group of each kind of plugin."""

    COMPUTE = "floe.computes"
    ORCHESTRATOR = "floe.orchestrators"
    CATALOG = "floe.catalogs"
    STORAGE = "floe.storage"
    TELEMETRY_BACKEND = "floe.telemetry_backends"
    LINEAGE_BACKEND = "floe.lineage_backends"
    DBT = "floe.dbt"
    SEMANTIC_LAYER = "floe.semantic_layers"
    INGESTION = "floe.ingestion"
    SECRETS = "floe.secrets"
    IDENTITY = "floe.identity"
    QUALITY = "floe.quality"


_PORTS: dict[PluginType, type] = {
    PluginType.CATALOG: CatalogPlugin,
    PluginType.STORAGE: StoragePlugin,
    PluginType.COMPUTE: ComputePlugin,
    PluginType.ORCHESTRATOR: OrchestratorPlugin,
}


def _installed(group: str) -> Iterable[EntryPoint]:
    found: Iterable[EntryPoint] = _entry_points(tuple((path, _changed_at(path)) for path in sys.path)).select(
        group=group
    )
    return found


@lru_cache(maxsize=1)
def _entry_points(folders: tuple[tuple[str, int], ...]) -> Any:
    """All entry points; they are read again when something is installed, which changes one of the folders.

    Reading them opens a file for each installed package.
    """
    del folders
    return entry_points()


def _changed_at(path: str) -> int:
    try:
        return os.stat(path or ".").st_mtime_ns  # noqa: PTH116 - an entry of sys.path need not be a path
    except OSError:
        return 0


class PluginRegistry:
    """The plugins installed in this environment. `find` lists the entry points of a group."""

    def __init__(self, find: Callable[[str], Iterable[EntryPoint]] = _installed) -> None:
        self._find = find

    def names(self, kind: PluginType) -> list[str]:
        """The names of the installed plugins; nothing is imported."""
        return sorted({point.name for point in self._find(kind.value)})

    def get(self, kind: PluginType, name: str) -> type[Plugin]:
        """The plugin's class, imported and checked."""
        # The same distribution may be listed twice (an editable install beside its metadata).
        points = list(
            {
                (point.value, _distribution(point)): point for point in self._find(kind.value) if point.name == name
            }.values()
        )
        label = kind.name.lower().replace("_", " ")
        if not points:
            raise PluginError(self._unknown(kind, label, name))
        if len(points) > 1:
            providers = " and ".join(f"{_distribution(point)} ({point.value})" for point in points)
            raise PluginError(f"{label} plugin {name!r} is provided twice, by {providers}; uninstall one of them")
        point = points[0]
        try:
            plugin = point.load()
        except IncompatibleLibraryError:
            raise
        except Exception as exc:
            raise PluginError(
                f"{label} plugin {name!r} of {_distribution(point)} cannot be imported: {type(exc).__name__}: {exc}; "
                f"reinstall it, or uninstall it if you do not use it"
            ) from exc
        port = _PORTS.get(kind, Plugin)
        if not (isinstance(plugin, type) and issubclass(plugin, Plugin) and issubclass(plugin, port)):
            raise PluginError(
                f"{label} plugin {name!r} of {_distribution(point)} is not a subclass of "
                f"floe_core.plugins.ports.{port.__name__}"
            )
        if not isinstance(getattr(plugin, "metadata", None), PluginMetadata):
            raise PluginError(f"{label} plugin {name!r} of {_distribution(point)} has no metadata: PluginMetadata(...)")
        _check_api(label, name, plugin)
        self._check_dependencies(label, name, plugin)
        return plugin

    def _check_dependencies(self, label: str, name: str, plugin: type[Plugin]) -> None:
        if not plugin.metadata.dependencies:
            return
        installed = {installed_name for kind in PluginType for installed_name in self.names(kind)}
        missing = [dependency for dependency in plugin.metadata.dependencies if dependency not in installed]
        if missing:
            needed = ", ".join(f"{dependency!r} ({_advice(dependency)})" for dependency in missing)
            raise PluginError(f"{label} plugin {name!r} needs plugins that are not installed: {needed}")

    def _unknown(self, kind: PluginType, label: str, name: str) -> str:
        known = self.names(kind)
        close = difflib.get_close_matches(name, known, n=1)
        advice = f"did you mean {close[0]!r}?" if close else _advice(name)
        return f"no {label} plugin {name!r} is installed (installed: {', '.join(known) or 'none'}); {advice}"


def _advice(name: str) -> str:
    if name in _PROVIDED_BY:
        return f"the package {_PROVIDED_BY[name]} of this version does not bring it, or is not installed"
    return "install the package that brings it"


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown package"


def _check_api(label: str, name: str, plugin: type[Plugin]) -> None:
    made_for = plugin.metadata.floe_api_version
    major, minor = (int(part) for part in made_for.split("."))
    our_major, our_minor = (int(part) for part in FLOE_API_VERSION.split("."))
    if major != our_major or minor > our_minor:
        raise PluginError(
            f"{label} plugin {name!r} was made for plugin API {made_for}, this Floe has {FLOE_API_VERSION}; "
            f"install a version of {'Floe' if (major, minor) > (our_major, our_minor) else 'the plugin'} that fits"
        )


registry = PluginRegistry()


def create_catalog_plugin(artifacts: CompiledArtifacts) -> CatalogPlugin:
    """The catalog of a project on its storage, not connected yet."""
    plugin = registry.get(PluginType.CATALOG, artifacts.catalog.type)
    catalog = cast("CatalogPlugin", plugin(_settings(plugin, artifacts.catalog), root=artifacts.root))
    catalog.use_storage(create_storage_plugin(artifacts))
    return catalog


def create_storage_plugin(artifacts: CompiledArtifacts) -> StoragePlugin:
    """The storage of a project."""
    plugin = registry.get(PluginType.STORAGE, artifacts.storage.type)
    return cast("StoragePlugin", plugin(_settings(plugin, artifacts.storage), root=artifacts.root))


def create_compute_plugin(artifacts: CompiledArtifacts) -> ComputePlugin:
    """The engine of a project, not started and without a lake yet."""
    plugin = registry.get(PluginType.COMPUTE, "spark")
    return cast("ComputePlugin", plugin(artifacts.spark, root=artifacts.root))


def create_orchestrator_plugin(artifacts: CompiledArtifacts) -> OrchestratorPlugin:
    """The orchestrator of a project's pipeline."""
    plugin = registry.get(PluginType.ORCHESTRATOR, "dagster")
    return cast("OrchestratorPlugin", plugin(artifacts.pipeline, root=artifacts.root))


def _settings(plugin: type[Plugin], config: BaseModel) -> BaseModel:
    """The settings as the plugin's schema; the contract holds those of third-party plugins as plain data."""
    schema = plugin.get_config_schema()
    if schema is None or isinstance(config, schema):
        return config
    try:
        return schema.model_validate(dict(config))
    except ValidationError as exc:
        problems = "; ".join(
            ": ".join(
                [
                    ".".join(map(str, error["loc"])) or "settings",
                    value_problem(error["type"], error["msg"], error.get("ctx")),
                ]
            )
            for error in exc.errors(include_input=False, include_url=False)
        )
        raise ConfigurationError(
            f"the settings of {plugin.metadata.name!r} in the compiled contract do not fit ({redact(problems)}); "
            f"correct floe.yaml, then run: floe compile"
        ) from None


# By identity, because a plugin need not be hashable. Weak, so that a process can open any number of lakes.
_started: weakref.WeakValueDictionary[int, Plugin] = weakref.WeakValueDictionary()


def start(plugin: Plugin, *, timeout: float = STARTUP_SECONDS) -> None:
    """Start a plugin within the timeout, else PluginError; `stop` or the exit of the process shuts it down."""
    _with_timeout(timeout, plugin.startup, f"plugin {plugin.metadata.name!r} did not start within {timeout:g} s")
    _started[id(plugin)] = plugin
    _exit.prepare()


def stop(*plugins: Plugin) -> None:
    """Shut down those that are started; a failure is logged as a warning, and the others are shut down all the same."""
    for plugin in plugins:
        if _started.pop(id(plugin), None) is None:
            continue
        try:
            plugin.shutdown()
        except Exception as exc:  # noqa: BLE001 - the work is done; the other plugins must still be shut down
            from floe_core.observability.telemetry import (
                warn,  # heavier than the rest of this module, and rarely needed
            )

            warn(f"plugin {plugin.metadata.name!r} did not shut down: {type(exc).__name__}: {exc}")


class _ExitThread:
    """Shuts down the remaining plugins at exit, in a thread, so that a plugin that hangs cannot block the exit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exiting, self._stopped = threading.Event(), threading.Event()
        self._is_prepared = False

    def prepare(self) -> None:
        """Start the thread now: an exiting process cannot start threads."""
        with self._lock:
            if not self._is_prepared:
                threading.Thread(target=self._wait, name="floe-plugins", daemon=True).start()
                self._is_prepared = True

    def _wait(self) -> None:
        self._exiting.wait()
        try:
            stop(*reversed(list(_started.values())))
        finally:
            self._stopped.set()

    def stop_all(self) -> None:
        if not self._is_prepared:
            return
        self._exiting.set()
        if not self._stopped.wait(EXIT_SECONDS):
            from floe_core.observability.telemetry import warn

            warn(f"plugins did not shut down within {EXIT_SECONDS:g} s; the process ends without them")


_exit = _ExitThread()


@atexit.register
def _stop_all() -> None:
    _exit.stop_all()


def _reset_after_fork() -> None:
    """In a forked process: the plugins belong to the parent, which keeps using their connections."""
    global _exit
    _started.clear()
    _exit = _ExitThread()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_reset_after_fork)


def check_health(plugin: Plugin, *, timeout: float = HEALTH_SECONDS) -> HealthStatus:
    """The health of a plugin; an error or a timeout is an unhealthy status, not an exception."""
    try:
        return _with_timeout(timeout, plugin.health_check, f"no answer within {timeout:g} s")
    except Exception as exc:  # noqa: BLE001 - any failure means unhealthy
        return HealthStatus(healthy=False, message=str(exc))


def _with_timeout(seconds: float, call: Callable[[], Result], message: str) -> Result:
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(call())
        except BaseException as exc:  # noqa: BLE001 - handed to the caller's thread
            failure.append(exc)

    # A daemon, so that a plugin that hangs cannot keep the process alive.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if failure:
        raise failure[0]
    if not outcome:
        raise PluginError(message)
    return outcome[0]
