"""Storage plugin `local`: tables as files on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pyiceberg.io.pyarrow import PyArrowFileIO

from floe_core import __version__
from floe_core.config import LocalStorageConfig, resolve_model
from floe_core.disk import usable_path
from floe_core.plugins import FLOE_API_VERSION, FileIO, HealthStatus, PluginMetadata, StoragePlugin
from floe_core.security import make_folder

__all__ = ["LocalStoragePlugin"]


class LocalStoragePlugin(StoragePlugin):
    """Files under one folder. Iceberg records absolute paths: if the folder moves, `floe move` rewrites them."""

    metadata: ClassVar[PluginMetadata] = PluginMetadata(
        name="local",
        version=__version__,
        floe_api_version=FLOE_API_VERSION,
        description="files on this machine",
    )

    def __init__(self, config: LocalStorageConfig, *, root: Path) -> None:
        self._config = config
        self._root = root

    @classmethod
    def get_config_schema(cls) -> type[LocalStorageConfig]:
        return LocalStorageConfig

    @property
    def path(self) -> Path:
        return usable_path(self._root / resolve_model(self._config, root=self._root).path)

    def startup(self) -> None:
        make_folder(self.path)

    def health_check(self) -> HealthStatus:
        if not self.path.is_dir():
            return HealthStatus(healthy=False, message=f"{self.path} does not exist")
        return HealthStatus(healthy=True, message=str(self.path))

    def get_pyiceberg_fileio(self) -> FileIO:
        return PyArrowFileIO()

    def get_warehouse_uri(self, namespace: str | None = None) -> str:
        # Not Path.as_uri(): it would escape characters that both engines keep as they are.
        base = f"file://{self.path}"
        return base if namespace is None else f"{base}/{namespace.replace('.', '/')}"

    def get_spark_conf(self, catalog_name: str) -> dict[str, str]:
        del catalog_name  # local files need no settings in Spark
        return {}
