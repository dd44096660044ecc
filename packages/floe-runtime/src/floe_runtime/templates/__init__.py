"""Project templates, and the catalog blocks of a new floe.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from floe_core.config import write_spec_schema
from floe_core.disk import writing
from floe_core.errors import ConfigurationError

__all__ = ["copy_template", "create_project"]

_HERE = Path(__file__).parent
_GENERATED = {"__pycache__", ".floe"}


def create_project(template: str, folder: Path, *, name: str, catalog: str) -> None:
    """Copy a template as a project of this name, on this catalog; `sql` is the default of floe.yaml."""
    block = "" if catalog == "sql" else (_HERE / "catalogs" / f"{catalog}.yaml").read_text(encoding="utf-8")
    text = name if yaml.safe_load(name) == name else f'"{name}"'  # 2026 and null are names, but no text in YAML
    copy_template(template, folder, {f"name: {template}\n": f"name: {text}\n{block}"})


def copy_template(name: str, folder: Path, replacements: Mapping[str, str]) -> None:
    """Copy a template, apply the replacements to its floe.yaml, and write the schema that floe.yaml refers to."""
    for source in sorted((_HERE / name).rglob("*")):
        path = source.relative_to(_HERE / name)
        if source.is_file() and not _GENERATED & set(path.parts):
            _copy(source, folder / path)
    spec = folder / "floe.yaml"
    text = spec.read_text(encoding="utf-8")
    for old, new in replacements.items():
        text = text.replace(old, new)
    spec.write_text(text, encoding="utf-8")
    write_spec_schema(folder)


def _copy(source: Path, target: Path) -> None:
    try:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as copy:
                copy.write(source.read_bytes())
    except FileExistsError as exc:  # created by another process since the folder was checked
        raise ConfigurationError(f"{exc.filename or target} exists already; choose a new or empty folder") from None
