"""HTTP to a catalog: a timeout for every request, one connection pool, verified TLS, no automatic retries."""

from __future__ import annotations

import email.utils
import os
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.request import getproxies

import pyiceberg
import requests
from requests.adapters import HTTPAdapter

from floe_core import __version__
from floe_core.config import ResponseLimits, uri_password
from floe_core.errors import ConfigurationError
from floe_core.security import protect
from floe_polaris.limits import limit_time, read_body

__all__ = ["USER_AGENT", "Clock", "check_authorities", "create_session"]

USER_AGENT = f"Floe/{__version__} PyIceberg/{pyiceberg.__version__}"
# A reachable host accepts a connection at once; an unreachable one would block for minutes.
CONNECT_SECONDS = 10.0
_CONNECTIONS = 32


class _Limited(HTTPAdapter):
    """Every request has a timeout and every response has limits; no request is retried: its caller decides that."""

    def __init__(self, seconds: float, ca_bundle: Path | None, limits: ResponseLimits) -> None:
        self._limits = limits
        self._timeout = (min(CONNECT_SECONDS, seconds), seconds)
        self._authorities = None if ca_bundle is None else str(ca_bundle)
        self._process = os.getpid()
        super().__init__(max_retries=0, pool_maxsize=_CONNECTIONS)

    def send(  # type: ignore[override] # the arguments are requests' own
        self, request: requests.PreparedRequest, timeout: Any = None, verify: Any = True, **options: Any
    ) -> requests.Response:
        # Set here, because REQUESTS_CA_BUNDLE in the environment overrides a session's `verify`.
        verify = self._authorities or verify
        if os.getpid() != self._process:  # forked: on its parent's connections, a child would read others' responses
            self._process = os.getpid()
            self.proxy_manager = {}
            self.init_poolmanager(_CONNECTIONS, _CONNECTIONS)
        response = super().send(request, timeout=timeout or self._timeout, verify=verify, **options)
        read_body(response, self._limits)
        return response

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        super().init_poolmanager(*arguments, **named)
        limit_time(self.poolmanager, self._limits)

    def proxy_manager_for(self, proxy: str, **named: Any) -> Any:
        known = proxy in self.proxy_manager
        manager = super().proxy_manager_for(proxy, **named)
        if not known and not proxy.lower().startswith("socks"):  # these have connection classes of their own
            limit_time(manager, self._limits)
        return manager


def create_session(
    *, timeout_seconds: float, ca_bundle: Path | None, limits: ResponseLimits | None = None
) -> requests.Session:
    """A thread-safe session; its proxies are those of the environment."""
    if ca_bundle is not None:
        check_authorities(ca_bundle)
    session = requests.Session()
    adapter = _Limited(timeout_seconds, ca_bundle, limits or ResponseLimits())
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    session.headers["User-Agent"] = USER_AGENT
    for proxy in getproxies().values():
        protect(uri_password(proxy) or "")
    return session


def check_authorities(ca_bundle: Path) -> None:
    """Refuse a file that is missing or holds no PEM certificates."""
    if not ca_bundle.is_file():
        raise ConfigurationError(f"catalog.ca_bundle: {ca_bundle} does not exist; put the authorities' PEM there")
    try:
        ssl.create_default_context(cafile=ca_bundle)
    except OSError as exc:
        raise ConfigurationError(
            f"catalog.ca_bundle: {ca_bundle} holds no readable certificates; put the authorities' PEM there"
        ) from exc


class Clock:
    """How far this machine's clock is behind the server's, by the Date header of its responses."""

    def __init__(self) -> None:
        self.skew = 0.0

    def look(self, response: requests.Response, **_options: Any) -> None:
        """A hook of requests."""
        try:
            moment = email.utils.parsedate_to_datetime(response.headers.get("Date", ""))
        except (ValueError, OverflowError):
            return
        self.skew = moment.timestamp() - time.time()
