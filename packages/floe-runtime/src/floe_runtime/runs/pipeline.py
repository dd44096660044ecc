"""Open the Dagster definitions of a project."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from dagster import AssetKey, DagsterInstance, Definitions, JobDefinition

from floe_core.config import BRANCH_VARIABLE, MAIN, PUBLISH_VARIABLE, CompiledArtifacts, Publish
from floe_core.errors import ConfigurationError, FloeError
from floe_core.java import java_problem
from floe_core.plugins import OrchestratorPlugin, create_orchestrator_plugin, start, stop
from floe_core.security import narrow
from floe_dagster import LakeResource
from floe_dagster._dagster.names import NO_COMPUTE_LOGS
from floe_dagster.atomic import written_by
from floe_dagster.runs import keep_history_of
from floe_iceberg import Lake
from floe_runtime.dagster_storage import BATCH_SIZE, SETTINGS
from floe_runtime.homes import begin_home, home_of, open_home
from floe_runtime.runs.failures import Place, place_in
from floe_runtime.runs.selection import select

if TYPE_CHECKING:
    from floe_dagster._dagster.names import AssetGraph

__all__ = ["Pipeline", "load_definitions", "open_history", "open_instance", "open_pipeline"]

# No telemetry, and output of assets goes to the terminal, not through helper processes. Each run of the web UI has its
# own JVM: Dagster's default of ten concurrent runs would be too many for a laptop.
_QUIET = f"""\
telemetry:
  enabled: false
compute_logs:
  module: {NO_COMPUTE_LOGS}
  class: NoOpComputeLogManager
"""
_FEW_RUNS = """\
concurrency:
  runs:
    max_concurrent_runs: 2
"""
_DAGSTER_SETTINGS = f"{_QUIET}{_FEW_RUNS}{SETTINGS}"
# Settings written by earlier versions; files that still equal them were not changed by the user.
_EARLIER_SETTINGS = (_QUIET, f"{_QUIET}{_FEW_RUNS}")

# The files of each project whose modules are loaded, and the version of each that was loaded.
_loaded: dict[Path, dict[Path, tuple[int, int] | None]] = {}
# The variables that the definitions of each loaded project were made with.
_loaded_with: dict[Path, tuple[str | None, ...]] = {}


@dataclass(frozen=True)
class Pipeline:
    """The definitions of a project, and the history of its runs."""

    artifacts: CompiledArtifacts
    definitions: Definitions
    instance: DagsterInstance

    @cached_property
    def job(self) -> JobDefinition:
        return self.definitions.resolve_implicit_global_asset_job_def()

    @cached_property
    def graph(self) -> AssetGraph:
        return self.definitions.resolve_asset_graph()

    @cached_property
    def steps(self) -> dict[str, list[str]]:
        """The names of the assets of each step."""
        assets: dict[str, list[str]] = {}
        for key in self.graph.materializable_asset_keys:
            definition = self.graph.assets_def_for_key(key)
            group = written_by(definition)
            if group:
                assets |= group
            else:
                assets.setdefault(definition.node_def.name, []).append(key.to_user_string())
        return assets

    @property
    def starts_spark(self) -> bool:
        """Whether Spark starts before the first asset: modules import PySpark, and Spark can be started."""
        return self.imports_pyspark and (bool(self.artifacts.spark.remote) or java_problem() is None)

    @property
    def imports_pyspark(self) -> bool:
        """Whether modules of the project import PySpark: their assets may ask PySpark for the active session."""
        names = [
            getattr(value, "__module__", None) or getattr(value, "__name__", "")
            for module in _own_modules(self.artifacts.root).values()
            for value in vars(module).values()
        ]
        return any(str(name).partition(".")[0] == "pyspark" for name in names)

    def assets(self, selection: Sequence[str] = ()) -> list[AssetKey]:
        """The assets to run, upstream first: all that can be materialized, or those that the selections name."""
        return select(self.graph, selection)


@contextmanager
def open_pipeline(artifacts: CompiledArtifacts, *, publish: Publish | None = None) -> Iterator[Pipeline]:
    """The pipeline of a project; the history of its runs is under `.floe/` unless DAGSTER_HOME says otherwise.

    Args:
        artifacts: The compiled project.
        publish: When the tables of a run become visible. By default as floe.yaml says.
    """
    artifacts.protect_secrets()
    _begin_branch(artifacts)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is currently in (beta|preview).*")
        with (
            _inside(artifacts, publish=publish),
            _dagster_home(artifacts) as home,
            _orchestrator(artifacts) as orchestrator,
        ):
            definitions = _load(artifacts, orchestrator)
            with DagsterInstance.from_config(str(home)) as instance:
                if artifacts.lake_branch is not None:
                    keep_history_of(instance, artifacts.lake_branch)
                    _reopen_branch(definitions)
                try:
                    yield Pipeline(artifacts, definitions, instance)
                finally:
                    narrow(artifacts.root)  # Dagster creates its databases with the permissions of the umask


def _begin_branch(artifacts: CompiledArtifacts) -> None:
    """Create the branch of the lake if it does not exist, and its history if that is of an earlier branch."""
    if artifacts.lake_branch is None:
        return
    with Lake(artifacts) as lake:
        branch = lake.tables.at_branch
    if branch is not None:
        begin_home(artifacts, branch.created_ms)


def _reopen_branch(definitions: Definitions) -> None:
    """Read the branch of the lake again, if this process has opened it before: it may have been updated since."""
    for resource in (definitions.resources or {}).values():
        if isinstance(resource, LakeResource) and isinstance(resource.project, str):
            resource.lake.reopen_branch()


@contextmanager
def open_history(artifacts: CompiledArtifacts) -> Iterator[DagsterInstance | None]:
    """The history of the runs, without the definitions, which may not be importable; None if there was no run."""
    artifacts.protect_secrets()
    elsewhere = os.environ.get("DAGSTER_HOME") and artifacts.lake_branch is None
    if not elsewhere and not (home_of(artifacts)[0] / "history").is_dir():
        yield None
        return
    with _dagster_home(artifacts) as home, DagsterInstance.from_config(str(home)) as instance:
        yield instance


@contextmanager
def open_instance(artifacts: CompiledArtifacts) -> Iterator[DagsterInstance]:
    """The history of the runs, which is created if there was no run."""
    artifacts.protect_secrets()
    with _dagster_home(artifacts) as home, DagsterInstance.from_config(str(home)) as instance:
        yield instance


def load_definitions(artifacts: CompiledArtifacts) -> Definitions:
    """The definitions of a project, without the history of its runs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is currently in (beta|preview).*")
        with _inside(artifacts), _orchestrator(artifacts) as orchestrator:
            return _load(artifacts, orchestrator)


