"""floe.yaml, the compiler and its contract, identifiers, plugin ports, errors and telemetry: no engine."""

from importlib.metadata import version

__version__ = version("floe-core")

__all__ = ["__version__"]
