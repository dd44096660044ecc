"""The doors of each package, pinned: what its root and its rooms export. Packages use nothing else of each other.

After a change that is meant: `python -m tests.house.test_public_api` writes public_api.txt again.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from pkgutil import iter_modules

import pytest

ROOT = Path(__file__).parents[2]
PINNED = Path(__file__).with_name("public_api.txt")
PACKAGES = ("floe_core", "floe_iceberg", "floe_polaris", "floe_spark", "floe_dagster", "floe_runtime")
# Names that the guides and the user stories take from a package root.
ADVERTISED = {
    "floe_core": {"CompiledArtifacts", "Namespace", "PartitionTransform", "TableIdentifier", "TableSlice", "WriteMode"},
    "floe_iceberg": {"AddColumn", "DropColumn", "IcebergTableManager", "Lake", "Maintenance", "RenameColumn"},
    "floe_polaris": {"PolarisCatalog", "create_catalog"},
    "floe_spark": {"read", "write"},
    "floe_dagster": {"IcebergIOManager", "LakeResource", "create_definitions"},
    "floe_runtime": {"connect"},
}


def doors(package: str) -> Iterator[str]:
    """The root of a package, and the modules and rooms below it that export names."""
    yield package
    for found in iter_modules(importlib.import_module(package).__path__):
        if not found.name.startswith("_") and found.name not in ("cli", "templates"):
            yield f"{package}.{found.name}"


def exported(door: str) -> list[str]:
    return sorted(getattr(importlib.import_module(door), "__all__", ()))


def lines_of(package: str) -> list[str]:
    return [f"{door}: {', '.join(exported(door))}" for door in doors(package) if exported(door)]


def source_of(package: str) -> Path:
    return ROOT / "packages" / package.replace("_", "-") / "src" / package


def foreign_imports(package: str) -> Iterator[tuple[Path, str, str]]:
    """What the modules of a package import from the other packages."""
    for path in sorted(source_of(package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                other = node.module.partition(".")[0]
                if other in PACKAGES and other != package:
                    yield from ((path.relative_to(ROOT), node.module, one.name) for one in node.names)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_doors_of_a_package_are_pinned(package: str) -> None:
    pinned = PINNED.read_text(encoding="utf-8").splitlines()
    assert lines_of(package) == [line for line in pinned if line.partition(":")[0].partition(".")[0] == package]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_use_each_other_through_doors_only(package: str) -> None:
    around = [
        f"{path}: from {module} import {name}"
        for path, module, name in foreign_imports(package)
        if "._" not in module  # the fences, which a test of their own is about
        and (module.count(".") > 1 or (name not in exported(module) and f"{module}.{name}" not in doors(module)))
    ]
    assert around == []


@pytest.mark.parametrize("package", PACKAGES)
def test_what_guides_and_stories_use_comes_from_the_root(package: str) -> None:
    assert set(exported(package)) >= ADVERTISED[package]


if __name__ == "__main__":
    PINNED.write_text("\n".join(line for one in PACKAGES for line in lines_of(one)) + "\n", encoding="utf-8")