@contextmanager
def _orchestrator(artifacts: CompiledArtifacts) -> Iterator[OrchestratorPlugin]:
    plugin = create_orchestrator_plugin(artifacts)
    start(plugin)
    try:
        yield plugin
    finally:
        stop(plugin)


@contextmanager
def _inside(artifacts: CompiledArtifacts, *, publish: Publish | None = None) -> Iterator[None]:
    """Make the project's folder the working directory and importable, and set the variables that it is loaded with."""
    before, path = Path.cwd(), list(sys.path)
    own = {"FLOE_ENV": artifacts.environment or "", BRANCH_VARIABLE: artifacts.lake_branch or MAIN}
    own |= {PUBLISH_VARIABLE: publish} if publish is not None else {}
    variables = {name: os.environ.get(name) for name in own}
    os.chdir(artifacts.root)
    sys.path.insert(0, str(artifacts.root))
    os.environ.update(own)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        for name, value in variables.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _dagster_home(artifacts: CompiledArtifacts) -> Iterator[Path]:
    given = os.environ.get("DAGSTER_HOME")
    if given and artifacts.lake_branch is None:
        if not Path(given).is_absolute() or not Path(given).is_dir():
            raise ConfigurationError(
                f"DAGSTER_HOME is {given!r}, which is not the absolute path of a folder; create it, or unset it"
            )
        yield Path(given)
        return
    home = open_home(artifacts)
    settings = home / "dagster.yaml"
    # Both settings store the history in the same files; settings that a user changed are kept.
    if not settings.exists() or settings.read_text(encoding="utf-8") in _EARLIER_SETTINGS:
        settings.write_text(_DAGSTER_SETTINGS, encoding="utf-8")
    name, size = BATCH_SIZE
    own = {"DAGSTER_HOME": str(home)} | ({} if name in os.environ else {name: size})
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield home
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def _load(artifacts: CompiledArtifacts, orchestrator: OrchestratorPlugin) -> Definitions:
    name = artifacts.pipeline.definitions
    _forget_other_projects(name, artifacts.root)
    _forget_outdated(artifacts.root)
    try:
        module = importlib.import_module(name)
    except FloeError:
        raise
    except ModuleNotFoundError as exc:
        if exc.name and (name == exc.name or name.startswith(f"{exc.name}.")):
            raise ConfigurationError(
                f"pipeline.definitions is {name!r}, but {artifacts.root} has no such module; create "
                f"{name.replace('.', '/')}.py there, or name another module"
            ) from exc
        raise ConfigurationError(_import_failure(name, exc, artifacts.root)) from exc
    except (Exception, SystemExit) as exc:
        raise ConfigurationError(_import_failure(name, exc, artifacts.root)) from exc
    files = {Path(str(module.__file__)) for module in _own_modules(artifacts.root).values()}
    _loaded[artifacts.root] = {file: _version(file) for file in files}
    _loaded_with[artifacts.root] = _variables()
    definitions: Definitions = orchestrator.definitions_in(module)
    return definitions


