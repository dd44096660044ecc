"""The settings that a catalog server sends, filtered before either engine uses them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from pyiceberg.catalog.rest import ConfigResponse, TableResponse
from pyiceberg.typedef import Properties

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.observability import warn
from floe_core.security import OwnSettings, java_refusals, plain_http_problem, sift, vended_stores
from floe_polaris.transport_errors import shown

__all__ = ["SentSettings"]

_ENDPOINT = "s3.endpoint"
# The prefix of credentials that replaces Java's client for all files of a store.
_ALL_FILES = {"s3": "s3", "gcs": "gs"}
# At most this many reported names are remembered; a server could send new ones without end.
_MOST_REPORTED = 1000


class SentSettings:
    """The settings of one server. Thread-safe.

    Args:
        own: The project's own settings.
        delegates: The project requests credentials for the files from this server.
        allow_insecure: The server may vend credentials for a store that is reached by plain http.
        server: Its address, for the log.
    """

    def __init__(self, own: OwnSettings, *, delegates: bool, allow_insecure: bool, server: str) -> None:
        self._own = own
        self._delegates = delegates
        self._allow_insecure = allow_insecure
        self._server = server
        self._lock = threading.Lock()
        self._reported: set[str] = set()
        self.refused_for_spark: tuple[str, ...] = ()

    def of_catalog(self, answer: ConfigResponse) -> tuple[dict[str, str], dict[str, str]]:
        """The accepted defaults and overrides of `/v1/config`, without settings of files, which come with tables.

        Java would combine an endpoint that is sent here with the project's own keys.
        """
        sent = [answer.defaults or {}, answer.overrides or {}]
        defaults, overrides = (self._sifted(settings, frozenset()) for settings in sent)
        refused = {key for settings in sent for key in java_refusals(settings, self._own)}
        self.refused_for_spark = tuple(sorted(refused))
        return defaults, overrides

    def of_files(self, config: Properties, credentials: Properties) -> dict[str, str]:
        """The settings that came with a table, overridden by those of the credentials for its files."""
        sent = {**config, **credentials}
        return self._sifted(sent, self._vended(sent))

    def refused_with(self, answer: TableResponse) -> tuple[str, ...]:
        """The settings because of which Spark must not use this table."""
        # Java has a client for each prefix of credentials, and one for all other files of the store. That one has the
        # settings of `config`, and the project's keys unless the server sent keys for all files.
        vended = self._vended(answer.config) | {
            store
            for credential in answer.storage_credentials
            for store in self._vended(credential.config)
            if _ALL_FILES.get(store) == credential.prefix
        }
        refused = set(java_refusals(answer.config, self._own, vended=vended))
        for credential in answer.storage_credentials:
            refused.update(java_refusals(credential.config, self._own, vended=self._vended(credential.config)))
        return tuple(sorted(refused))

    def _vended(self, sent: Mapping[str, Any]) -> frozenset[str]:
        return vended_stores(sent) if self._delegates else frozenset()

    def _sifted(self, sent: Mapping[str, Any], vended: frozenset[str]) -> dict[str, str]:
        sifted = sift(sent, self._own, vended=vended)
        self._report(sifted.dropped)
        if "prefix" in sifted.dropped:  # every request has it: without it, another catalog of the server would answer
            raise FloeStorageError(
                f"the catalog server at {self._server} asks for the path prefix {shown(str(sent['prefix']))!r}, which "
                f"is not a plain path; check catalog.uri, and the name of the catalog on the server"
            )
        if not self._allow_insecure and plain_http_problem(_ENDPOINT, sifted.kept.get(_ENDPOINT)):
            raise ConfigurationError(
                f"the catalog server vends credentials for {shown(sifted.kept[_ENDPOINT])}: http:// to another machine "
                f"sends them and the data unencrypted. Have the server vend an https:// endpoint, or set "
                f"catalog.allow_insecure: true if the network is trusted"
            )
        return sifted.kept

    def _report(self, dropped: Iterable[str]) -> None:
        with self._lock:
            new = [key for key in dropped if key not in self._reported]
            if len(self._reported) > _MOST_REPORTED:
                return
            self._reported.update(new)
        if new:
            warn(
                "the catalog server sent settings that only the project may set; they are ignored",
                server=self._server,
                settings=shown(", ".join(new)),
            )
