"""ARCHITECTURE.md names every room and every module outside of one, and every path on it exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGES = sorted((ROOT / "packages").glob("*/src/*/__init__.py"))


def folders() -> Iterator[Path]:
    for package in PACKAGES:
        yield package.parent
        yield from (one.parent for one in package.parent.glob("*/__init__.py"))


def modules_in(folder: Path) -> list[str]:
    return [one.stem for one in sorted(folder.glob("*.py")) if one.stem != "__init__"]


def test_every_room_and_every_root_module_is_on_the_map() -> None:
    missing = []
    for folder in folders():
        name = "/".join(folder.parts[folder.parts.index("src") + 1 :])
        if "/" in name:
            missing += [] if f"| `{name}` |" in PAGE else [name]
            continue
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| **{name}** |"))
        missing += [f"{name}.{module}" for module in modules_in(folder) if f"`{module}`" not in row]
    assert missing == []


def test_no_folder_has_more_than_fifteen_modules() -> None:
    assert {str(folder): len(modules_in(folder)) for folder in folders() if len(modules_in(folder)) > 15} == {}


def test_every_path_on_the_page_exists() -> None:
    named = re.findall(r"`(floe_\w+/[\w/]+(?:\.py)?)/?`", PAGE)
    sources = {package.parent.name: package.parent.parent for package in PACKAGES}
    assert named
    assert [one for one in named if not (sources[one.partition("/")[0]] / one).exists()] == []
