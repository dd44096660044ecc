"""Access to `floe dev`: the sockets it listens on, the token that requests need, and the origin of a proxy."""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from floe_core.errors import ConfigurationError
from floe_core.security import is_loopback, protect

__all__ = ["ORIGIN_VARIABLE", "TOKEN_VARIABLE", "Access", "access_for", "listeners"]

TOKEN_VARIABLE = "FLOE_DEV_TOKEN"  # noqa: S105 - the name of a variable
ORIGIN_VARIABLE = "FLOE_DEV_ORIGIN"
_TOKEN = re.compile(r"[!-~]{16,}")
_ORIGIN = re.compile(r"https://[a-z0-9_-]+(\.[a-z0-9_-]+)*(:[0-9]{1,5})?")


@dataclass(frozen=True)
class Access:
    """The token that every request needs, and the origin of a proxy whose pages are answered."""

    token: str | None = field(repr=False)
    origin: str | None = None


def access_for(host: str) -> Access:
    """From the environment variables. Only a literal loopback address needs no token: a name may resolve elsewhere."""
    token, origin = _given_token(), _given_origin()
    if token is None and (origin is not None or not is_loopback(host)):
        token = secrets.token_urlsafe(32)
    return Access(token, origin)


def _given_token() -> str | None:
    given = os.environ.get(TOKEN_VARIABLE)
    if given is None:
        return None
    token = given.strip()
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"{TOKEN_VARIABLE} is set, but is not a token: it needs at least 16 printable ASCII characters, no spaces; "
            f"make one with: python -c 'import secrets; print(secrets.token_urlsafe())', or unset {TOKEN_VARIABLE}"
        )
    protect(token)
    return token


def _given_origin() -> str | None:
    given = os.environ.get(ORIGIN_VARIABLE)
    if given is None:
        return None
    origin = given.strip().lower().removesuffix("/")
    if not _ORIGIN.fullmatch(origin):
        raise ConfigurationError(
            f"{ORIGIN_VARIABLE} is set, but is not an origin: write https:// and the name of the proxy without a path, "
            f"such as https://lake.example.com, or unset {ORIGIN_VARIABLE}"
        )
    return origin.removesuffix(":443")  # browsers leave it out


@contextmanager
def listeners(host: str, port: int, *, token: str | None) -> Iterator[list[socket.socket]]:
    """Sockets bound to one port on every address of the host; port 0 is any free one.

    Without a token, an address that is not loopback is refused, whatever the host is called.
    """
    if host.strip() in ("", "*"):
        raise ConfigurationError(f"--host {host!r} is not an address; write 0.0.0.0 to listen on every interface")
    with ExitStack() as opened:
        try:
            bound = _bind(host, port, opened)
        except (OSError, UnicodeError) as exc:  # UnicodeError: not a valid host name
            reason = exc.strerror if isinstance(exc, OSError) else "it is not a host name"
            raise ConfigurationError(
                f"cannot serve on port {port} of {host}: {reason}; choose another with --port (0 takes a free one)"
            ) from exc
        reachable = [name for name in (str(listener.getsockname()[0]) for listener in bound) if not is_loopback(name)]
        if reachable and token is None:
            raise ConfigurationError(
                f"{host} is {reachable[0]}, which other machines can reach, and there is no token; "
                f"use --host 127.0.0.1, or set {TOKEN_VARIABLE}"
            )
        yield bound


def _bind(host: str, port: int, opened: ExitStack) -> list[socket.socket]:
    bound: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)):
        shared = bound[0].getsockname()[1] if bound else port
        listener = _socket(family, (address[0], shared, *address[2:]))
        if listener is not None:
            bound.append(opened.enter_context(listener))
    if not bound:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return bound


def _socket(family: int, address: tuple[object, ...]) -> socket.socket | None:
    """A socket bound to the address; None if this machine does not have the address."""
    with ExitStack() as undo:
        try:
            listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            # A port in TIME_WAIT can be bound again.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
        except OSError as exc:
            # localhost resolves to an IPv6 address even where IPv6 is disabled.
            if exc.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                return None
            raise
        undo.pop_all()
        return listener
