"""What is pinned: the Python packages of requirements.lock and the jars of floe_core.jvm."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from floe_core.jvm import JAR_SHA256

__all__ = ["LOCK", "Pinned", "pinned_jars", "pinned_packages"]

LOCK = Path(__file__).parents[1] / "requirements.lock"


@dataclass(frozen=True, order=True)
class Pinned:
    """One version of a package or jar, and the digests that are accepted for it."""

    ecosystem: str
    name: str
    version: str
    sha256: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def pinned_packages(lock: Path = LOCK) -> list[Pinned]:
    """Every version in the lock, those for other platforms and Pythons included."""
    found = []
    for line in lock.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        requirement = Requirement(line.partition("--hash")[0].strip())
        (pin,) = requirement.specifier
        digests = tuple(sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", line)))
        found.append(Pinned("PyPI", canonicalize_name(requirement.name), pin.version, digests))
    return sorted(found)


def pinned_jars() -> list[Pinned]:
    """Every jar that Floe brings, for all versions of Spark."""
    return sorted(
        Pinned("Maven", coordinate.rpartition(":")[0], coordinate.rpartition(":")[2], (digest,))
        for coordinate, digest in JAR_SHA256.items()
    )
