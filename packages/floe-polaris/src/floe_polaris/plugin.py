"""Catalog plugins `rest` and `polaris`: one connection for PyIceberg, the same settings for Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from requests.utils import get_environ_proxies, select_proxy

from floe_core import __version__
from floe_core.config import PolarisCatalogConfig, RestCatalogConfig, resolve_model
from floe_core.errors import FloeStorageError, NamespaceNotFoundError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.observability import operation
from floe_core.plugins import FLOE_API_VERSION, CatalogPlugin, HealthStatus, PluginMetadata, StoragePlugin
from floe_iceberg.catalogs import files_of
from floe_iceberg.errors import translated
from floe_polaris.ca_bundle import java_trust_options
from floe_polaris.catalog import PolarisCatalog, create_catalog, extra_headers
from floe_polaris.http import CONNECT_SECONDS, USER_AGENT
from floe_polaris.responses import checked_token
from floe_polaris.transport_errors import address, shown

__all__ = ["PolarisCatalogPlugin", "RestCatalogPlugin"]


_OWN_ENDPOINT = "; if s3.endpoint is right, set storage.endpoint in floe.yaml to the same address"


class RestCatalogPlugin(CatalogPlugin):
    """Any catalog with Iceberg's REST protocol."""

    metadata: ClassVar[PluginMetadata] = PluginMetadata(
        name="rest", version=__version__, floe_api_version=FLOE_API_VERSION, description="an Iceberg REST catalog"
    )

    def __init__(self, config: RestCatalogConfig, *, root: Path) -> None:
        self._config = config
        self._root = root
        self._lock = threading.Lock()
        self._catalog: PolarisCatalog | None = None

    @classmethod
    def get_config_schema(cls) -> type[RestCatalogConfig]:
        return RestCatalogConfig

    def connect(self) -> PolarisCatalog:
        with self._lock:
            if self._catalog is None:
                properties = self.storage.get_pyiceberg_properties() if self.storage is not None else {}
                self._catalog = create_catalog(
                    self._config, root=self._root, file_properties=properties, file_io=_own_file_io(self.storage)
                )
            return self._catalog

    def shutdown(self) -> None:
        with self._lock:
            if self._catalog is not None:
                self._catalog.close()
                self._catalog = None

    def health_check(self) -> HealthStatus:
        settings = resolve_model(self._config, root=self._root)
        count = len(self.list_namespaces())
        return HealthStatus(
            healthy=True, message=f"{settings.warehouse} at {address(settings.uri)} ({count} namespaces)"
        )

    def diagnose(self) -> Iterator[tuple[str, Callable[[], str]]]:
        from floe_polaris.diagnosis import Diagnosis

        return Diagnosis(self._config, root=self._root, plugin=self).steps()

    def get_spark_conf(self, catalog_name: str, warehouse: str) -> dict[str, str]:
        del warehouse  # the server locates its tables
        settings = resolve_model(self._config, root=self._root)
        prefix = f"spark.sql.catalog.{catalog_name}"
        properties = {
            **settings.properties,
            "type": "rest",
            "uri": settings.uri.rstrip("/"),
            "warehouse": settings.warehouse,
            "rest.client.user-agent": USER_AGENT,
            "rest.client.connection-timeout-ms": str(int(min(CONNECT_SECONDS, settings.timeout_seconds) * 1000)),
            "rest.client.socket-timeout-ms": str(int(settings.timeout_seconds * 1000)),
            "rest.client.max-retries": str(max(settings.retry.max_attempts - 1, 1)),  # 0 is refused
            **self._spark_auth(settings),
            **self._spark_proxy(settings.uri),
            **{f"header.{key}": value for key, value in extra_headers(settings).items()},
        }
        if settings.access_delegation != "none":
            properties["header.X-Iceberg-Access-Delegation"] = settings.access_delegation
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            **{f"{prefix}.{key}": value for key, value in properties.items()},
            **self._spark_trust(settings),
        }

    def check_for_spark(self) -> None:
        """Java fetches /v1/config itself and lets it override the project's settings."""
        catalog = self.connect()
        refused = catalog.sent_settings.refused_for_spark
        if refused:
            raise FloeStorageError(
                f"Spark cannot use the catalog at {address(catalog.uri)}: it sends {shown(', '.join(refused))} in "
                f"/v1/config, which only the project may set; Java would load the classes that these name, or send "
                f"credentials to these addresses. Remove them on the server, and check catalog.uri"
                f"{_OWN_ENDPOINT if 's3.endpoint' in refused else ''}. Operations without Spark still work"
            )

    def _spark_trust(self, settings: RestCatalogConfig) -> dict[str, str]:
        if settings.ca_bundle is None:
            return {}
        options = java_trust_options(self._root / settings.ca_bundle, self._root / ".floe")
        return {"spark.driver.extraJavaOptions": options}

    @staticmethod
    def _spark_auth(settings: RestCatalogConfig) -> dict[str, str]:
        if settings.token is not None:
            return {
                "rest.auth.type": "oauth2",
                "token": checked_token(settings.token.get_secret_value()),
                "token-refresh-enabled": "false",
            }
        if settings.credentials is None:
            return {"rest.auth.type": "none"}
        secret = settings.credentials.client_secret.get_secret_value()
        return {
            "rest.auth.type": "oauth2",
            "credential": f"{settings.credentials.client_id}:{secret}",
            "scope": settings.scope,
            "oauth2-server-uri": settings.oauth2_server_uri or f"{settings.uri.rstrip('/')}/v1/oauth/tokens",
            "token-refresh-enabled": str(settings.token_refresh_enabled).lower(),
            # Renewed with the credentials; not every server exchanges one token for another.
            "token-exchange-enabled": "false",
        }

    @staticmethod
    def _spark_proxy(uri: str) -> dict[str, str]:
        """Java ignores HTTPS_PROXY and NO_PROXY, which Python uses."""
        given = select_proxy(uri, get_environ_proxies(uri))
        if not given:
            return {}
        proxy = urlsplit(given if "://" in given else f"http://{given}")
        properties = {
            "rest.client.proxy.hostname": proxy.hostname or "",
            "rest.client.proxy.port": str(proxy.port or (443 if proxy.scheme == "https" else 80)),
        }
        if proxy.username and proxy.password:
            properties |= {
                "rest.client.proxy.username": unquote(proxy.username),
                "rest.client.proxy.password": unquote(proxy.password),
            }
        return properties

    def create_namespace(self, namespace: str, properties: Mapping[str, str] | None = None) -> None:
        levels = Namespace.from_string(namespace).levels
        with (
            operation("polaris.create_namespace", namespace=namespace, properties=properties),
            translated("create_namespace", namespace, namespace=True),
        ):
            self.connect().create_namespace(levels, dict(properties or {}))

    def list_namespaces(self, parent: str | None = None) -> list[str]:
        levels = Namespace.from_string(parent).levels if parent else ()
        with (
            operation("polaris.list_namespaces", namespace=parent),
            translated("list_namespaces", parent or self._config.warehouse, namespace=True),
        ):
            try:
                namespaces = self.connect().list_namespaces(levels)
            except NoSuchNamespaceError as exc:
                if levels:
                    raise
                raise FloeStorageError(
                    f"the catalog has no warehouse '{self._config.warehouse}', or this principal may not see it; check "
                    f"catalog.warehouse in floe.yaml, and the roles of the principal"
                ) from exc
            # Some servers list grandchildren too.
            return sorted({".".join(name) for name in namespaces if len(name) == len(levels) + 1})

    def delete_namespace(self, namespace: str) -> None:
        levels = Namespace.from_string(namespace).levels
        with (
            operation("polaris.delete_namespace", namespace=namespace),
            translated("delete_namespace", namespace, namespace=True),
        ):
            self.connect().drop_namespace(levels)

    def create_table(self, identifier: str, schema: Any, *, location: str | None = None) -> None:
        table = TableIdentifier.from_string(identifier)
        with translated("create_table", table):
            try:
                self.connect().create_table((*table.namespace, table.name), schema, location=location)
            except NoSuchNamespaceError as exc:
                namespace = ".".join(table.namespace)
                raise NamespaceNotFoundError(
                    f"namespace '{namespace}' not found in catalog; create it before '{table}'"
                ) from exc

    def list_tables(self, namespace: str) -> list[str]:
        levels = Namespace.from_string(namespace).levels
        with translated("list_tables", namespace, namespace=True):
            return sorted(name[-1] for name in self.connect().list_tables(levels))

    def drop_table(self, identifier: str, *, purge: bool = False) -> None:
        table = TableIdentifier.from_string(identifier)
        with translated("drop_table", table):
            catalog = self.connect()
            (catalog.purge_table if purge else catalog.drop_table)((*table.namespace, table.name))

    def vend_credentials(self, table_path: str) -> dict[str, str]:
        """The credentials that the server vends for a table such as `bronze.orders`, and their settings."""
        table = TableIdentifier.from_string(table_path)
        with translated("vend_credentials", table):
            return {key: str(value) for key, value in self.connect().vended((*table.namespace, table.name)).items()}


class PolarisCatalogPlugin(RestCatalogPlugin):
    """Apache Polaris."""

    metadata: ClassVar[PluginMetadata] = PluginMetadata(
        name="polaris", version=__version__, floe_api_version=FLOE_API_VERSION, description="an Apache Polaris catalog"
    )

    @classmethod
    def get_config_schema(cls) -> type[PolarisCatalogConfig]:
        return PolarisCatalogConfig


def _own_file_io(storage: StoragePlugin | None) -> FileIO | None:
    """The FileIO of a storage plugin, unless it is PyIceberg's own, which its properties describe in full."""
    files = files_of(storage) if storage is not None else None
    return None if type(files) is PyArrowFileIO else files
