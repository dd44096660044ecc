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
    """Where the tables are, and what an IO manager does unless an asset says otherwise.

    Secrets may be references, `${env:NAME}` or `${file:path}`, which are read when the catalog is first asked.
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
            made = CompiledArtifacts(
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
                ": ".join([*map(str, one["loc"]), value_problem(one["type"], one["msg"], one.get("ctx"))])
                for one in exc.errors(include_input=False, include_url=False)
            )
            raise ConfigurationError(f"the configuration of the IO manager does not fit: {reasons}") from None
        return made.at(root or Path.cwd())
