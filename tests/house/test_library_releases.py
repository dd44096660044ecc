"""Releases of PyIceberg, PySpark and Dagster that Floe does not support are refused, and so is code it cannot patch."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests import commands

from floe_core import engines
from floe_core.engines import SUPPORTED, is_supported
from floe_core.errors import FloeError, IncompatibleLibraryError
from floe_iceberg._pyiceberg.patches import PATCHES, Patch

ROOT = Path(__file__).parents[2]
# Without the variable, which `make test-next` sets; the tests that need it set it themselves.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "FLOE_UNTESTED_VERSIONS"}


def run(
    code: str, *, path: Path | None = None, cwd: Path | None = None, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that has imported the libraries, and Floe not yet."""
    paths = {} if path is None else {"PYTHONPATH": str(path)}
    return commands.python(code, cwd=cwd, stdin=stdin, environment={**ENVIRONMENT, **paths, **environment})


def command(*arguments: str, path: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.argv = ['floe', *{list(arguments)!r}]\nfrom floe_runtime.cli import main; main()"
    return run(program, path=path, cwd=cwd)


def installed_as(folder: Path, library: str, version: str) -> Path:
    """A folder that makes the installed library look like another release of it."""
    metadata = folder / f"{library}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {library}\nVersion: {version}\n")
    return folder


# Versions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", SUPPORTED)
def test_the_bounds_are_those_of_the_packages_and_hold_the_locked_release(library: str) -> None:
    bounds = SUPPORTED[library]
    declared = [
        found
        for path in (*(ROOT / "packages").glob("*/pyproject.toml"), *(ROOT / "examples").glob("*/pyproject.toml"))
        for found in re.findall(rf'"{library}(?:-webserver)?(?:\[[\w,-]+\])?([^"\]]*[<>=][^"]*)"', path.read_text())
    ]
    assert declared
    assert set(declared) == {f">={bounds.lowest},<{bounds.below}"}
    assert f"\n{library}=={bounds.tested} " in (ROOT / "requirements.lock").read_text()


@pytest.mark.parametrize(
    ("library", "version", "supported"),
    [
        ("pyiceberg", "0.12.0", True),
        ("pyiceberg", "0.12", True),
        ("pyiceberg", "0.12.7.post1", True),
        ("pyiceberg", "0.12.1rc1", True),
        ("pyiceberg", "0.12.0rc1", False),
        ("pyiceberg", "0.11.1", False),
        ("pyiceberg", "0.13.0", False),
        ("pyiceberg", "0.13.0rc1", False),
        ("pyiceberg", "0.13.0.dev0", False),
        ("pyiceberg", "1.0", False),
        ("pyspark", "4.1.4+vendor.2", True),
        ("pyspark", "4.1.4-amzn-0", True),
        ("pyspark", "4.0.1", False),
        ("pyspark", "4.2.0.dev1", False),
        ("dagster", "1.13.99", True),
        ("dagster", "1.14.0", False),
        ("dagster", None, False),
    ],
)
def test_a_release_is_supported_within_the_bounds(
    library: str, version: str | None, supported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "installed_version", lambda _library: version)
    assert is_supported(library) is supported


def test_a_library_without_metadata_says_its_version_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As PySpark of a Spark distribution, which is found by PYTHONPATH."""

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert engines.installed_version("pyiceberg") == SUPPORTED["pyiceberg"].tested
    assert engines.installed_version("not_imported") is None


RELEASES = [
    ("pyiceberg", "0.13.0", "floe_iceberg"),
    ("pyspark", "4.2.0", "floe_spark"),
    ("dagster", "1.14.0", "floe_dagster"),
]


@pytest.mark.parametrize(("library", "version", "package"), RELEASES)
def test_a_release_outside_of_the_bounds_is_refused_at_import(
    library: str, version: str, package: str, tmp_path: Path
) -> None:
    path = installed_as(tmp_path, library, version)
    refused = run(f"import {package}", path=path)
    last = refused.stderr.strip().splitlines()[-1]
    assert last.startswith("floe_core.errors.IncompatibleLibraryError: ")
    assert f"{library} {version} is installed" in last
    assert f"pip install '{SUPPORTED[library].of(library)}'" in last
    assert "FLOE_UNTESTED_VERSIONS=1" in last
    allowed = run(f"import {package}", path=path, FLOE_UNTESTED_VERSIONS="1")
    assert (allowed.returncode, allowed.stderr) == (0, "")


# Patches ------------------------------------------------------------------------------------------------------------

# Every target in turn is spoilt, floe_iceberg is imported, and the target is put back.
SPOIL = """
import json, pkgutil, sys
import other_code
from floe_core.errors import IncompatibleLibraryError

