"""The built wheels, away from the repository."""

from __future__ import annotations

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


def environment(folder: Path, wheels: Path, *packages: str) -> Path:
    """A new virtual environment with some of the wheels, at the versions of the lock."""
    uv = Path(sys.executable).parent / "uv"
    run(uv, "venv", "--quiet", "--python", sys.executable, folder, cwd=folder.parent)
    constraints = folder / "constraints.txt"
    locked = (ROOT / "requirements.lock").read_text().splitlines()
    constraints.write_text("\n".join(line.removesuffix(" \\") for line in locked if "==" in line and line[0].isalnum()))
    chosen = [
        f"{name}{extra} @ {next(wheels.glob(name.replace('-', '_') + '-*.whl')).as_uri()}"
        for name, extra in ((one.split("[")[0], one[len(one.split("[")[0]) :]) for one in packages)
    ]
    run(
        uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python", "--find-links", wheels,
        "--constraint", constraints, *chosen, cwd=folder.parent,
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
