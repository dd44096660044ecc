"""The built wheels, away from the repository."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
PACKAGES = sorted((ROOT / "packages").iterdir())


def run(*command: str | Path, cwd: Path) -> str:
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
        # Neither the repository nor its environment may help.
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(Path.home()),
            "LANG": "C.UTF-8",
            **_registry_settings(),
        },
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"
    return ran.stdout


def _registry_settings() -> dict[str, str]:
    import os

    return {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "UV_", "SSL_", "JAVA_HOME"))}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for package in PACKAGES:
        run(
            sys.executable, "-m", "build", "--quiet", "--no-isolation", "--wheel", "--outdir", folder, package, cwd=ROOT
        )
    assert len(list(folder.glob("*.whl"))) == len(PACKAGES)
    return folder


def constraints(file: Path) -> None:
    """The versions of the lock, for pip and uv."""
    locked = (ROOT / "requirements.lock").read_text().splitlines()
    file.write_text("\n".join(line.removesuffix(" \\") for line in locked if "==" in line and line[0].isalnum()))


def environment(folder: Path, wheels: Path, *packages: str) -> Path:
    """A new virtual environment with some of the wheels, at the versions of the lock."""
    uv = Path(sys.executable).parent / "uv"
    run(uv, "venv", "--quiet", "--python", sys.executable, folder, cwd=folder.parent)
    constraints(folder / "constraints.txt")
    chosen = [
        f"{name}{extra} @ {next(wheels.glob(name.replace('-', '_') + '-*.whl')).as_uri()}"
        for name, extra in ((one.split("[")[0], one[len(one.split("[")[0]) :]) for one in packages)
    ]
    run(
        uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python", "--find-links", wheels,
        "--constraint", folder / "constraints.txt", *chosen, cwd=folder.parent,
    )  # fmt: skip
    return folder / "bin"


def test_compile_needs_only_floe_core_and_floe_runtime(wheels: Path, tmp_path: Path) -> None:
    bin_folder = environment(tmp_path / "small", wheels, "floe-core", "floe-runtime")
    project = tmp_path / "shop"
    project.mkdir()
    (project / "floe.yaml").write_text("name: shop\n")
    assert "compiled shop" in run(bin_folder / "floe", "compile", cwd=project)
    listed = run(bin_folder / "python", "-c", "import importlib.util as u; print(u.find_spec('pyspark'))", cwd=project)
    assert listed.strip() == "None"


def test_the_demo_runs_from_the_wheels_alone(wheels: Path, tmp_path: Path) -> None:
    names = [package.name for package in PACKAGES if package.name != "floe-runtime"]
    bin_folder = environment(tmp_path / "all", wheels, *names, "floe-runtime[all]")
    away = tmp_path / "away"
    away.mkdir()
    told = run(bin_folder / "floe", "demo", "--rows", "20000", cwd=away)
    assert "gold.daily_revenue" in told
    assert (away / "floe-demo" / ".floe" / "warehouse" / "gold").is_dir()


POLARS = """
import polars as pl
from dagster import AssetIn, asset

from floe_dagster import create_definitions


@asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
def orders() -> pl.DataFrame:
    return pl.DataFrame({"id": [1, 2, 3], "amount": [10, 20, 30]})


@asset(key_prefix="gold", ins={"orders": AssetIn(["bronze", "orders"])}, metadata={"write_mode": "overwrite"})
def totals(orders: pl.DataFrame) -> pl.DataFrame:
    return orders.select(pl.col("amount").sum())


defs = create_definitions([orders, totals])
"""
SPARK = """
from dagster import asset

from floe_dagster import LakeResource, create_definitions


@asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
def numbers(lake: LakeResource):
    return lake.spark.range(3)


defs = create_definitions([numbers])
"""


def test_polars_assets_need_neither_pyspark_nor_java(wheels: Path, tmp_path: Path) -> None:
    bin_folder = environment(tmp_path / "light", wheels, "floe-runtime[polars]")

    def floe(*arguments: str, code: int = 0, cwd: Path = tmp_path / "shop") -> str:
        ran = subprocess.run(
            [str(bin_folder / "floe"), *arguments],
            cwd=cwd,
            env={"PATH": str(bin_folder), "HOME": str(tmp_path), "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == code, ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr
        return ran.stdout + ran.stderr

    python = "import importlib.util as u, shutil; print(u.find_spec('pyspark'), u.find_spec('floe_spark'))"
    assert run(bin_folder / "python", "-c", python, cwd=tmp_path).strip() == "None None"
    floe("init", "shop", cwd=tmp_path)
    (tmp_path / "shop" / "definitions.py").write_text(POLARS)
    assert "gold.totals" in floe("run")
    assert "bronze.orders" in floe("tables", "health")
    assert "2" in floe("maintain", "plan")
    assert floe("sql", "SELECT * FROM gold.totals", "--output", "csv") == '"amount"\n60\n'
    (tmp_path / "shop" / "definitions.py").write_text(SPARK)
    refused = floe("run", code=1)
    assert "pip install floe-spark" in refused
    assert "bronze.numbers" not in floe("tables", "health")


def test_the_first_lines_of_the_readme_install_floe(wheels: Path, tmp_path: Path) -> None:
    """In an empty folder with nothing but Python: `pip` takes Floe from the wheels, and the rest from its index."""
    block = re.search(r"^## Start\n\n```console\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    assert block is not None
    commands = [line.removeprefix("$ ") for line in block[1].splitlines()]
    assert commands[1] == "pip install 'floe-runtime[all]'"
    constraints(tmp_path / "constraints.txt")
    script = "\n".join(
        ["set -e", f"export PIP_FIND_LINKS={wheels} PIP_CONSTRAINT={tmp_path}/constraints.txt", *commands]
    )
    told = run("bash", "-c", script, cwd=tmp_path)
    assert "created the project shop" in told
    assert re.search(r"bronze\.measurements +14,400 ", told)
    assert told.endswith("2 tables\n")
