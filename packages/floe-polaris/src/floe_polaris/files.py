"""Files under credentials that a catalog vends, which are renewed before they expire."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyarrow.fs import FileSystem
from pyiceberg.io import FileIO
from pyiceberg.typedef import Properties

from floe_core.errors import FloeStorageError
from floe_core.observability import note
from floe_core.security import is_credential_key, protect_for_now
from floe_iceberg._pyiceberg.files import ArrowFileIO

__all__ = ["VendedFileIO", "vended_by"]

_EXPIRES = "s3.session-token-expires-at-ms"
# For hdfs and viewfs, Arrow would load a JVM and Hadoop's library into this process.
_SCHEMES = frozenset(("s3", "s3a", "s3n", "oss", "gs", "gcs", "abfs", "abfss", "wasb", "wasbs", "file", ""))
# The longest time before their expiry that credentials are renewed; otherwise half of their lifetime. An open file
# keeps the credentials that it was opened with.
_LONGEST_MARGIN = 900.0
# The delay before the catalog is asked again, when it vends no new credentials or expired ones.
_PAUSE = 5.0


def vended_by(files: FileIO) -> dict[str, Any]:
    """The settings that the catalog vended for these files, without those of the store in floe.yaml."""
    return dict(files.vended) if isinstance(files, VendedFileIO) else {}


def _for_pyiceberg(config: Mapping[str, Any]) -> dict[str, Any]:
    properties = dict(config)
    if "s3.path-style-access" in config:
        virtual = str(config["s3.path-style-access"]).lower() != "true" and "s3.endpoint" in config
        properties["s3.force-virtual-addressing"] = str(virtual).lower()
    return properties


class VendedFileIO(ArrowFileIO):
    """The files of one table. Thread-safe.

    Args:
        vended: The settings that the catalog vended for them, including credentials.
        renew: Requests new ones from the catalog; None where they cannot be renewed.
        clock_skew: How far this machine's clock is behind the catalog's, in seconds.
    """

    def __init__(
        self,
        properties: Properties,
        vended: Mapping[str, Any],
        renew: Callable[[], Properties] | None,
        clock_skew: Callable[[], float],
    ) -> None:
        super().__init__({**properties, **_for_pyiceberg(vended)})
        self.vended = dict(vended)
        self._renew = renew
        self._clock_skew = clock_skew
        self._prepare()

    def _prepare(self) -> None:
        self._lock, self._renewing = threading.Lock(), threading.Lock()
        self._file_systems: dict[tuple[str, str | None], FileSystem] = {}
        self._renewals = 0
        self._protect()
        self._set_expiry()
        self.fs_by_scheme = self._file_system

    def renew_by(self, renew: Callable[[], Properties]) -> None:
        """Set how new credentials are requested."""
        self._renew = renew

    def renewals(self) -> int:
        """The number of renewals so far; renews first if due. Files opened before a renewal use older credentials."""
        self._renew_if_due()
        return self._renewals

    def _set_expiry(self) -> None:
        expires = str(self.properties.get(_EXPIRES) or "")
        left = int(expires) / 1000 - (time.time() + self._clock_skew()) if expires.isdecimal() else float("inf")
        margin = min(left / 2, _LONGEST_MARGIN) if left > 0 else -_PAUSE
        # By both clocks: the monotonic one stops while the machine sleeps, the wall clock may be set.
        self._ends_at = time.monotonic() + left, time.time() + left
        self._renew_at = time.monotonic() + left - margin, time.time() + left - margin

    def _protect(self) -> None:
        for key, value in self.properties.items():
            if isinstance(value, str) and is_credential_key(key):
                protect_for_now(value)

    def _renew_if_due(self) -> None:
        # One thread renews, while the others use the present credentials; once these have expired, all wait for it.
        if self._is_due() and self._renewing.acquire(blocking=_is_past(self._ends_at)):
            try:
                if self._is_due():
                    self._renew_credentials()
            finally:
                self._renewing.release()

    def _file_system(self, scheme: str, netloc: str | None = None) -> FileSystem:
        if scheme not in _SCHEMES:
            raise FloeStorageError(
                f"a file of the table has an address with {scheme[:20]}://, which is not supported; Floe reads s3, gs "
                f"and abfs addresses and local files. Check the table's location in the catalog"
            )
        self._renew_if_due()
        with self._lock:
            if (scheme, netloc) not in self._file_systems:
                self._protect()
                self._file_systems[scheme, netloc] = self.new_file_system(scheme, netloc)
            return self._file_systems[scheme, netloc]

    def _is_due(self) -> bool:
        return self._renew is not None and _is_past(self._renew_at)

    def _renew_credentials(self) -> None:
        try:
            vended = self._renew() if self._renew is not None else {}
        except Exception:
            if _is_past(self._ends_at):
                raise
            self._renew_at = time.monotonic() + _PAUSE, time.time() + _PAUSE  # the present ones are still valid
            return
        note("storage_credentials_renewed")
        with self._lock:
            self.vended = dict(vended)
            self.properties = {**self.properties, **_for_pyiceberg(vended)}
            self._file_systems = {}
            self._renewals += 1
            self._set_expiry()

    def __getstate__(self) -> dict[str, Any]:
        """For another process: with the present credentials, which are not renewed there."""
        return {"properties": self.properties, "vended": self.vended}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._renew = None
        self._clock_skew = lambda: 0.0
        self._prepare()


def _is_past(moment: tuple[float, float]) -> bool:
    monotonic, wall_clock = moment
    return time.monotonic() >= monotonic or time.time() >= wall_clock
