"""Plugins are found by entry point and checked before use; starting and health have their time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from floe_core import compiler
from floe_core.compiler import compile_project
from floe_core.errors import PluginError, Problem
from floe_core.plugins import discovery
from floe_core.plugins.discovery import (
    PluginRegistry,
    PluginType,
    check_health,
    create_catalog_plugin,
    create_storage_plugin,
    registry,
    start,
    stop,
)
from floe_core.plugins.ports import CatalogPlugin, HealthStatus, Plugin, PluginMetadata, StoragePlugin

Project = Callable[[str], Path]
ProblemsOf = Callable[..., tuple[Problem, ...]]


class GlueSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: str
    region: str


def made_for(api: str) -> PluginMetadata:
    return PluginMetadata(name="sample", version="1.0.0", floe_api_version=api)


class GoodCatalog(CatalogPlugin):
    metadata: ClassVar[PluginMetadata] = made_for("1.0")

    @classmethod
    def get_config_schema(cls) -> type[BaseModel] | None:
        return GlueSettings


class SilentCatalog(CatalogPlugin):
    metadata: ClassVar[PluginMetadata] = made_for("1.0")


class GoodStorage(StoragePlugin):
    metadata: ClassVar[PluginMetadata] = made_for("1.0")


class NextMajor(CatalogPlugin):
    metadata: ClassVar[PluginMetadata] = made_for("2.0")


class LastMajor(CatalogPlugin):
    metadata: ClassVar[PluginMetadata] = made_for("0.9")


class NewerMinor(CatalogPlugin):
    metadata: ClassVar[PluginMetadata] = made_for("1.9")


class Nameless(CatalogPlugin):
    """Its author forgot the metadata."""


class Needy(CatalogPlugin):
    metadata: ClassVar[PluginMetadata] = made_for("1.0").model_copy(update={"dependencies": ("vault", "s3", "glue")})


class NotAPlugin:
    pass


class Lifecycle(Plugin):
    """Does what a test tells it to."""

    metadata: ClassVar[PluginMetadata] = made_for("1.0")

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def startup(self) -> None:
        self._act()

    def health_check(self) -> HealthStatus:
        self._act()
        return HealthStatus(healthy=True, message="fine")


def fail() -> None:
    raise RuntimeError("no disk")


def wait_for(release: threading.Event) -> None:
    release.wait()


class Site:
    """A folder with real package metadata in it, as pip would leave it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def install(self, package: str, name: str, value: str, group: str = "floe.catalogs") -> None:
        info = self._folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")

    def find(self, group: str) -> Iterable[EntryPoint]:
        found = distributions(path=[str(self._folder)])
        return [point for one in found for point in one.entry_points if point.group == group]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


def test_the_twelve_groups() -> None:
    assert sorted(kind.value for kind in PluginType) == [
        "floe.catalogs",
        "floe.computes",
        "floe.dbt",
        "floe.identity",
        "floe.ingestion",
        "floe.lineage_backends",
        "floe.orchestrators",
        "floe.quality",
        "floe.secrets",
        "floe.semantic_layers",
        "floe.storage",
        "floe.telemetry_backends",
    ]


def test_an_installed_plugin_is_found_by_name(site: Site) -> None:
    site.install("floe-glue", "glue", f"{__name__}:GoodCatalog")
    found = PluginRegistry(site.find)
    assert found.names(PluginType.CATALOG) == ["glue"]
    assert found.names(PluginType.STORAGE) == []
    assert found.get(PluginType.CATALOG, "glue") is GoodCatalog


def test_listing_names_imports_nothing(site: Site) -> None:
    site.install("b", "second", "no_such_module_anywhere:X")
    site.install("a", "first", "no_such_module_anywhere:Y")
    assert PluginRegistry(site.find).names(PluginType.CATALOG) == ["first", "second"]


def test_an_unknown_name_is_told_with_the_nearest_one(site: Site) -> None:
    site.install("floe-glue", "glue", f"{__name__}:GoodCatalog")
    with pytest.raises(PluginError) as caught:
        PluginRegistry(site.find).get(PluginType.CATALOG, "gleu")
    assert str(caught.value) == "no catalog plugin 'gleu' is installed (installed: glue); did you mean 'glue'?"


