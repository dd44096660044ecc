"""floe.yaml as frozen data. The smallest valid file is `name: shop`; every default works on a laptop."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from floe_core.config.catalog_name import CATALOG_NAME, CatalogName
from floe_core.config.checks import TableCheck, check_name, check_table
from floe_core.config.policy import CompactPolicy, ExpirePolicy, MaintenanceConfig, OrphanPolicy
from floe_core.config.postgres_address import is_postgres, postgres_problem
from floe_core.config.quarantine import refuse_shared_quarantines
from floe_core.config.references import is_reference
from floe_core.config.rest_properties import rest_property_problem
from floe_core.config.settings import Secret, Settings, Shown, Size, Text
from floe_core.errors import ConfigurationError
from floe_core.identifiers import Name, TableIdentifier, check_branch_name
from floe_core.security.plain_transport import plain_http_problem, plain_spark_problem

__all__ = [
    "CATALOG_NAME",
    "CatalogConfig",
    "ClientCredentials",
    "CompactPolicy",
    "ExpirePolicy",
    "FloeSpec",
    "LocalStorageConfig",
    "MaintenanceConfig",
    "ObservabilityConfig",
    "OrphanPolicy",
    "PipelineConfig",
    "PluginSettings",
    "PolarisCatalogConfig",
    "ResponseLimits",
    "RestCatalogConfig",
    "RetryConfig",
    "S3StorageConfig",
    "SparkConfig",
    "SqlCatalogConfig",
    "StorageConfig",
    "TablesConfig",
    "conf_problem",
]


_ALLOW_INSECURE = "allow an unencrypted connection to another machine; credentials and data are readable on the way"


class _Reachable(Settings):
    """Settings of a server that may be reached without encryption."""

    allow_insecure: bool = Field(default=False, description=_ALLOW_INSECURE)

    def _check_transport(self, *problems: str | None) -> None:
        messages = [problem for problem in problems if problem is not None]
        if messages and not self.allow_insecure:
            raise ValueError("; ".join(messages))


class RetryConfig(Settings):
    """Retries and backoff of catalog operations."""

    max_attempts: int = Field(default=3, ge=1, le=10)
    initial_wait_seconds: float = Field(default=1.0, ge=0.1, le=30.0)
    max_wait_seconds: float = Field(default=30.0, ge=1.0, le=300.0)
    jitter_seconds: float = Field(default=1.0, ge=0.0, le=10.0)
    circuit_breaker_threshold: int = Field(default=5, ge=0, description="0 disables the circuit breaker")


class CatalogConfig(Settings):
    """Settings of every catalog."""

    type: str
    retry: RetryConfig = RetryConfig()


class SqlCatalogConfig(CatalogConfig):
    """A catalog in tables of a database that PyIceberg and Spark share: an SQLite file, or PostgreSQL."""

    type: Literal["sql"] = "sql"
    uri: str = Field(
        default="sqlite:///.floe/catalog.db",
        description="sqlite:///path relative to floe.yaml, or postgresql://user:${env:PGPASSWORD}@host:5432/database",
    )
    name: CatalogName = Field(
        default=CATALOG_NAME,
        description="name of the catalog in that database and in Spark SQL; tables under other names are not visible",
    )

    @model_validator(mode="after")
    def _check_uri(self) -> Self:
        if is_reference(self.uri):
            return self
        if is_postgres(self.uri):
            problem = postgres_problem(self.uri)
            if problem:
                raise ValueError(f"uri: {problem}")
        elif not re.fullmatch(r"sqlite:///[^?]+", self.uri):
            raise ValueError(
                "uri: write sqlite:///path/to/catalog.db, with the path relative to floe.yaml, or "
                "postgresql://user:${env:PGPASSWORD}@host:5432/database"
            )
        return self


class ClientCredentials(Settings):
    """OAuth2 client credentials."""

    client_id: str = Field(min_length=1)
    client_secret: Secret

    @field_validator("client_id")
    @classmethod
    def _check_client_id(cls, client_id: str) -> str:
        if ":" in client_id and not is_reference(client_id):
            raise ValueError(
                "a client id must not contain a colon: Spark separates id and secret by a colon; request another one"
            )
        return client_id


class ResponseLimits(Settings):
    """Limits on the responses of a catalog server. A larger, slower or deeper response is refused."""

    response_bytes: Size = Field(
        default=256 * 2**20, description="one response, or all pages of a listing, decompressed"
    )
    seconds: float = Field(default=900.0, gt=0, description="from the request to the last byte of its response")
    pages: int = Field(default=10_000, ge=1, description="of one listing")
    depth: int = Field(default=100, ge=1, description="nesting depth of a response's JSON")
    lists: int = Field(default=5_000_000, ge=1, description="lists and objects in a response's JSON, which cost memory")


class RestCatalogConfig(CatalogConfig, _Reachable):
    """Any Iceberg REST catalog."""

    type: Literal["rest"] = "rest"
    uri: str
    warehouse: str = Field(min_length=1)
    auth: Literal["oauth2", "none"] = "oauth2"
    credentials: ClientCredentials | None = None
    token: Secret | None = None
    scope: str = "PRINCIPAL_ROLE:ALL"
    oauth2_server_uri: str | None = None
    token_refresh_enabled: bool = True
    access_delegation: Literal["vended-credentials", "none"] = Field(
        default="vended-credentials",
        description="none: files are accessed with the keys in `storage`, or with the machine's own credentials",
    )
    timeout_seconds: float = Field(default=60.0, gt=0, le=600.0, description="how long a response may take")
    ca_bundle: str | None = Field(
        default=None, description="a PEM file with the certificate authorities to trust, relative to floe.yaml"
    )
    limits: ResponseLimits = Field(default=ResponseLimits(), description="on the server's responses, for PyIceberg")
    properties: dict[str, Text] = Field(
        default_factory=dict, description="passed to both engines: header.NAME and a few others, no secrets"
    )

    @field_validator("properties")
    @classmethod
    def _check_properties(cls, properties: dict[str, str]) -> dict[str, str]:
        problems = [rest_property_problem(key, value) for key, value in properties.items()]
        messages = [problem for problem in problems if problem is not None]
        if messages:
            raise ValueError("; ".join(messages))
        return properties

    @model_validator(mode="after")
    def _check_auth(self) -> Self:
        given = self.credentials is not None or self.token is not None
        if self.auth == "oauth2" and not given:
            raise ValueError(
                "no way to authenticate: set credentials: {client_id, client_secret} or token, "
                "or set auth: none if the catalog needs no authentication"
            )
        if self.auth == "none" and given:
            raise ValueError("auth: none contradicts credentials and token; remove one of them")
        if self.credentials is not None and self.token is not None:
            raise ValueError("credentials and token are mutually exclusive: keep one, and set the other to null")
        if self.token is not None and self.oauth2_server_uri is not None:
            raise ValueError("oauth2_server_uri is where credentials are exchanged for a token; with token, remove it")
        for name in ("uri", "oauth2_server_uri"):
            address = getattr(self, name)
            if address is None or is_reference(address):
                continue
            if not re.match(r"https?://[^/\s]", address):
                raise ValueError(f"{name}: write an address that starts with https:// (or http:// for a local server)")
            if name == "uri" and re.search(r"[?#]", address):
                raise ValueError("uri: remove what follows ? or #; a catalog's address ends with its path")
        self._check_transport(
            plain_http_problem("uri", self.uri), plain_http_problem("oauth2_server_uri", self.oauth2_server_uri)
        )
        return self


class PolarisCatalogConfig(RestCatalogConfig):
    """An Apache Polaris catalog."""

    type: Literal["polaris"] = "polaris"  # type: ignore[assignment]  # narrows the tag of its parent
    realm: str | None = Field(
        default=None,
        pattern=r"^[\x21-\x7e]+$",
        description="realm of a server with several; by default the server's default realm",
    )


class StorageConfig(Settings):
    """Settings of every storage."""

    type: str


class LocalStorageConfig(StorageConfig):
    """Files on this machine; the path is relative to floe.yaml."""

    type: Literal["local"] = "local"
    path: str = Field(default=".floe/warehouse", min_length=1)


class S3StorageConfig(StorageConfig, _Reachable):
    """S3 and S3-compatible object stores."""

    type: Literal["s3"] = "s3"
    bucket: str = Field(min_length=1)
    endpoint: str | None = None
    region: str | None = None
    path_style_access: bool = False
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "${" not in self.bucket and re.search(r"[/:\s]", self.bucket):
            raise ValueError("bucket: write its name only, without s3:// and without a path")
        if (
            self.endpoint is not None
            and re.search(r"^\s*$|@|^[\w.-]+:\d+", self.endpoint)
            and "${" not in self.endpoint
        ):
            raise ValueError("endpoint: write https://host:port (or http:// for a local store), and nothing more")
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key belong together: set both or neither")
        self._check_transport(plain_http_problem("endpoint", self.endpoint))
        return self


class PluginSettings(Shown):
    """A catalog or storage from an installed plugin, which checks the keys itself."""

    model_config = ConfigDict(extra="allow")

    # Without the `not`, a misspelt key of a built-in type would pass as the key of some plugin.
    type: str = Field(json_schema_extra={"not": {"enum": ["sql", "rest", "polaris", "local", "s3"]}})


def _tag_of(default: str, known: frozenset[str]) -> Discriminator:
    def tag(value: Any) -> str:
        kind = value.get("type", default) if isinstance(value, dict) else getattr(value, "type", default)
        if not isinstance(kind, str):
            return default
        return kind if kind in known else "plugin"

    return Discriminator(tag)


Catalog = Annotated[
    Annotated[SqlCatalogConfig, Tag("sql")]
    | Annotated[RestCatalogConfig, Tag("rest")]
    | Annotated[PolarisCatalogConfig, Tag("polaris")]
    | Annotated[PluginSettings, Tag("plugin")],
    _tag_of("sql", frozenset({"sql", "rest", "polaris"})),
]
Storage = Annotated[
    Annotated[LocalStorageConfig, Tag("local")]
    | Annotated[S3StorageConfig, Tag("s3")]
    | Annotated[PluginSettings, Tag("plugin")],
    _tag_of("local", frozenset({"local", "s3"})),
]


def conf_problem(key: str) -> str:
    return f"{key} is set by Floe, so that both engines see one catalog and one time zone (UTC); remove it"


def _check_conf_key(key: str) -> str:
    owned = ("spark.master", "spark.remote", "spark.sql.defaultCatalog", "spark.sql.session.timeZone")
    if key in owned:
        raise ValueError(conf_problem(key))
    if not key.startswith("spark."):
        raise ValueError(f"{key} is not a Spark setting: they start with 'spark.'")
    return key


class SparkConfig(_Reachable):
    """Where Spark runs. A master starts Spark from here, a remote is a Spark Connect server."""

    master: str | None = None
    remote: str | None = None
    conf: dict[Annotated[str, AfterValidator(_check_conf_key)], Text] = Field(default_factory=dict)
    jars: str | None = Field(default=None, description="a jar or a folder of jars, instead of Maven coordinates")

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        if self.master and self.remote:
            raise ValueError("master and remote are mutually exclusive: keep one")
        if self.remote and not is_reference(self.remote) and not self.remote.startswith("sc://"):
            raise ValueError("remote: write the Spark Connect server as sc://host:15002")
        self._check_transport(plain_spark_problem("remote", self.remote))
        return self


_FOLDER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/*[^/]|(?![A-Za-z][A-Za-z0-9+.-]+:).*[^/.]", re.DOTALL)


class TablesConfig(Settings):
    """Defaults for the tables Floe creates."""

    default_namespace: Name = "public"
    ignore_key_prefix: bool = Field(
        default=False, description="store all assets in default_namespace, each under the last part of its key"
    )
    properties: dict[str, Text] = Field(default_factory=dict)
    owned_locations: tuple[str, ...] = Field(
        default=(),
        description="locations outside of the warehouse at and below which maintenance and purge may delete files of "
        "tables, such as s3://bucket/path; a path without a scheme is relative to floe.yaml",
    )

    @field_validator("owned_locations")
    @classmethod
    def _check_owned_locations(cls, locations: tuple[str, ...]) -> tuple[str, ...]:
        for location in locations:
            if not is_reference(location) and not _FOLDER.match(location):
                raise ValueError(
                    f"owned_locations: {location!r} is not a folder; write s3://bucket/path, or a local path"
                )
            if ".." in location.split("/"):
                raise ValueError(f"owned_locations: {location!r} contains '..'; write the path without it")
        return locations


def _check_module(name: str) -> str:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"{name!r} is not a Python module: write it as package.module")
    return name


Publish = Literal["asset", "run", "one-by-one"]

# The environment variable that overrides `pipeline.publish`; `floe run --atomic` sets it.
PUBLISH_VARIABLE = "FLOE_PUBLISH"
# The environment variable that overrides `branch`; `floe run --branch` sets it. `main` means no branch.
BRANCH_VARIABLE = "FLOE_BRANCH"
MAIN = "main"


class PipelineConfig(Settings):
    """The Python module that holds the Dagster definitions, and when what it writes becomes visible."""

    definitions: Annotated[str, AfterValidator(_check_module)] = "definitions"
    publish: Publish = Field(
        default="asset",
        description="run: all tables of a run become visible in one commit, when it has succeeded; one-by-one: the "
        "same, in one commit for each table if the catalog server cannot commit several at once",
    )


class ObservabilityConfig(_Reachable):
    """Where logs and traces go."""

    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    otlp_endpoint: str | None = None

    @model_validator(mode="after")
    def _check_endpoint(self) -> Self:
        self._check_transport(plain_http_problem("otlp_endpoint", self.otlp_endpoint))
        return self


def _check_branch(name: str) -> str:
    return name if name == MAIN else check_branch_name(name)


class FloeSpec(Settings):
    """floe.yaml with the overlay of one environment applied."""

    name: Name
    version: str = "0.1.0"
    protected: bool = Field(default=False, description="destructive commands need --yes")
    branch: Annotated[str, AfterValidator(_check_branch)] | None = Field(
        default=None, description="the branch of the lake that this environment reads and writes; by default main"
    )
    catalog: Catalog = SqlCatalogConfig()
    storage: Storage = LocalStorageConfig()
    spark: SparkConfig = SparkConfig()
    tables: TablesConfig = TablesConfig()
    maintenance: MaintenanceConfig = MaintenanceConfig()
    pipeline: PipelineConfig = PipelineConfig()
    checks: dict[str, tuple[TableCheck, ...]] = Field(
        default_factory=dict, description="what must hold of the rows of a table, by the name of the table"
    )
    observability: ObservabilityConfig = ObservabilityConfig()

    @field_validator("checks")
    @classmethod
    def _check_checks(cls, checks: dict[str, tuple[TableCheck, ...]]) -> dict[str, tuple[TableCheck, ...]]:
        known: dict[str, str] = {}
        for table, given in checks.items():
            check_table(table)
            other = known.setdefault(table.lower(), table)
            if other != table:
                raise ValueError(f"{other} and {table} are one table to Spark; write its checks below one name")
            names = [check_name(check) for check in given]
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"{table} has two checks called {name}; give one of them a name of its own")
        try:
            refuse_shared_quarantines({TableIdentifier.from_string(table): given for table, given in checks.items()})
        except ConfigurationError as exc:
            raise ValueError(str(exc)) from None
        return checks
