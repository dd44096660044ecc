"""The environment of the peer, made on demand: it needs a PyIceberg before the one that Floe is built on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from benchmarks.worker import ROOT

__all__ = ["PEER", "peer_python"]

# What the peer is; what it shares with Floe, such as Dagster and Arrow, has the version of requirements.lock.
PEER = (
    "dagster-iceberg==0.3.14",
    "pyiceberg[pyarrow,sql-sqlite]==0.11.1",
    "pyiceberg-core==0.8.0",
    "pendulum==3.3.0",
    "cachetools==6.2.6",  # the last ones that PyIceberg 0.11 takes
    "rich==14.3.4",
)
_OWN = {re.split(r"[\[=]", one)[0] for one in PEER}
_FOLDER = ROOT / ".bench" / "peer"


def peer_python() -> Path:
    """The interpreter, with exactly these packages."""
    python = _FOLDER / "bin" / "python"
    wanted = "\n".join([*PEER, *_shared()])
    stamp = _FOLDER / "wanted.txt"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    uv = str(ROOT / ".venv" / "bin" / "uv")
    ours = str(ROOT / ".venv" / "bin" / "python")
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", ours, str(_FOLDER)], check=True)
    constraints = _FOLDER / "constraints.txt"
    constraints.write_text("\n".join(_shared()), encoding="utf-8")
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), "-c", str(constraints)]
    subprocess.run([*install, *PEER], check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return python


def _shared() -> list[str]:
    """The versions in Floe's lock."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    found = re.findall(r"^([a-z0-9._-]+)(==\S+(?: ; [^\\\n]+)?)", lock, flags=re.MULTILINE)
    return [f"{name}{rest}".strip() for name, rest in found if name not in _OWN]