@pytest.mark.parametrize(
    ("kind", "name", "advice"),
    [
        (PluginType.CATALOG, "polaris", "floe-polaris"),
        (PluginType.CATALOG, "rest", "floe-polaris"),
        (PluginType.CATALOG, "sql", "floe-iceberg"),
        (PluginType.STORAGE, "local", "floe-iceberg"),
        (PluginType.CATALOG, "hive", "install the package that brings it"),
        (PluginType.TELEMETRY_BACKEND, "x", "no telemetry backend plugin 'x'"),
    ],
)
def test_a_plugin_that_is_not_installed_is_told_with_what_brings_it(
    site: Site, kind: PluginType, name: str, advice: str
) -> None:
    with pytest.raises(PluginError, match="installed: none") as caught:
        PluginRegistry(site.find).get(kind, name)
    assert advice in str(caught.value)


def test_a_name_provided_twice_names_both_packages(site: Site) -> None:
    site.install("floe-glue", "glue", f"{__name__}:GoodCatalog")
    site.install("other-glue", "glue", f"{__name__}:SilentCatalog")
    with pytest.raises(PluginError, match="'glue' is provided twice") as caught:
        PluginRegistry(site.find).get(PluginType.CATALOG, "glue")
    assert "floe-glue" in str(caught.value)
    assert "other-glue" in str(caught.value)
    assert "uninstall one of them" in str(caught.value)


def test_one_package_listed_twice_is_one_plugin(site: Site) -> None:
    site.install("floe-glue", "glue", f"{__name__}:GoodCatalog")
    twice = PluginRegistry(lambda group: [*site.find(group), *site.find(group)])
    assert twice.get(PluginType.CATALOG, "glue") is GoodCatalog


def test_a_plugin_without_a_known_package_is_found_too() -> None:
    point = EntryPoint("glue", f"{__name__}:NotAPlugin", "floe.catalogs")
    with pytest.raises(PluginError, match="'glue' of an unknown package is not a subclass"):
        PluginRegistry(lambda _: [point]).get(PluginType.CATALOG, "glue")


@pytest.mark.parametrize(
    ("value", "cause"), [("no_such_module_anywhere:X", ModuleNotFoundError), (f"{__name__}:Missing", AttributeError)]
)
def test_a_plugin_that_cannot_be_imported_keeps_the_cause(site: Site, value: str, cause: type[Exception]) -> None:
    site.install("floe-glue", "glue", value)
    with pytest.raises(PluginError, match=f"of floe-glue cannot be imported: {cause.__name__}") as caught:
        PluginRegistry(site.find).get(PluginType.CATALOG, "glue")
    assert isinstance(caught.value.__cause__, cause)


@pytest.mark.parametrize("name", ["NotAPlugin", "made_for"])
def test_what_is_not_a_plugin_class_is_refused(site: Site, name: str) -> None:
    site.install("floe-glue", "glue", f"{__name__}:{name}")
    with pytest.raises(PluginError, match=r"of floe-glue is not a subclass of floe_core\.plugins\.ports"):
        PluginRegistry(site.find).get(PluginType.CATALOG, "glue")


@pytest.mark.parametrize(
    ("group", "kind", "name"),
    [("floe.catalogs", PluginType.CATALOG, "GoodStorage"), ("floe.storage", PluginType.STORAGE, "GoodCatalog")],
)
def test_a_plugin_in_the_group_of_another_kind_is_refused(site: Site, group: str, kind: PluginType, name: str) -> None:
    site.install("floe-glue", "glue", f"{__name__}:{name}", group)
    with pytest.raises(PluginError, match="floe-glue"):
        PluginRegistry(site.find).get(kind, "glue")


def test_a_plugin_without_metadata_is_refused(site: Site) -> None:
    site.install("floe-glue", "glue", f"{__name__}:Nameless")
    with pytest.raises(PluginError, match="metadata"):
        PluginRegistry(site.find).get(PluginType.CATALOG, "glue")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("NextMajor", "made for plugin API 2.0, this Floe has 1.3; install a version of Floe that fits"),
        ("NewerMinor", "made for plugin API 1.9, this Floe has 1.3; install a version of Floe that fits"),
        ("LastMajor", "made for plugin API 0.9, this Floe has 1.3; install a version of the plugin that fits"),
    ],
)
def test_a_plugin_for_another_api_is_refused_with_what_to_install(
    site: Site, monkeypatch: pytest.MonkeyPatch, name: str, advice: str
) -> None:
    monkeypatch.setattr(discovery, "FLOE_API_VERSION", "1.3")
    site.install("floe-glue", "glue", f"{__name__}:{name}")
    with pytest.raises(PluginError) as caught:
        PluginRegistry(site.find).get(PluginType.CATALOG, "glue")
    assert str(caught.value).endswith(advice)


