"""What a catalog server sends as settings, sifted before either engine acts on it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from pyiceberg.catalog.rest import ConfigResponse, TableResponse
from pyiceberg.typedef import Properties

from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.foreign_settings import OwnSettings, java_refusals, sift, vended_stores
from floe_core.plain_transport import plain_http_problem
from floe_core.telemetry import warn
from floe_polaris.failures import shown

__all__ = ["SentSettings"]

_ENDPOINT = "s3.endpoint"
# So many names are remembered as reported; a server could send others without end.
_MOST_REPORTED = 1000


class SentSettings:
    """The settings of one server. Threads share it.

    Args:
        own: What the project says itself.
        delegates: The project asks this server for credentials of the files.
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
        self._for_files: dict[str, str] = {}
        self.refused_for_spark: tuple[str, ...] = ()

    def of_catalog(self, answer: ConfigResponse) -> tuple[dict[str, str], dict[str, str]]:
        """The defaults and the overrides of `/v1/config` that count: nothing about the files, which come with tables.

        Java would combine an endpoint that is sent here with the project's own keys.
        """
        sent = [answer.defaults or {}, answer.overrides or {}]
        defaults, overrides = (self._sifted(one, frozenset()) for one in sent)
        self.refused_for_spark = tuple(sorted({key for one in sent for key in java_refusals(one, self._own)}))
        return defaults, overrides

    def of_files(self, config: Properties, credentials: Properties) -> dict[str, str]:
        """The settings that came with a table, with those of the credentials for its files over them."""
        sent = {**config, **credentials}
        return self._sifted(sent, self._vended(sent))

    def refused_with(self, answer: TableResponse) -> tuple[str, ...]:
        """The settings for which Spark must not be given this table."""
        location = answer.metadata.location
        # The settings of a store may stand beside its credentials, which count for the files below their prefix.
        beside = [one.config for one in answer.storage_credentials if location.startswith(one.prefix)]
        vended = self._vended({key: value for one in (answer.config, *beside) for key, value in one.items()})
        refused = set(java_refusals(answer.config, self._own, vended=vended))
        for one in answer.storage_credentials:
            refused.update(java_refusals(one.config, self._own, vended=self._vended(one.config)))
        return tuple(sorted(refused))

    def _vended(self, sent: Mapping[str, Any]) -> frozenset[str]:
        return vended_stores(sent) if self._delegates else frozenset()

    def _sifted(self, sent: Mapping[str, Any], vended: frozenset[str]) -> dict[str, str]:
        found = sift(sent, self._own, vended=vended)
        self._report(found.dropped)
        if "prefix" in found.dropped:  # every request has it: without it, another catalog of the server would answer
            raise FloeStorageError(
                f"the catalog server at {self._server} asks for the path prefix {shown(str(sent['prefix']))!r}, which "
                f"is not a plain path; check catalog.uri, and the name of the catalog on the server"
            )
        if not self._allow_insecure and plain_http_problem(_ENDPOINT, found.kept.get(_ENDPOINT)):
            raise ConfigurationError(
                f"the catalog server vends credentials for {shown(found.kept[_ENDPOINT])}: http:// to another machine "
                f"sends them and the data unencrypted. Have the server vend an https:// endpoint, or set "
                f"catalog.allow_insecure: true if the network is trusted"
            )
        return found.kept

    def _report(self, dropped: Iterable[str]) -> None:
        with self._lock:
            new = [key for key in dropped if key not in self._reported]
            if len(self._reported) > _MOST_REPORTED:
                return
            self._reported.update(new)
        if new:
            warn(
                "the catalog server sent settings that are the project's own to make; they are not used",
                server=self._server,
                settings=shown(", ".join(new)),
            )
