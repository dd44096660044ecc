"""Project templates."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from floe_core.config import write_spec_schema

__all__ = ["copy_template"]


def copy_template(name: str, folder: Path, replacements: Mapping[str, str]) -> None:
    """Copy a template, apply the replacements to its floe.yaml, and write the schema that floe.yaml refers to."""
    source = Path(__file__).parent / name
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".floe"))
    spec = folder / "floe.yaml"
    text = spec.read_text(encoding="utf-8")
    for old, new in replacements.items():
        text = text.replace(old, new)
    spec.write_text(text, encoding="utf-8")
    write_spec_schema(folder)
