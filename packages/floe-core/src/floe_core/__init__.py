"""floe.yaml, the compiler and its contract, identifiers, plugin ports, errors and telemetry: no engine."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floe_core.compiler import compile_project
    from floe_core.config import CompiledArtifacts, TableCheck
    from floe_core.errors import FloeError, FloeStorageError
    from floe_core.identifiers import Namespace, TableIdentifier, TableSlice
    from floe_core.models import CommitStrategy, PartitionTransform, PartitionTransformType, WriteMode

__version__ = version("floe-core")

__all__ = [
    "CommitStrategy",
    "CompiledArtifacts",
    "FloeError",
    "FloeStorageError",
    "Namespace",
    "PartitionTransform",
    "PartitionTransformType",
    "TableCheck",
    "TableIdentifier",
    "TableSlice",
    "WriteMode",
    "__version__",
    "compile_project",
]

_MODULES = {
    "CommitStrategy": "models",
    "CompiledArtifacts": "config",
    "FloeError": "errors",
    "FloeStorageError": "errors",
    "Namespace": "identifiers",
    "PartitionTransform": "models",
    "PartitionTransformType": "models",
    "TableCheck": "config",
    "TableIdentifier": "identifiers",
    "TableSlice": "identifiers",
    "WriteMode": "models",
    "compile_project": "compiler",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: `floe --help` needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
