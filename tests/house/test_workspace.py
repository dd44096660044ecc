"""The workspace holds together: one version, one lock without addresses, imports that go down only."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from floe_core.config.json_schema import contract_schema, spec_schema

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.name for path in (ROOT / "packages").iterdir())


def test_there_are_six_packages_of_one_version() -> None:
    assert PACKAGES == ["floe-core", "floe-dagster", "floe-iceberg", "floe-polaris", "floe-runtime", "floe-spark"]
    texts = [(ROOT / "packages" / name / "pyproject.toml").read_text() for name in PACKAGES]
    versions = {found for text in texts for found in re.findall(r'^version = "(.+)"', text, re.M)}
    pins = {found for text in texts for found in re.findall(r'"floe-[a-z]+(?:\[\w+\])?==(.+?)"', text)}
    assert len(versions) == 1
    assert pins == versions


def test_the_lock_pins_hashes_and_names_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "--hash=sha256:" in lock
    assert not re.search(r"https?://|file:|--index-url|--find-links", lock)


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": ":".join(str(folder / "packages" / name / "src") for name in PACKAGES), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("package", "planted", "contract"),
    [
        ("floe-core", "import pyarrow", "No engine in floe_core"),
        ("floe-core", "import floe_iceberg", "Imports go down only"),
        ("floe-spark", "import floe_polaris", "Imports go down only"),
        ("floe-iceberg", "import pyspark", "No JVM in floe_iceberg"),
    ],
)
def test_a_planted_import_breaks_its_contract(tmp_path: Path, package: str, planted: str, contract: str) -> None:
    shutil.copytree(ROOT / "packages", tmp_path / "packages", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    module = tmp_path / "packages" / package / "src" / package.replace("-", "_") / "planted.py"
    module.write_text(f"{planted}\n")
    linted = _lint(tmp_path)
    assert linted.returncode == 1, linted.stdout
    assert re.search(rf"{contract}.*BROKEN", linted.stdout)
    module.unlink()
    assert _lint(tmp_path).returncode == 0


@pytest.mark.parametrize("name", [one for one in PACKAGES if one != "floe-runtime"])
def test_each_package_names_its_api(name: str) -> None:
    module = __import__(name.replace("-", "_"))
    for public in getattr(module, "__all__", []):
        assert getattr(module, public) is not None


@pytest.mark.parametrize("name", ["floe.schema.json", "compiled.schema.json"])
def test_the_published_schemas_are_those_of_the_code(name: str) -> None:
    schema = spec_schema() if name.startswith("floe") else contract_schema()
    assert json.loads((ROOT / "docs" / "reference" / name).read_text()) == schema


def test_no_code_of_floe_reaches_around_spark_connect() -> None:
    """Only the fence does: each of its functions says for which kind of session it is."""
    forbidden = re.compile(r"\b_jvm\b|\b_jsc\b|\bsparkContext\b|\._jdf\b|SparkContext\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / "packages").rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if forbidden.search(line) and path.name not in ("_pyspark.py", "process.py")  # which looks for messages
    ]
    assert found == []
