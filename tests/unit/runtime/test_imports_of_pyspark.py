"""Which projects `floe run` starts Spark for before their assets: those whose own modules import PySpark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from floe_core.compiler import compile_project
from floe_core.errors import ConfigurationError
from floe_runtime.runs.pipeline import open_pipeline

ASSET = """
import pyarrow as pa
from dagster import asset
from floe_dagster import create_definitions

@asset(metadata={"write_mode": "overwrite"})
def orders() -> pa.Table:
    return pa.table({"id": [1]})

defs = create_definitions([orders])
"""


def imports_pyspark(root: Path, definitions: str) -> bool:
    (root / "floe.yaml").write_text("name: shop\n")
    (root / "definitions.py").write_text(definitions)
    artifacts = compile_project(root).artifacts
    artifacts.write()
    with open_pipeline(artifacts) as pipeline:
        return pipeline.imports_pyspark


@pytest.mark.parametrize(
    "line", ["from pyspark.sql import SparkSession", "import pyspark", "from pyspark.sql import functions"]
)
def test_a_module_that_imports_pyspark_is_found(tmp_path: Path, line: str) -> None:
    assert imports_pyspark(tmp_path, f"{line}\n{ASSET}")


def test_a_project_without_pyspark_starts_no_spark(tmp_path: Path) -> None:
    assert not imports_pyspark(tmp_path, ASSET)


def test_packages_of_an_environment_in_the_project_are_not_the_projects_own(tmp_path: Path) -> None:
    packages = tmp_path / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "package_with_pyspark.py").write_text("from pyspark.sql import SparkSession\n")
    path = f"import sys\nsys.path.insert(0, {str(packages)!r})\nimport package_with_pyspark\n"
    assert not imports_pyspark(tmp_path, f"{path}{ASSET}")


def test_a_missing_pyspark_is_answered_with_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyspark", "pyspark.sql"):  # as if it were not installed
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigurationError, match=r"definitions\.py:1.*\n.*\n.*pip install floe-spark"):
        imports_pyspark(tmp_path, f"from pyspark.sql import DataFrame\n{ASSET}")
