"""HTTP to a catalog: time-outs everywhere, one pool of connections, TLS checked, nothing repeated on its own."""

from __future__ import annotations

import email.utils
import time
from pathlib import Path
from typing import Any

import pyiceberg
import requests
from requests.adapters import HTTPAdapter

from floe_core import __version__
from floe_core.errors import ConfigurationError

__all__ = ["USER_AGENT", "Clock", "create_session"]

USER_AGENT = f"Floe/{__version__} PyIceberg/{pyiceberg.__version__}"
# A host that is there accepts a connection at once; one that is not would keep us for minutes.
CONNECT_SECONDS = 10.0
_CONNECTIONS = 32


class _TimeLimited(HTTPAdapter):
    """No request without a time-out, and none that is sent twice: only its caller knows whether that is safe."""

    def __init__(self, seconds: float) -> None:
        self._timeout = (min(CONNECT_SECONDS, seconds), seconds)
        super().__init__(max_retries=0, pool_maxsize=_CONNECTIONS)

    def send(  # type: ignore[override] # the arguments are requests' own
        self, request: requests.PreparedRequest, timeout: Any = None, **options: Any
    ) -> requests.Response:
        return super().send(request, timeout=timeout or self._timeout, **options)


def create_session(*, timeout_seconds: float, ca_bundle: Path | None) -> requests.Session:
    """A session that several threads may use; proxies are those of the environment."""
    session = requests.Session()
    adapter = _TimeLimited(timeout_seconds)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    session.headers["User-Agent"] = USER_AGENT
    if ca_bundle is not None:
        if not ca_bundle.is_file():
            raise ConfigurationError(f"catalog.ca_bundle: there is no file {ca_bundle}; put the authorities' PEM there")
        session.verify = str(ca_bundle)
    return session


class Clock:
    """How far this machine's clock is from the server's, as its answers tell."""

    def __init__(self) -> None:
        self.skew = 0.0

    def look(self, response: requests.Response, **_options: Any) -> None:
        """A hook of requests."""
        try:
            moment = email.utils.parsedate_to_datetime(response.headers.get("Date", ""))
        except ValueError:
            return
        self.skew = moment.timestamp() - time.time()