def test_a_plugin_for_an_older_minor_api_is_accepted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "FLOE_API_VERSION", "1.3")
    site.install("floe-glue", "glue", f"{__name__}:GoodCatalog")
    assert PluginRegistry(site.find).get(PluginType.CATALOG, "glue") is GoodCatalog


def test_a_plugin_whose_dependencies_are_not_installed_names_them(site: Site) -> None:
    site.install("floe-glue", "glue", f"{__name__}:Needy")
    with pytest.raises(PluginError) as caught:
        PluginRegistry(site.find).get(PluginType.CATALOG, "glue")
    assert str(caught.value) == (
        "catalog plugin 'glue' needs plugins that are not installed: 'vault' (install the package that brings it), "
        "'s3' (the package floe-iceberg of this version does not bring it, or is not installed)"
    )


def test_the_dependencies_of_a_plugin_may_be_of_any_kind(site: Site) -> None:
    site.install("floe-glue", "glue", f"{__name__}:Needy")
    site.install("floe-s3", "s3", "no_such_module_anywhere:X", "floe.storage")
    site.install("floe-vault", "vault", "no_such_module_anywhere:Y", "floe.secrets")
    assert PluginRegistry(site.find).get(PluginType.CATALOG, "glue") is Needy


def test_a_project_whose_plugin_lacks_a_dependency_does_not_compile(
    site: Site, monkeypatch: pytest.MonkeyPatch, new_project: Project
) -> None:
    site.install("floe-glue", "glue", f"{__name__}:Needy")
    monkeypatch.setattr(compiler, "registry", PluginRegistry(site.find))
    with pytest.raises(PluginError, match="'vault'"):
        compile_project(new_project("name: shop\ncatalog: {type: glue}\n"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Upper"}, {"name": "a b"}, {"name": ""}, {"version": "1.0"}, {"version": "1.0.0rc1"},
        {"floe_api_version": "1"}, {"floe_api_version": "1.0.0"}, {"floe_api_version": "1.0\n"},
    ],
)  # fmt: skip
def test_metadata_is_checked(wrong: dict[str, str]) -> None:
    right = {"name": "a", "version": "1.0.0", "floe_api_version": "1.0"}
    PluginMetadata.model_validate(right)
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        PluginMetadata.model_validate({**right, **wrong})


def test_the_compiler_asks_a_plugin_for_its_own_schema(
    site: Site, monkeypatch: pytest.MonkeyPatch, new_project: Project, problems_of: ProblemsOf
) -> None:
    site.install("floe-glue", "glue", f"{__name__}:GoodCatalog")
    monkeypatch.setattr(compiler, "registry", PluginRegistry(site.find))
    artifacts = compile_project(new_project("name: shop\ncatalog: {type: glue, region: eu}\n")).artifacts
    assert artifacts.catalog.model_dump() == {"type": "glue", "region": "eu"}
    unknown, wrong = problems_of("name: shop\ncatalog:\n  type: glue\n  regoin: eu\n  region: 5\n")
    assert str(unknown) == "floe.yaml:4: catalog.regoin: unknown key 'regoin'; did you mean 'region'?"
    assert (wrong.line, wrong.path) == (5, "catalog.region")
    (missing,) = problems_of("name: shop\ncatalog:\n  type: glue\n")
    assert missing.line in (2, 3)
    assert "region" in str(missing)


def test_a_plugin_that_takes_no_settings_gets_none(
    site: Site, monkeypatch: pytest.MonkeyPatch, new_project: Project, problems_of: ProblemsOf
) -> None:
    site.install("floe-silent", "silent", f"{__name__}:SilentCatalog")
    monkeypatch.setattr(compiler, "registry", PluginRegistry(site.find))
    compile_project(new_project("name: shop\ncatalog: {type: silent}\n"))
    (problem,) = problems_of("name: shop\ncatalog:\n  type: silent\n  region: eu\n")
    assert str(problem) == "floe.yaml:4: catalog.region: unknown key 'region'"


def test_a_plugin_starts_within_its_time() -> None:
    called: list[bool] = []
    start(Lifecycle(lambda: called.append(True)))
    assert called == [True]


def test_a_plugin_that_hangs_while_starting_is_told() -> None:
    release = threading.Event()
    with pytest.raises(PluginError, match=r"plugin 'sample' did not start within 0\.05 s"):
        start(Lifecycle(lambda: wait_for(release)), timeout=0.05)
    release.set()


