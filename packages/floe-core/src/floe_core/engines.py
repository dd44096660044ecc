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

# 1 disables the version bounds; patches and private names are still verified.
UNTESTED_VARIABLE = "FLOE_UNTESTED_VERSIONS"


@dataclass(frozen=True)
class Releases:
    """Releases from `lowest` up to, not including, `below`; `tested` is the one in requirements.lock."""

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
    """Refuse a release outside the bounds, which `pip install --no-deps` does not check."""
    if is_supported(library) or os.environ.get(UNTESTED_VARIABLE) == "1":
        return
    wanted = SUPPORTED[library].of(library)
    raise IncompatibleLibraryError(
        f"{library} {installed_version(library) or '(of unknown version)'} is installed, and this Floe supports "
        f"{wanted}: pip install '{wanted}', or install the newest Floe. {UNTESTED_VARIABLE}=1 tries it all the same",
        name=library,
    )


def installed_version(library: str) -> str | None:
    """The version from the package metadata, or from the module if it has none (PySpark of a Spark distribution)."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        version = getattr(sys.modules.get(library), "__version__", None)
        return version if isinstance(version, str) else None


def is_supported(library: str) -> bool:
    """Whether the installed release is within the bounds; ignores the environment variable."""
    version = installed_version(library)
    if version is None:
        return False
    bounds = SUPPORTED[library]
    return _order(bounds.lowest) <= _order(version) and _order(version)[0] < _order(bounds.below)[0]


def _order(version: str) -> tuple[tuple[int, ...], bool]:
    """The first three numbers, and whether it is a final release."""
    numbers = [int(number) for number in re.findall(r"\d+", (re.match(r"[\d.]*", version) or [""])[0])]
    return tuple([*numbers, 0, 0, 0][:3]), _PRE_RELEASE.search(version) is None


def incompatible(library: str, problem: str, promise: str) -> IncompatibleLibraryError:
    """The error for a library whose code differs from what Floe expects: the difference, and what depends on it."""
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
    """Around imports of private names: a missing one raises IncompatibleLibraryError instead of ImportError."""
    try:
        yield
    except IncompatibleLibraryError:
        raise
    except ModuleNotFoundError as exc:
        if exc.name is None or not exc.name.startswith(f"{library}."):  # it or one of its dependencies is not installed
            raise
        raise incompatible(library, f"there is no module {exc.name}", promise) from exc
    except ImportError as exc:
        missing = re.search(r"cannot import name '(\w+)'", str(exc))
        if exc.name is None or missing is None or exc.name.split(".")[0] != library:
            raise
        raise incompatible(library, f"there is no {exc.name}.{missing[1]}", promise) from exc


def require_members(library: str, owner: type, *names: str, promise: str) -> None:
    """Refuse a class without these private members: an override of a missing one would never be called."""
    for name in names:
        if not _has(owner, name):
            problem = f"{owner.__module__}.{owner.__qualname__} has no {name}"
            raise incompatible(library, problem, promise)


def _has(owner: type, name: str) -> bool:
    """Whether it is a method, a declared attribute, or an attribute that a method sets."""
    return any(
        name in base.__dict__ or name in inspect.get_annotations(base) or _sets_attribute(base, name)
        for base in owner.__mro__
    )


def _sets_attribute(base: type, name: str) -> bool:
    functions = [inspect.unwrap(member) for member in base.__dict__.values() if isinstance(member, FunctionType)]
    return any(
        instruction.opname == "STORE_ATTR" and instruction.argval == name
        for function in functions
        if name in function.__code__.co_names  # else it is not worth being disassembled
        for instruction in dis.get_instructions(function)
    )
