"""IcebergIOManagerConfig: a REST catalog for a Dagster project that has no floe.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, SecretStr, ValidationError

from floe_core.config import (
    ClientCredentials,
    CompiledArtifacts,
    PolarisCatalogConfig,
    RestCatalogConfig,
    RetryConfig,
    Storage,
)
from floe_core.errors import ConfigurationError
from floe_core.models import WriteMode
from floe_core.wording import value_problem
from floe_dagster.assets.arguments import KnownArguments

__all__ = ["IcebergIOManagerConfig"]


class IcebergIOManagerConfig(KnownArguments):
    """A REST catalog and the defaults of an IO manager, for a Dagster project without floe.yaml.

    Secrets may be references, `${env:NAME}` or `${file:path}`, which are resolved when the catalog is first used.

    Args:
        project: The name of the project, recorded in the tables that it owns.
        catalog_uri: The address of the catalog.
        allow_insecure: Allow `http://` to a catalog on another machine.
        warehouse: The warehouse in the catalog.
        catalog_type: `polaris`, or `rest` for another Iceberg REST catalog.
        default_namespace: The namespace of assets whose key has no prefix.
        ignore_key_prefix: Store all assets in `default_namespace`.
        write_mode: `append`, `overwrite` or `upsert`. By default a partitioned asset replaces its partitions and others
            append.
        schema_evolution_enabled: Add the columns of the data to the table, and widen types.
        column_projection_enabled: Apply the metadata `columns` of inputs.
        auth: `oauth2`, or `none` if the catalog needs no token.
        scope: The scope of the token.
        client_id: The client id for OAuth2.
        client_secret: The client secret for OAuth2.
        token: A token, instead of a client id and secret.
        retry: Retries and backoff of catalog operations.
        storage: The storage, if the catalog does not vend credentials for the files.

    Example:
        >>> from floe_dagster import IcebergIOManager, IcebergIOManagerConfig
        >>> config = IcebergIOManagerConfig(
        ...     catalog_uri="https://polaris.example.com/api/catalog",
        ...     warehouse="shop",
        ...     client_id="dagster",
        ...     client_secret="${env:POLARIS_SECRET}",
        ...     write_mode="overwrite",
        ... )
        >>> IcebergIOManager.from_config(config).default_write_mode
        'overwrite'
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    project: str = Field(default="dagster", description="the name of the project, recorded in the tables it owns")
    catalog_uri: str
    allow_insecure: bool = Field(default=False, description="allow http:// to a catalog on another machine")
    warehouse: str
    catalog_type: Literal["polaris", "rest"] = "polaris"
    default_namespace: str = "public"
    ignore_key_prefix: bool = Field(default=False, description="store all assets in default_namespace")
    write_mode: WriteMode | None = Field(
        default=None, description="by default append, and for partitioned assets the partition is replaced"
    )
    schema_evolution_enabled: bool = True
    column_projection_enabled: bool = True
    auth: Literal["oauth2", "none"] = Field(default="oauth2", description="none: the catalog asks for no token")
    scope: str = "PRINCIPAL_ROLE:ALL"
    client_id: str | None = None
    client_secret: SecretStr | None = None
    token: SecretStr | None = None
    retry: RetryConfig = RetryConfig()
    storage: Storage | None = Field(default=None, description="where the catalog does not vend access to the files")

    def artifacts(self, root: Path | None = None) -> CompiledArtifacts:
        """The same as a contract: what floe.yaml would say."""
        if self.auth == "oauth2" and self.client_secret is None and self.token is None:
            raise ConfigurationError(
                "the configuration of the IO manager does not fit: no way to authenticate: give client_id and "
                "client_secret, or token, or say auth='none' if the catalog asks for nothing"
            )
        kind = PolarisCatalogConfig if self.catalog_type == "polaris" else RestCatalogConfig
        try:
            credentials = (
                ClientCredentials(client_id=self.client_id or "", client_secret=self.client_secret)
                if self.client_secret is not None
                else None
            )
            catalog = kind(
                uri=self.catalog_uri,
                allow_insecure=self.allow_insecure,
                warehouse=self.warehouse,
                scope=self.scope,
                credentials=credentials,
                token=self.token,
                auth=self.auth,
                access_delegation="none" if getattr(self.storage, "access_key_id", None) else "vended-credentials",
                retry=self.retry,
            )
            artifacts = CompiledArtifacts(
                name=self.project,
                catalog=catalog,
                tables={
                    "default_namespace": self.default_namespace,
                    "ignore_key_prefix": self.ignore_key_prefix,
                },
                source_sha256="",
                **({"storage": self.storage} if self.storage is not None else {}),
            )
        except ValidationError as exc:
            reasons = "; ".join(
                ": ".join([*map(str, error["loc"]), value_problem(error["type"], error["msg"], error.get("ctx"))])
                for error in exc.errors(include_input=False, include_url=False)
            )
            raise ConfigurationError(f"the configuration of the IO manager does not fit: {reasons}") from None
        return artifacts.at(root or Path.cwd())