def _variables() -> tuple[str | None, ...]:
    """What definitions depend on beside their files."""
    return tuple(os.environ.get(name) for name in (PUBLISH_VARIABLE, BRANCH_VARIABLE))


def _own_modules(root: Path) -> dict[str, ModuleType]:
    """The loaded modules of a project. A virtual environment may be inside its folder: its packages are not its own."""
    folder = f"{root.resolve()}{os.sep}"
    files = [(name, module, getattr(module, "__file__", None) or "") for name, module in list(sys.modules.items())]
    return {
        name: module
        for name, module, file in files
        if name != "__main__" and file.startswith(folder) and "site-packages" not in Path(file).parts
    }


def _version(file: Path) -> tuple[int, int] | None:
    """What differs between two versions of a file; None if it does not exist."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


def _forget_outdated(root: Path) -> None:
    """Unload the modules of a project if one of their files has changed: a notebook outlives many edits.

    They are unloaded as well if the last import failed, as it may have loaded a part of them. Those of other projects
    are unloaded because their names may be the same.
    """
    loaded = _loaded.pop(root, None)
    others = [other for other in _loaded if other != root]
    edited = loaded is None or any(_version(file) != version for file, version in loaded.items())
    if edited or _loaded_with.get(root) != _variables():
        others.append(root)
        importlib.invalidate_caches()
    for other in others:
        _loaded.pop(other, None)
        for name in _own_modules(other):
            del sys.modules[name]


def _forget_other_projects(name: str, root: Path) -> None:
    """Unload modules of the same name from another project: one process may run several projects."""
    top = name.split(".")[0]
    loaded: ModuleType | None = sys.modules.get(top)
    if loaded is None or not getattr(loaded, "__file__", None):
        return
    if root not in Path(str(loaded.__file__)).resolve().parents:
        for module in [module for module in sys.modules if module == top or module.startswith(f"{top}.")]:
            del sys.modules[module]


def _import_failure(name: str, exc: BaseException, root: Path) -> str:
    """Why a module cannot be imported, with the line of the project that raised it."""
    if isinstance(exc, SyntaxError) and exc.filename and exc.lineno:  # a syntax error has no frame
        place = Place.of(exc.filename, exc.lineno, "", root)
        return f"importing {name} failed at {place.file}:{place.line}: {type(exc).__name__}: {exc.msg}{_line(place)}"
    place_or_none = place_in(traceback.format_tb(exc.__traceback__), root)
    where = f" at {place_or_none.file}:{place_or_none.line}" if place_or_none else ""
    return f"importing {name} failed{where}: {type(exc).__name__}: {exc}{_line(place_or_none)}{_package_for(exc)}"


def _package_for(exc: BaseException) -> str:
    """What to install, if PySpark is missing: Floe runs without it until a project imports it."""
    if isinstance(exc, ModuleNotFoundError) and (exc.name or "").partition(".")[0] == "pyspark":
        return "\nPySpark is not installed; install it with: pip install floe-spark"
    return ""


def _line(place: Place | None) -> str:
    return f"\n    {place.source}" if place is not None and place.source else ""
