"""Where `floe dev` listens, and when requests need a token."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from floe_core.errors import ConfigurationError
from floe_runtime.dev.access import access_for, listeners
from floe_runtime.dev.server import WebServerError, wait_for_answer
from floe_runtime.dev.services import ServiceSettings, private_folder, serve

PROXY = "https://lake-3000.example.dev"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOE_DEV_TOKEN", raising=False)
    monkeypatch.delenv("FLOE_DEV_ORIGIN", raising=False)


@pytest.mark.parametrize("host", ["", " ", "*"])
def test_every_interface_is_written_as_an_address(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write 0\.0\.0\.0"), listeners(host, 0, token="given"):
        pass


@pytest.mark.parametrize("host", ["", "*", "0.0.0.0", "::", "0", "127.1", socket.gethostname(), "lake.example.com"])
def test_a_host_that_is_not_literally_loopback_needs_a_token(host: str) -> None:
    assert len(access_for(host).token or "") >= 32


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.53"])
def test_loopback_needs_no_token(host: str) -> None:
    assert access_for(host).token is None


@pytest.mark.parametrize("host", ["0.0.0.0", "0"])
def test_nothing_is_served_to_other_machines_without_a_token(host: str, tmp_path: Path) -> None:
    settings = ServiceSettings(module="definitions", root=str(tmp_path), host=host, port=0)
    with pytest.raises(ConfigurationError, match=r"0\.0\.0\.0, which other machines can reach"):
        serve(settings)


def test_the_sockets_of_a_host_share_a_port_and_close_with_the_block() -> None:
    with listeners("localhost", 0, token=None) as bound:
        assert len({one.getsockname()[1] for one in bound}) == 1
        assert {one.getsockname()[0] for one in bound} <= {"127.0.0.1", "::1"}
    assert all(one.fileno() == -1 for one in bound)
    with listeners("0.0.0.0", 0, token="given") as bound:
        assert bound[0].getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize("host", ["a..b", "x" * 70])
def test_a_name_that_cannot_be_one_is_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot serve on port 0"), listeners(host, 0, token="given"):
        pass


@pytest.mark.parametrize(
    "token", ["", "  ", "short", "a space between the words", "umlaut-\u00fc-in-the-token", "x" * 15]
)
def test_a_token_that_is_none_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("FLOE_DEV_TOKEN", token)
    with pytest.raises(ConfigurationError, match="FLOE_DEV_TOKEN is set, but is not a token") as caught:
        access_for("127.0.0.1")
    assert not token.strip() or token not in str(caught.value)


def test_the_token_of_the_user_is_taken_without_the_newline_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOE_DEV_TOKEN", " sixteen-or-more-characters\n")
    assert access_for("127.0.0.1").token == access_for("0.0.0.0").token == "sixteen-or-more-characters"


@pytest.mark.parametrize("written", [PROXY, f"{PROXY}/", f" {PROXY.upper()}:443\n"])
def test_the_origin_of_a_proxy_needs_a_token(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("FLOE_DEV_ORIGIN", written)
    access = access_for("127.0.0.1")
    assert access.origin == PROXY
    assert access.token is not None


@pytest.mark.parametrize(
    "written",
    ["", "*", "null", "lake.example.com", "http://lake.example.com", f"{PROXY}/path", "https://a@b", "https://["],
)
def test_an_origin_that_is_none_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("FLOE_DEV_ORIGIN", written)
    with pytest.raises(ConfigurationError, match="FLOE_DEV_ORIGIN is set, but is not an origin"):
        access_for("127.0.0.1")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_refuses_its_own_command_is_an_error_at_once(
    sleeper: subprocess.Popen[bytes], status: int
) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"floe dev refused this request: the reason\n")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the parent's argument
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        begun = time.monotonic()
        with pytest.raises(WebServerError, match=f"{status}.*: the reason"):
            wait_for_answer(sleeper, "127.0.0.1", serving.server_address[1], None)
        assert time.monotonic() - begun < 5
        serving.shutdown()


def test_a_long_tmpdir_leaves_room_for_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with private_folder() as folder, socket.socket(socket.AF_UNIX) as one:
        assert tempfile.gettempdir() == str(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        one.bind(tempfile.mktemp())  # as Dagster chooses the path of a socket
    assert not folder.exists()
    assert tempfile.gettempdir() == str(long)
