"""Files under credentials that a catalog vends: new ones are asked for before the old ones end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import Properties

from floe_core.redaction import is_credential_key, protect_for_now
from floe_core.telemetry import note

__all__ = ["VendedFileIO", "vended_properties"]

_EXPIRES = "s3.session-token-expires-at-ms"
# How long before their end credentials are renewed: half of their life, at most this. A file that is being read or
# written goes on with those it was opened with.
_LONGEST_MARGIN = 900.0


def vended_properties(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a server says about the files of a table, in PyIceberg's words, and protected from being shown."""
    properties = dict(config)
    for key, value in config.items():
        if is_credential_key(key) and isinstance(value, str):
            protect_for_now(value)
    if "s3.path-style-access" in config:
        virtual = str(config["s3.path-style-access"]).lower() != "true" and "s3.endpoint" in config
        properties["s3.force-virtual-addressing"] = str(virtual).lower()
    return properties


class VendedFileIO(PyArrowFileIO):
    """The files of one table. Threads share it.

    Args:
        renew: Asks the catalog for the properties anew; None where it cannot be asked (a table that is being created).
        clock_skew: How far this machine's clock is behind the catalog's, in seconds.
    """

    def __init__(
        self, properties: Properties, renew: Callable[[], Properties] | None, clock_skew: Callable[[], float]
    ) -> None:
        super().__init__(properties)
        self._renew = renew
        self._clock_skew = clock_skew
        self._lock = threading.Lock()
        self._made: dict[tuple[str, str | None], FileSystem] = {}
        self._begin()
        self.fs_by_scheme = self._fresh

    def _begin(self) -> None:
        said = str(self.properties.get(_EXPIRES) or "")
        left = float("inf")
        if said.isdecimal() and self._renew is not None:
            left = int(said) / 1000 - (time.time() + self._clock_skew())
        self._ends_at = time.monotonic() + left
        self._renew_at = self._ends_at - min(max(left, 0.0) / 2, _LONGEST_MARGIN)

    def _fresh(self, scheme: str, netloc: str | None = None) -> FileSystem:
        with self._lock:
            if self._renew is not None and time.monotonic() >= self._renew_at:
                self._take_new(self._renew)
            if (scheme, netloc) not in self._made:
                self._made[scheme, netloc] = self._initialize_fs(scheme, netloc)
            return self._made[scheme, netloc]

    def _take_new(self, renew: Callable[[], Properties]) -> None:
        try:
            properties = renew()
        except Exception:
            if time.monotonic() >= self._ends_at:
                raise
            self._renew_at = min(time.monotonic() + 5.0, self._ends_at)  # those at hand still hold for a while
            return
        note("storage_credentials_renewed")
        self.properties = {**self.properties, **properties}
        self._made.clear()
        self._begin()
