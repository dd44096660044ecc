"""Environments of peers, made on demand: each needs other releases than Floe is built on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from benchmarks.worker import ROOT

__all__ = ["DUCKDB", "PEER", "duckdb_python", "peer_python"]

# What the peer is; what it shares with Floe, such as Dagster and Arrow, has the version of requirements.lock.
PEER = (
    "dagster-iceberg==0.3.14",
    "pyiceberg[pyarrow,sql-sqlite]==0.11.1",
    "pyiceberg-core==0.8.0",
    "pendulum==3.3.0",
    "cachetools==6.2.6",  # the last ones that PyIceberg 0.11 takes
    "rich==14.3.4",
)
# DuckDB's own Iceberg reader: the newest DuckDB that PyPI has the extension for.
DUCKDB = (
    "duckdb==1.5.5",
    "duckdb-extensions==1.5.5",
    "duckdb-extension-avro==1.5.5",
    "duckdb-extension-iceberg==1.5.5",
    "pyarrow",
    "pytz",
)


def peer_python() -> Path:
    """The interpreter, with exactly these packages."""
    return _python("peer", PEER)


def duckdb_python() -> Path:
    """The interpreter with DuckDB's own Iceberg reader."""
    return _python("duckdb", DUCKDB)


def _python(name: str, packages: tuple[str, ...]) -> Path:
    folder = ROOT / ".bench" / name
    python = folder / "bin" / "python"
    shared = _shared(packages)
    wanted = "\n".join([*packages, *shared])
    stamp = folder / "wanted.txt"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    uv = str(ROOT / ".venv" / "bin" / "uv")
    ours = str(ROOT / ".venv" / "bin" / "python")
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", ours, str(folder)], check=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(shared), encoding="utf-8")
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), "-c", str(constraints)]
    subprocess.run([*install, *packages], check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return python


def _shared(packages: tuple[str, ...]) -> list[str]:
    """The versions in Floe's lock, of what the environment does not pin itself."""
    own = {re.split(r"[\[=]", one)[0] for one in packages if "==" in one}
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    found = re.findall(r"^([a-z0-9._-]+)(==\S+(?: ; [^\\\n]+)?)", lock, flags=re.MULTILINE)
    return [f"{name}{rest}".strip() for name, rest in found if name not in own]
