"""The JSON Schemas Floe publishes: of floe.yaml, for editors, and of the compiled contract."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.config.spec import FloeSpec
from floe_core.disk import writing
from floe_core.security.private_files import create_private, make_folder

__all__ = ["contract_schema", "schema_path", "spec_schema", "write_spec_schema"]


def spec_schema() -> dict[str, Any]:
    """The schema of floe.yaml, its environments included."""
    schema = FloeSpec.model_json_schema()
    overlay = copy.deepcopy({key: value for key, value in schema.items() if key in ("properties", "type")})
    # An overlay may hold any part of a section: required keys are checked after it is merged over the rest.
    overlay["properties"] = {
        name: value if "$ref" not in str(value) else {"type": "object"} for name, value in overlay["properties"].items()
    }
    overlay["additionalProperties"] = False
    schema["properties"]["environments"] = {
        "type": "object",
        "description": "overlays, chosen by --env or FLOE_ENV",
        "additionalProperties": overlay,
    }
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "floe.yaml"
    return schema


def contract_schema() -> dict[str, Any]:
    """The schema of `.floe/compiled.json`."""
    schema = CompiledArtifacts.model_json_schema(mode="serialization")
    # Of the docstring, only the prose: the attributes have descriptions of their own, and the example is Python.
    if "description" in schema:  # not under python -OO
        schema["description"] = schema["description"].partition("\n\nAttributes:")[0]
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def schema_path(root: Path) -> Path:
    """Where the `$schema` line of a project's floe.yaml points to."""
    return root / ".floe" / "floe.schema.json"


def write_spec_schema(root: Path) -> Path:
    """Write the schema of floe.yaml to where the editor of a project finds it."""
    path = schema_path(root)
    text = json.dumps(spec_schema(), indent=2, sort_keys=True) + "\n"
    with writing(path):
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            make_folder(path.parent)
            create_private(path)
            path.write_text(text, encoding="utf-8")
    return path
