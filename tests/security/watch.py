"""What a call touches: files opened for writing, processes, imports, connections and deletions, by an audit hook."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["watching"]

_CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_PROCESSES = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "pty.spawn",
)
_OTHERS = (
    "exec",
    "shutil.rmtree",
    "shutil.move",
    "shutil.copyfile",
    "webbrowser.open",
    "ctypes.dlopen",
    "code.__new__",
)
# Codecs and the lazy parts of libraries that were loaded already.
_EXPECTED_IMPORTS = ("encodings", "pyiceberg", "pyarrow", "pydantic", "urllib3", "requests", "idna", "floe_", "fsspec")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_SEEN: list[str] | None = None
_ADDRESS: tuple[str, int] | None = None
_INSTALLED = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _SEEN is None:
        return
    if event in _CHANGES or event in _PROCESSES or event in _OTHERS:
        _SEEN.append(f"{event} {arguments!r:.200}")
    elif event == "open" and _is_write(arguments):
        _SEEN.append(f"open {arguments!r:.200}")
    elif event == "import" and not str(arguments[0]).startswith(_EXPECTED_IMPORTS):
        _SEEN.append(f"import {arguments[0]}")
    elif event == "socket.connect" and arguments[1] != _ADDRESS:
        _SEEN.append(f"connect {arguments[1]!r}")


def _is_write(arguments: tuple[Any, ...]) -> bool:
    _path, mode, flags = arguments
    if isinstance(mode, str):
        return any(one in mode for one in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITES)


@contextmanager
def watching(address: tuple[str, int]) -> Iterator[list[str]]:
    """What happens inside, in this process and all of its threads; connections to the address are expected."""
    global _SEEN, _ADDRESS, _INSTALLED
    if not _INSTALLED:
        sys.addaudithook(_hook)
        _INSTALLED = True
    seen: list[str] = []
    _SEEN, _ADDRESS = seen, address
    loaded = set(sys.modules)
    try:
        yield seen
    finally:
        _SEEN = None
        # importlib.import_module raises no event, only the import statement does.
        new = sorted(name for name in set(sys.modules) - loaded if not name.startswith(_EXPECTED_IMPORTS))
        seen.extend(f"module {name}" for name in new)
