"""The releases of PyIceberg, PySpark and Dagster that Floe supports, and the private names it needs of them.

Floe patches these libraries and uses some of their private names, which change without notice. Each package has one
fence that does so: `floe_iceberg/_pyiceberg/`, `floe_spark/_pyspark.py`, `floe_dagster/_dagster/`. A fence calls
`check_version` first. No engine is imported here.
"""

from __future__ import annotations

import dis
import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from types import FunctionType

from floe_core.errors import IncompatibleLibraryError

__all__ = [
    "SUPPORTED",
    "UNTESTED_VARIABLE",
    "Releases",
    "check_version",
    "incompatible",
    "installed_version",
    "is_supported",
    "private_names",
    "require_members",
]

# Set to 1, it lifts the version bounds; patches and private names are verified all the same.
UNTESTED_VARIABLE = "FLOE_UNTESTED_VERSIONS"


@dataclass(frozen=True)
class Releases:
    """From `lowest` to below `below`; `tested` is the one in requirements.lock."""

    lowest: str
    below: str
    tested: str

    def of(self, library: str) -> str:
        """As a requirement of pip."""
        return f"{library}>={self.lowest},<{self.below}"


# The same bounds as in the pyproject.toml files.
SUPPORTED = {
    "dagster": Releases("1.13", "1.14", tested="1.13.27"),
    "pyiceberg": Releases("0.12", "0.13", tested="0.12.0"),
    "pyspark": Releases("4.1", "4.2", tested="4.1.4"),
}
_PRE_RELEASE = re.compile(r"\d[._-]?(a|b|c|rc|alpha|beta|pre|preview|dev)(?![a-z])", re.IGNORECASE)


def check_version(library: str) -> None:
    """Refuse a release outside of the bounds, which `pip install --no-deps` lets through."""
    if is_supported(library) or os.environ.get(UNTESTED_VARIABLE) == "1":
        return
    wanted = SUPPORTED[library].of(library)
    raise IncompatibleLibraryError(
        f"{library} {installed_version(library) or '(of unknown version)'} is installed, and this Floe supports "
        f"{wanted}: pip install '{wanted}', or install the newest Floe. {UNTESTED_VARIABLE}=1 tries it all the same",
        name=library,
    )


def installed_version(library: str) -> str | None:
    """The version by its package metadata, or by the module where it has none (PySpark of a Spark distribution)."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        found = getattr(sys.modules.get(library), "__version__", None)
        return found if isinstance(found, str) else None


def is_supported(library: str) -> bool:
    """Is the installed release within the bounds, whatever the environment says?"""
    version = installed_version(library)
    if version is None:
        return False
    bounds = SUPPORTED[library]
    return _order(bounds.lowest) <= _order(version) and _order(version)[0] < _order(bounds.below)[0]


def _order(version: str) -> tuple[tuple[int, ...], bool]:
    """The first three numbers, and whether it is a final release."""
    numbers = [int(one) for one in re.findall(r"\d+", (re.match(r"[\d.]*", version) or [""])[0])]
    return tuple([*numbers, 0, 0, 0][:3]), _PRE_RELEASE.search(version) is None


def incompatible(library: str, problem: str, promise: str) -> IncompatibleLibraryError:
    """The error for a library whose code is not what Floe was written for: what differs, and what would break."""
    releases = SUPPORTED[library]
    supported = is_supported(library)
    wanted = f"{library}=={releases.tested}" if supported else releases.of(library)
    return IncompatibleLibraryError(
        f"{library} {installed_version(library) or '(of unknown version)'}: {problem}. Floe depends on it: {promise}. "
        f"Install {'the release that Floe is tested with' if supported else 'a supported release'}: pip install "
        f"'{wanted}', or install the newest Floe",
        name=library,
    )


@contextmanager
def private_names(library: str, promise: str) -> Iterator[None]:
    """Imports of private names: one that is missing is an IncompatibleLibraryError, and not a plain ImportError."""
    try:
        yield
    except IncompatibleLibraryError:
        raise
    except ModuleNotFoundError as exc:
        if exc.name is None or not exc.name.startswith(f"{library}."):  # not installed, or a dependency of it is not
            raise
        raise incompatible(library, f"there is no module {exc.name}", promise) from exc
    except ImportError as exc:
        found = re.search(r"cannot import name '(\w+)'", str(exc))
        if exc.name is None or found is None or exc.name.split(".")[0] != library:
            raise
        raise incompatible(library, f"there is no {exc.name}.{found[1]}", promise) from exc


def require_members(library: str, owner: type, *names: str, promise: str) -> None:
    """Refuse a class without these private members: an override that nothing calls would go unnoticed."""
    for name in names:
        if not _has(owner, name):
            problem = f"{owner.__module__}.{owner.__qualname__} has no {name}"
            raise incompatible(library, problem, promise)


def _has(owner: type, name: str) -> bool:
    """A method, a declared attribute, or one that a method sets."""
    return any(
        name in one.__dict__ or name in inspect.get_annotations(one) or name in _attributes_set(one)
        for one in owner.__mro__
    )


def _attributes_set(owner: type) -> set[str]:
    functions = (inspect.unwrap(one).__code__ for one in owner.__dict__.values() if isinstance(one, FunctionType))
    return {
        str(step.argval) for code in functions for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"
    }
