"""The steps of a connection to a catalog: each a name, and a check that returns its finding or raises."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from math import isinf
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import requests
from requests.utils import DEFAULT_CA_BUNDLE_PATH, get_environ_proxies, select_proxy

from floe_core.config import RestCatalogConfig, resolve_model
from floe_core.errors import CatalogConnectionError, FloeStorageError
from floe_core.retry import Retry
from floe_core.security import protect_for_now
from floe_iceberg.errors import translated
from floe_polaris.catalog import PolarisCatalog, extra_headers, token_source
from floe_polaris.http import CONNECT_SECONDS, Clock, create_session
from floe_polaris.tokens import ClientCredentials, GivenToken
from floe_polaris.transport_errors import Server, address, is_transient, retry_after

__all__ = ["Diagnosis"]

# The clock skew that Iceberg, and stores that check signatures, tolerate.
_CLOCK_TOLERANCE = 60.0
_SOON_DAYS = 14


class _Plugin(Protocol):
    def connect(self) -> PolarisCatalog: ...

    def list_namespaces(self, parent: str | None = None) -> list[str]: ...


@dataclass(frozen=True)
class _Place:
    """A host and its port."""

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> _Place:
        parts = urlsplit(url)
        return cls(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Diagnosis:
    """The steps of a connection to one catalog; `plugin` connects in the usual way."""

    def __init__(self, config: RestCatalogConfig, *, root: Path, plugin: _Plugin) -> None:
        self._config = config
        self._root = root
        self._plugin = plugin

    def steps(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """The steps, in the order in which they depend on each other."""
        yield "address", self._check_address
        if self._settings.uri.startswith("https:"):
            yield "tls", self._check_tls
        yield "token", self._fetch_token
        yield "clock", self._compare_clocks
        yield "config", self._check_warehouse
        yield "list", self._list_namespaces

    @cached_property
    def _settings(self) -> RestCatalogConfig:
        return resolve_model(self._config, root=self._root)

    @cached_property
    def _session(self) -> requests.Session:
        settings = self._settings
        bundle = self._root / settings.ca_bundle if settings.ca_bundle else None
        session = create_session(timeout_seconds=settings.timeout_seconds, ca_bundle=bundle, limits=settings.limits)
        session.headers.update(extra_headers(settings))
        return session

    @property
    def _server(self) -> Server:
        return Server(self._settings.uri, "catalog.uri", self._settings.timeout_seconds)

    @property
    def _proxy(self) -> str | None:
        """The address of the proxy to the catalog, if there is one."""
        uri = self._settings.uri
        given = select_proxy(uri, get_environ_proxies(uri))
        return given if not given or "://" in given else f"http://{given}"

    def _check_address(self) -> str:
        target, proxy = _Place.of(self._settings.uri), self._proxy
        if proxy:
            _connect(_Place.of(proxy), "HTTPS_PROXY, HTTP_PROXY and NO_PROXY in the environment")
            return f"{target}, through the proxy {_Place.of(proxy)}"
        ip_address = _connect(target, "catalog.uri in floe.yaml")
        return f"{target} accepts connections" + (f" ({ip_address})" if ip_address != target.host else "")

    def _check_tls(self) -> str:
        target, proxy = _Place.of(self._settings.uri), self._proxy
        through = _Place.of(proxy) if proxy else target
        connection = http.client.HTTPSConnection(
            through.host, through.port, timeout=CONNECT_SECONDS, context=self._ssl_context()
        )
        if proxy:
            connection.set_tunnel(target.host, target.port, _proxy_headers(proxy))
        try:
            connection.connect()
            certificate = connection.sock.getpeercert() or {}
        except ssl.SSLError as exc:
            raise self._server.unreachable(requests.exceptions.SSLError(exc), attempts=1) from exc
        except OSError as exc:
            raise self._server.unreachable(exc, attempts=1) from exc
        finally:
            connection.close()
        ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), timezone.utc)
        days = (ends - datetime.now(timezone.utc)).days
        soon = ": renew it soon" if days < _SOON_DAYS else ""
        return f"the certificate of {target.host} is trusted, and valid until {ends:%Y-%m-%d} ({days} days){soon}"

    def _ssl_context(self) -> ssl.SSLContext:
        """A context with the authorities that every other request trusts."""
        if self._settings.ca_bundle:
            _ = self._session  # raises if there is a problem with the file
            return ssl.create_default_context(cafile=self._root / self._settings.ca_bundle)
        bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH
        is_folder = Path(bundle).is_dir()
        return ssl.create_default_context(cafile=None if is_folder else bundle, capath=bundle if is_folder else None)

    def _fetch_token(self) -> str:
        settings = self._settings
        retry = Retry(settings.retry, "the catalog", is_transient=is_transient, retry_after=retry_after)
        source = token_source(self._config, settings, self._session, retry, self._root)
        if isinstance(source, ClientCredentials) and settings.credentials is not None:
            answer = source.answered()
            protect_for_now(answer.access_token.get_secret_value())
            life = "without an expiry" if isinf(answer.life) else f"valid for {_span(answer.life)}"
            return f"fetched for '{settings.credentials.client_id}' with the scope '{settings.scope}', {life}"
        if isinstance(source, GivenToken):
            return "the value of catalog.token; only its issuer knows when it expires"
        return "none: auth is none in floe.yaml"

    def _compare_clocks(self) -> str:
        try:
            answer = self._session.get(f"{self._settings.uri.rstrip('/')}/v1/config")
        except requests.RequestException as exc:
            raise self._server.unreachable(exc, attempts=1) from exc
        if "Date" not in answer.headers:
            return "not compared: the catalog sends no Date header"
        clock = Clock()
        clock.look(answer)
        skew = clock.skew
        if abs(skew) > _CLOCK_TOLERANCE:
            raise FloeStorageError(
                f"this machine's clock is {abs(skew):.0f} s {'behind' if skew > 0 else 'ahead of'} the catalog's; "
                f"Iceberg and object stores tolerate one minute. Set it by NTP (timedatectl set-ntp true), or set the "
                f"catalog's"
            )
        return f"{abs(skew):.0f} s from the catalog's"

    def _check_warehouse(self) -> str:
        with translated("connect", self._settings.warehouse, namespace=True):
            self._plugin.connect()
        return f"{address(self._settings.uri)} answered for the warehouse '{self._settings.warehouse}'"

    def _list_namespaces(self) -> str:
        count = len(self._plugin.list_namespaces())
        return f"{count} namespace{'' if count == 1 else 's'} visible"


def _connect(place: _Place, setting: str) -> str:
    """The IP address of the host, if something listens there."""
    try:
        addresses = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as exc:
        raise CatalogConnectionError(
            f"the host '{place.host}' cannot be resolved; check {setting}, and the DNS of this machine"
        ) from exc
    try:
        with socket.create_connection((place.host, place.port), timeout=CONNECT_SECONDS) as connection:
            return str(connection.getpeername()[0])
    except TimeoutError as exc:
        raise CatalogConnectionError(
            f"{place} ({addresses[0][4][0]}) accepted no connection within {CONNECT_SECONDS:g} s; check for a firewall "
            f"between, and check {setting}"
        ) from exc
    except OSError as exc:
        raise CatalogConnectionError(
            f"nothing listens at {place} ({exc.strerror or exc}); check that the catalog runs there, and {setting}"
        ) from exc


def _proxy_headers(proxy: str) -> dict[str, str]:
    parts = urlsplit(proxy)
    if not parts.username:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
