"""What floe_core offers, and what it must not drag in."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

import pytest

import floe_core

MODULES = ["floe_core", *(f"floe_core.{found.name}" for found in iter_modules(floe_core.__path__))]


def as_ruff_sorts(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("name", MODULES)
def test_the_api_of_each_module_is_named_and_sorted(name: str) -> None:
    module = import_module(name)
    assert module.__all__
    assert list(module.__all__) == sorted(set(module.__all__), key=as_ruff_sorts)
    assert [one for one in module.__all__ if getattr(module, one, None) is None] == []
    assert module.__doc__


def test_importing_floe_core_imports_no_engine() -> None:
    script = (
        "import sys\n"
        "from importlib import import_module\n"
        "for name in sys.argv[1:]: import_module(name)\n"
        "engines = {'pyiceberg', 'pyarrow', 'pyspark', 'dagster', 'pandas', 'polars', 'grpc', 'opentelemetry.sdk'}\n"
        "assert not engines & set(sys.modules), engines & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script, *MODULES], check=True)


def test_compiling_imports_no_engine(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("project")
    (root / "floe.yaml").write_text("name: shop\n")
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from floe_core.compiler import compile_project\n"
        "compile_project(Path(sys.argv[1])).artifacts.write()\n"
        "engines = {'pyiceberg', 'pyarrow', 'pyspark', 'dagster'}\n"
        "assert not engines & set(sys.modules), engines & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(root)], check=True)
