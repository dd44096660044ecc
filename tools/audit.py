"""Known vulnerabilities of what is pinned, by an export of OSV, without a network.

python -m tools.audit FILE [--lock requirements.lock]

FILE is a zip of OSV records (as OSV publishes one for each ecosystem), a folder of them, or one JSON file with a record
or a list of records. Exit codes: 0 none, 1 some, 2 the database cannot be used.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tools.locked import LOCK, Pinned, pinned_jars, pinned_packages

__all__ = ["is_affected", "main", "records"]


def records(database: Path) -> Iterator[dict[str, Any]]:
    """Every OSV record of the database that is not withdrawn."""
    for text in _documents(database):
        found = json.loads(text)
        for record in found if isinstance(found, list) else [found]:
            if not record.get("withdrawn"):
                yield record


def _documents(database: Path) -> Iterator[bytes]:
    if database.is_dir():
        yield from (path.read_bytes() for path in sorted(database.rglob("*.json")))
    elif zipfile.is_zipfile(database):
        with zipfile.ZipFile(database) as archive:
            yield from (archive.read(name) for name in sorted(archive.namelist()) if name.endswith(".json"))
    else:
        yield database.read_bytes()


def is_affected(version: str, affected: dict[str, Any]) -> bool:
    """Does the record cover the version? One that cannot be compared counts as covered."""
    if version in affected.get("versions", ()):
        return True
    ranges = [one for one in affected.get("ranges", ()) if one.get("type") in ("ECOSYSTEM", "SEMVER")]
    try:
        return any(_in_range(_version(version), one["events"]) for one in ranges)
    except InvalidVersion:
        return True


def _version(text: str) -> Version:
    """A version to compare; of one that only Maven understands (42.2.28.jre7), its numbers."""
    try:
        return Version(text)
    except InvalidVersion:
        numbers = re.match(r"\d+(\.\d+)*", text)
        if numbers is None:
            raise
        return Version(numbers[0])


def _in_range(version: Version, events: Sequence[dict[str, str]]) -> bool:
    """OSV's own rule: the last event at or before the version decides."""
    marks = [(_version(at), kind) for event in events for kind, at in event.items() if kind != "limit"]
    inside = False
    for at, kind in sorted(marks, key=lambda mark: (mark[0], mark[1] == "introduced")):
        if kind == "introduced" and version >= at:
            inside = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            inside = False
    return inside


def _findings(pinned: Sequence[Pinned], database: Path) -> tuple[list[str], set[str]]:
    """A line for each vulnerability, and the ecosystems that the database covers."""
    by_name: dict[tuple[str, str], list[Pinned]] = {}
    for one in pinned:
        by_name.setdefault((one.ecosystem, one.name), []).append(one)
    lines, covered = set(), set()
    for record in records(database):
        for affected in record.get("affected", ()):
            if "package" not in affected:  # a Git repository, which is not pinned here
                continue
            ecosystem, name = affected["package"]["ecosystem"], affected["package"]["name"]
            covered.add(ecosystem)
            name = canonicalize_name(name) if ecosystem == "PyPI" else name
            names = ", ".join([record["id"], *record.get("aliases", ())])
            for one in by_name.get((ecosystem, name), ()):
                if is_affected(one.version, affected):
                    lines.add(f"{one}: {names}: {record.get('summary') or 'no summary'}")
    return sorted(lines), covered


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Look for known vulnerabilities in an export of OSV.")
    parser.add_argument("database", type=Path)
    parser.add_argument("--lock", type=Path, default=LOCK)
    given = parser.parse_args(arguments)
    pinned = [*pinned_packages(given.lock), *pinned_jars()]
    try:
        lines, covered = _findings(pinned, given.database)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        print(f"error: {given.database} is not an export of OSV: {type(exc).__name__}: {exc}", file=sys.stderr)
        return 2
    checked = [one for one in pinned if one.ecosystem in covered]
    if not checked:
        print(f"error: {given.database} has no advisory for PyPI or Maven; nothing was checked", file=sys.stderr)
        return 2
    for line in lines:
        print(line)
    unchecked = sorted({one.ecosystem for one in pinned} - covered)
    print(
        f"{len(lines)} known vulnerabilities in {len(checked)} pinned versions"
        + (f"; not checked, because the database does not cover it: {', '.join(unchecked)}" if unchecked else "")
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
