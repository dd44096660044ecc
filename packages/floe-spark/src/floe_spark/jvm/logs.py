"""The log files of Spark processes: one per process, because errors refer to it; the newest are kept."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from floe_core.security import make_folder

__all__ = ["KEPT", "new_log"]

# Each concurrent process has its own, so this exceeds the number of earlier runs that are of interest.
KEPT = 20


def new_log(latest: Path) -> Path:
    """An empty file beside `latest`, which becomes a link to it; only this user may read it."""
    make_folder(latest.parent)
    if latest.is_file() and not latest.is_symlink():  # written before each process had a file of its own
        with suppress(FileNotFoundError):  # another process renamed it
            latest.rename(latest.with_name(f"{latest.stem}-0.log"))
    stamp = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S%f}-{os.getpid()}"
    log = latest.with_name(f"{latest.stem}-{stamp}.log")
    os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    link = latest.with_name(f".{latest.name}-{stamp}")
    with suppress(OSError):  # on a file system without links there is only the file itself, which errors name
        link.symlink_to(log.name)
        link.replace(latest)
    _remove_oldest(latest)
    return log


def _remove_oldest(latest: Path) -> None:
    written: list[tuple[float, Path]] = []
    for path in latest.parent.glob(f"{latest.stem}-*.log"):
        with suppress(OSError):  # another process removed it
            written.append((path.stat().st_mtime, path))
    seen: set[str] = set()  # processes whose newest log was visited
    for number, (_, path) in enumerate(sorted(written, reverse=True)):
        owner = path.stem.rpartition("-")[2]
        in_use = owner not in seen and _runs(owner)
        seen.add(owner)
        if number >= KEPT and not in_use:
            with suppress(OSError):
                path.unlink()


def _runs(pid: str) -> bool:
    """Whether the process runs: it may have written nothing for days, and its next error refers to its log."""
    if not pid.isdecimal() or int(pid) == 0:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
