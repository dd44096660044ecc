"""One retry with a new token after the catalog refused Spark's token."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from floe_core.errors import FloeError, FloeStorageError
from floe_iceberg import Lake
from floe_spark.errors import is_refused
from floe_spark.jvm.connect import is_remote
from floe_spark.jvm.process import ending
from floe_spark.jvm.session import catalog_conf, renew_catalog

__all__ = ["with_valid_token"]

Result = TypeVar("Result")


def with_valid_token(lake: Lake, act: Callable[[], Result]) -> Result:
    """Retry once with a new token if the catalog refused Spark's: it was revoked, or replaced by a newer one."""
    try:
        return act()
    except Exception as exc:
        ended = None if isinstance(exc, FloeError) else ending(exc)
        if ended is not None:
            raise FloeStorageError(f"{ended} Run it again: a new Spark process starts") from exc
        if not is_refused(exc) or is_remote(lake.spark):
            raise
        renew_catalog(lake.spark, catalog_conf(lake.tables.catalog_plugin, lake.tables.storage_plugin))
    return act()