def test_an_error_while_starting_reaches_the_caller() -> None:
    with pytest.raises(RuntimeError, match="no disk"):
        start(Lifecycle(fail))


class Ending(Lifecycle):
    """Equal to every other one, and so not hashable."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ending)

    def startup(self) -> None: ...

    def shutdown(self) -> None:
        self._act()


def test_a_started_plugin_is_shut_down_once() -> None:
    ended: list[str] = []
    first, second = Ending(lambda: ended.append("first")), Ending(lambda: ended.append("second"))
    stop(first)
    assert ended == []  # it was never started
    start(first)
    start(second)
    stop(first)
    stop(first)
    assert ended == ["first"]
    stop(second)
    assert ended == ["first", "second"]


def test_a_plugin_that_cannot_shut_down_is_a_warning_and_the_next_one_is_shut_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[bool] = []
    broken, sound = Ending(fail), Ending(lambda: ended.append(True))
    start(broken)
    start(sound)
    stop(broken, sound)
    assert ended == [True]
    assert "plugin 'sample' did not shut down: RuntimeError: no disk" in caplog.text


def test_plugins_that_nobody_stopped_are_shut_down_when_the_process_exits() -> None:
    script = (
        "from floe_core.plugins.discovery import start, stop\n"
        "from tests.unit.core.test_core_plugins import Ending\n"
        "one, two, three = (Ending(lambda name=name: print(name)) for name in ('one', 'two', 'three'))\n"
        "for plugin in (one, two, three): start(plugin)\n"
        "stop(two)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["two", "three", "one"]


def test_a_plugin_that_hangs_while_it_is_shut_down_does_not_keep_the_process() -> None:
    script = (
        "import threading\n"
        "from floe_core.plugins import discovery\n"
        "from tests.unit.core.test_core_plugins import Ending\n"
        "discovery.EXIT_SECONDS = 0.1\n"
        "plugin = Ending(threading.Event().wait)\n"
        "discovery.start(plugin)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_shut_down_the_plugins_of_its_parent() -> None:
    script = (
        "import os, sys\n"
        "from floe_core.plugins.discovery import start, stop\n"
        "from tests.unit.core.test_core_plugins import Ending\n"
        "parent = os.getpid()\n"
        "who = lambda name: print(name, 'parent' if os.getpid() == parent else 'child', flush=True)\n"
        "one = Ending(lambda: who('one'))\n"
        "start(one)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    two = Ending(lambda: who('two'))\n"
        "    start(two)\n"
        "    stop(one)\n"
        "    sys.exit()\n"
        "os.waitpid(child, 0)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines() == ["two child", "one parent"]


def test_health_is_an_answer_and_never_an_exception() -> None:
    release = threading.Event()
    assert check_health(Lifecycle(lambda: None)) == HealthStatus(healthy=True, message="fine")
    assert check_health(Lifecycle(fail)) == HealthStatus(healthy=False, message="no disk")
    late = check_health(Lifecycle(lambda: wait_for(release)), timeout=0.05)
    assert late == HealthStatus(healthy=False, message="no answer within 0.05 s")
    release.set()


def test_a_plugin_has_sensible_defaults() -> None:
    class Plain(Plugin):
        metadata: ClassVar[PluginMetadata] = made_for("1.0")

        def __init__(self, config: BaseModel | None = None, *, root: Path = Path()) -> None: ...

    plain = Plain()
    start(plain)
    assert check_health(plain).healthy
    assert plain.get_config_schema() is None
    plain.shutdown()


def test_the_real_registry_finds_what_floe_brings(new_project: Project) -> None:
    assert "sql" in registry.names(PluginType.CATALOG)
    assert "local" in registry.names(PluginType.STORAGE)
    artifacts = compile_project(new_project("name: shop\n")).artifacts
    assert isinstance(create_catalog_plugin(artifacts), CatalogPlugin)
    storage = create_storage_plugin(artifacts)
    assert isinstance(storage, StoragePlugin)
    assert str(artifacts.root) in storage.get_warehouse_uri()


def test_naming_the_real_plugins_imports_none_of_them() -> None:
    script = (
        "import sys\n"
        "from floe_core.plugins.discovery import PluginType, registry\n"
        "assert 'sql' in registry.names(PluginType.CATALOG)\n"
        "assert not {'floe_iceberg', 'pyiceberg'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
