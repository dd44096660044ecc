"""Find a Java that Spark can run on. Standard library only: `make` runs this file before anything is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["MINIMUM_JAVA", "java_executable", "java_problem", "java_version"]

MINIMUM_JAVA = 17

_ADVICE = (
    "install Java 17, 21 or 25 (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) and, if it is not on the PATH, point JAVA_HOME at it."
)


def java_executable() -> str | None:
    """The java that Spark will start: JAVA_HOME first, then the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        return str(candidate) if candidate.is_file() else None
    return shutil.which("java")


def java_version(executable: str) -> int | None:
    """The major version, or None if the program does not report one."""
    try:
        answer = subprocess.run(  # noqa: S603 - the path is the user's own Java
            [executable, "-version"], capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


def java_problem() -> str | None:
    """Why Spark cannot run on this machine's Java, in one sentence, or None."""
    executable = java_executable()
    if executable is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, but there is no bin/java in it" if home else "no Java was found"
        return f"Spark needs Java {MINIMUM_JAVA} or newer and {where}: {_ADVICE}"
    version = java_version(executable)
    if version is None:
        return f"Spark needs Java {MINIMUM_JAVA} or newer and {executable} does not work: {_ADVICE}"
    if version < MINIMUM_JAVA:
        return f"Spark needs Java {MINIMUM_JAVA} or newer and {executable} is Java {version}: {_ADVICE}"
    return None


if __name__ == "__main__":
    problem = java_problem()
    if problem:
        sys.stderr.write(problem + "\n")
        sys.exit(1)
