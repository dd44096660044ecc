"""Storage plugins: local files and S3."""

from floe_iceberg.storage.local import LocalStoragePlugin

__all__ = ["LocalStoragePlugin"]