found = {}
for target, members in json.loads(sys.stdin.read()):
    module, _, path = target.partition(":")
    owner, _, name = ".".join([path, *members[:1]] if other_code.CHANGE else [path]).rpartition(".")
    holder = pkgutil.resolve_name(f"{module}:{owner}" if owner else module)
    kept, own = getattr(holder, name), name in vars(holder)
    if other_code.CHANGE:
        setattr(holder, name, other_code.changed)
    else:
        delattr(holder, name)
    try:
        import floe_iceberg
    except ImportError as exc:
        found[target] = [type(exc).__name__, str(exc)]
    if own or not other_code.CHANGE:
        setattr(holder, name, staticmethod(kept) if name == "table_metadata" else kept)
    else:
        delattr(holder, name)
    for one in [one for one in sys.modules if one.startswith("floe_iceberg")]:
        del sys.modules[one]
import floe_iceberg  # everything was put back
print(json.dumps(found))
"""


@pytest.mark.parametrize("change", [True, False])
def test_a_target_that_changed_or_is_missing_is_refused_by_its_name(change: bool, tmp_path: Path) -> None:
    (tmp_path / "other_code.py").write_text(f"CHANGE = {change}\n\ndef changed(*arguments):\n    return arguments\n")
    targets = json.dumps([(one.target, one.members) for one in PATCHES])
    done = run(SPOIL, path=tmp_path, stdin=targets, FLOE_UNTESTED_VERSIONS="1")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    tested = SUPPORTED["pyiceberg"].tested
    for patch in PATCHES:
        kind, message = found[patch.target]
        assert kind == "IncompatibleLibraryError"
        assert message.startswith(f"pyiceberg {tested}: ")
        assert patch.target.replace(":", ".") in message
        assert patch.promise in message
        assert f"pip install 'pyiceberg=={tested}', or install the newest Floe" in message


NO_SOURCE = """
import inspect
def unreadable(_code):
    raise OSError("could not get source code")
