"""Storage plugin `s3`: tables in a bucket of Amazon S3 or a compatible store."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pyiceberg.io.pyarrow import PyArrowFileIO

from floe_core import __version__
from floe_core.config import S3StorageConfig, resolve_model
from floe_core.jvm import iceberg_aws_bundle
from floe_core.plugins import FLOE_API_VERSION, FileIO, HealthStatus, PluginMetadata, StoragePlugin

__all__ = ["S3StoragePlugin"]

_CONNECT_SECONDS = 10
_REQUEST_SECONDS = 60


class S3StoragePlugin(StoragePlugin):
    """One bucket, with credentials from floe.yaml, vended by the catalog, or of the machine."""

    metadata: ClassVar[PluginMetadata] = PluginMetadata(
        name="s3",
        version=__version__,
        floe_api_version=FLOE_API_VERSION,
        description="a bucket of S3 or a compatible store",
    )

    def __init__(self, config: S3StorageConfig, *, root: Path) -> None:
        self._config = config
        self._root = root

    @classmethod
    def get_config_schema(cls) -> type[S3StorageConfig]:
        return S3StorageConfig

    @property
    def _settings(self) -> S3StorageConfig:
        return resolve_model(self._config, root=self._root)

    def health_check(self) -> HealthStatus:
        settings = self._settings
        where = f"{settings.bucket} at {settings.endpoint or 'Amazon S3'}"
        if settings.access_key_id is None:  # vended, or of the machine: only a read can test them
            return HealthStatus(healthy=True, message=f"{where}, without keys of its own; not checked yet")
        from pyarrow.fs import FileSelector, FileType

        files = PyArrowFileIO(self.get_pyiceberg_properties()).fs_by_scheme("s3", settings.bucket)
        info = files.get_file_info(settings.bucket)
        if info.type is FileType.NotFound:
            return HealthStatus(healthy=False, message=f"there is no bucket {where}; create it, or check the name")
        files.get_file_info(FileSelector(settings.bucket))
        return HealthStatus(healthy=True, message=where)

    def get_pyiceberg_fileio(self) -> FileIO:
        return PyArrowFileIO(self.get_pyiceberg_properties())

    def get_pyiceberg_properties(self) -> dict[str, str]:
        settings = self._settings
        return {
            **self._shared(settings),
            # PyIceberg has no setting for the path style: it is the default.
            "s3.force-virtual-addressing": str(
                not settings.path_style_access and settings.endpoint is not None
            ).lower(),
            "s3.connect-timeout": str(_CONNECT_SECONDS),
            "s3.request-timeout": str(_REQUEST_SECONDS),
            **_if_set("s3.region", _region(settings)),
        }

    def get_warehouse_uri(self, namespace: str | None = None) -> str:
        base = f"s3://{self._settings.bucket}"
        return base if namespace is None else f"{base}/{namespace.replace('.', '/')}"

    def get_spark_conf(self, catalog_name: str) -> dict[str, str]:
        settings = self._settings
        prefix = f"spark.sql.catalog.{catalog_name}"
        properties = {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            **self._shared(settings),
            "s3.path-style-access": str(settings.path_style_access).lower(),
            **_if_set("client.region", _region(settings)),
        }
        return {
            **{f"{prefix}.{key}": value for key, value in properties.items()},
            "spark.jars.packages": iceberg_aws_bundle(),
        }

    @staticmethod
    def _shared(settings: S3StorageConfig) -> dict[str, str]:
        """The properties that have the same name in both engines."""
        given = {"s3.endpoint": settings.endpoint}
        if settings.access_key_id is not None and settings.secret_access_key is not None:
            given["s3.access-key-id"] = settings.access_key_id.get_secret_value()
            given["s3.secret-access-key"] = settings.secret_access_key.get_secret_value()
        return {key: value for key, value in given.items() if value is not None}


def _region(settings: S3StorageConfig) -> str | None:
    """Stores other than Amazon's accept any region, but without one both engines would look one up."""
    return settings.region or ("us-east-1" if settings.endpoint else None)


def _if_set(key: str, value: str | None) -> dict[str, str]:
    return {} if value is None else {key: value}
