"""Storage plugin `team_folder`: the tables of a team in its folder of a shared mount."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator
from pyiceberg.io.pyarrow import PyArrowFileIO

from floe_core.config import StorageConfig, is_reference, resolve_model
from floe_core.errors import FloeStorageError
from floe_core.plugins import FileIO, HealthStatus, PluginMetadata, StoragePlugin

__all__ = ["TeamFolderConfig", "TeamFolderPlugin"]


def _check_path(path: str) -> str:
    if not path or set("#%?") & set(path):
        raise ValueError("write the folder where the share is mounted, without # % ?, which Iceberg cannot take")
    return path


def _check_team(team: str) -> str:
    if not is_reference(team) and not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", team):
        raise ValueError(f"{team!r} is not the name of one folder: use a-z, 0-9, _ and -")
    return team


class TeamFolderConfig(StorageConfig):
    """Where the share is mounted, and whose folder of it is used."""

    type: Literal["team_folder"] = "team_folder"
    path: Annotated[str, AfterValidator(_check_path)]
    team: Annotated[str, AfterValidator(_check_team)]


class TeamFolderPlugin(StoragePlugin):
    """Files under `path/team`. The folder is never made here: where it is missing, the share is not mounted."""

    metadata: ClassVar[PluginMetadata] = PluginMetadata(
        name="team_folder",
        version="1.0.0",
        floe_api_version="1.0",
        description="the folder of a team on a shared mount",
    )

    def __init__(self, config: TeamFolderConfig, *, root: Path) -> None:
        self._config = config
        self._root = root

    @classmethod
    def get_config_schema(cls) -> type[TeamFolderConfig]:
        return TeamFolderConfig

    @property
    def folder(self) -> Path:
        settings = resolve_model(self._config, root=self._root)
        return (self._root / settings.path / settings.team).resolve()

    def startup(self) -> None:
        if not self.folder.is_dir():
            raise FloeStorageError(
                f"{self.folder} does not exist; mount the share, or ask whoever runs it for the folder. It is not made "
                f"here, because without the share its tables would land on this machine's own disk"
            )

    def health_check(self) -> HealthStatus:
        if not self.folder.is_dir():
            return HealthStatus(healthy=False, message=f"{self.folder} does not exist; mount the share")
        return HealthStatus(healthy=True, message=str(self.folder))

    def get_pyiceberg_fileio(self) -> FileIO:
        return PyArrowFileIO()

    def get_warehouse_uri(self, namespace: str | None = None) -> str:
        # Not Path.as_uri(): it would escape characters that both engines keep as they are.
        base = f"file://{self.folder}"
        return base if namespace is None else f"{base}/{namespace.replace('.', '/')}"

    def get_spark_conf(self, catalog_name: str) -> dict[str, str]:
        del catalog_name  # a mounted share is files to Spark, which need no settings
        return {}