inspect.getsource = unreadable
import floe_iceberg
"""


def test_without_sources_the_version_bounds_decide_also_where_they_are_lifted(tmp_path: Path) -> None:
    assert run(NO_SOURCE).returncode == 0
    refused = run(NO_SOURCE, path=installed_as(tmp_path, "pyiceberg", "0.13.0"), FLOE_UNTESTED_VERSIONS="1")
    assert "IncompatibleLibraryError: pyiceberg 0.13.0: the code of pyiceberg." in refused.stderr
    assert "pip install 'pyiceberg>=0.12,<0.13'" in refused.stderr


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.target)
def test_every_patch_has_a_report_for_its_project(patch: Patch) -> None:
    reports = ROOT / "docs" / "upstream"
    report, target = patch.report, patch.target.replace(":", ".")
    assert f"`{target}`" in (reports / report).read_text()
    assert f"[{report}]({report})" in (reports / "README.md").read_text()


# Private names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "package", "named"),
    [
        (
            "import pyiceberg.io.pyarrow as one; del one._read_all_delete_files",
            "floe_iceberg",
            "there is no pyiceberg.io.pyarrow._read_all_delete_files",
        ),
        (
            "import pyiceberg.catalog as one; del one.MetastoreCatalog._update_and_stage_table",
            "floe_iceberg",
            "pyiceberg.catalog.sql.SqlCatalog has no _update_and_stage_table",
        ),
        (
            "import pyiceberg.catalog.rest as one; del one.RestCatalog._fetch_config",
            "floe_polaris.catalog",
            "pyiceberg.catalog.rest.RestCatalog has no _fetch_config",
        ),
        (
            "from pyspark import SparkContext as one; del one._gateway, one.__annotations__['_gateway']",
            "floe_spark",
            "pyspark.core.context.SparkContext has no _gateway",
        ),
        (
            "import sys, dagster; sys.modules['dagster._core.execution.stats'] = None",
            "floe_dagster.runs.steps",
            "there is no module dagster._core.execution.stats",
        ),
        (
            "import dagster._serdes as one; del one.pack_value",
            "floe_dagster.runs.steps",
            "no dagster._serdes.pack_value",
        ),
    ],
    ids=["function", "sql_catalog", "rest_catalog", "pyspark", "module", "dagster"],
)
def test_a_private_name_that_is_missing_is_refused_by_its_name(spoil: str, package: str, named: str) -> None:
    refused = run(f"{spoil}\nimport {package}", FLOE_UNTESTED_VERSIONS="1")
    last = refused.stderr.strip().splitlines()[-1]
    assert last.startswith("floe_core.errors.IncompatibleLibraryError: ")
    assert named in last
    assert "Floe depends on it: " in last


def test_a_library_that_is_not_installed_stays_a_plain_import_error() -> None:
    refused = run("import sys; sys.modules['pyiceberg'] = None\nimport floe_iceberg")
    assert "ModuleNotFoundError" in refused.stderr
    assert "IncompatibleLibraryError" not in refused.stderr


def test_the_error_is_an_import_error_and_one_of_floe() -> None:
    assert issubclass(IncompatibleLibraryError, ImportError)
    assert issubclass(IncompatibleLibraryError, FloeError)


# The command --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "library", "version"),
    [
        (["tables", "health"], "pyiceberg", "0.13.0"),
        (["namespaces", "list"], "pyiceberg", "0.13.0"),
        (["run"], "dagster", "1.14.0"),
    ],
)
def test_a_command_prints_one_error_line_and_exits_with_1(
    arguments: list[str], library: str, version: str, tmp_path: Path
) -> None:
    path = installed_as(tmp_path / "path", library, version)
    (tmp_path / "floe.yaml").write_text("name: shop\n")
    done = command(*arguments, path=path, cwd=tmp_path)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert errors[0].startswith(f"error: {library} {version} is installed, and this Floe supports {library}>=")
    assert "Traceback" not in done.stderr


def test_the_doctor_names_an_unsupported_release_of_spark(tmp_path: Path) -> None:
    path = installed_as(tmp_path / "path", "pyspark", "4.2.0")
    (tmp_path / "floe.yaml").write_text("name: shop\n")
    done = command("doctor", path=path, cwd=tmp_path)
    assert done.returncode == 1
    assert "pyspark 4.2.0 is installed, and this Floe supports pyspark>=" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_plugin_of_an_unsupported_library_is_not_called_broken(tmp_path: Path) -> None:
    code = "from floe_core.plugins.discovery import PluginType, registry; registry.get(PluginType.CATALOG, 'sql')"
    refused = run(code, path=installed_as(tmp_path, "pyiceberg", "0.13.0"))
    assert "IncompatibleLibraryError: pyiceberg 0.13.0 is installed" in refused.stderr
    assert "PluginError" not in refused.stderr


def test_a_patch_that_does_not_fit_is_one_error_line_too(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\n")
    program = (
        "import os, sys; import pyiceberg.io.pyarrow as one; del one._read_deletes\n"
        f"os.chdir({str(tmp_path)!r}); sys.argv = ['floe', 'tables', 'health', *sys.argv[1:]]\n"
        "from floe_runtime.cli import main; main()"
    )
    done = run(program)
    assert done.returncode == 1
    assert done.stderr.startswith("error: pyiceberg 0.12.0: pyiceberg.io.pyarrow._read_deletes, which Floe patches, is")
    assert len(done.stderr.strip().splitlines()) == 1
