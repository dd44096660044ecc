"""floe.yaml: the spec, the compiler and the compiled contract."""

from floe_core.config.artifacts import CompiledArtifacts, contract_path, unreadable_contract
from floe_core.config.catalog_name import CATALOG_NAME
from floe_core.config.documents import read_document
from floe_core.config.json_schema import schema_path, write_spec_schema
from floe_core.config.policy import CompactionStrategy, CompactPolicy, MaintenanceConfig, MaintenancePolicy, policy_of
from floe_core.config.postgres_address import PostgresAddress, is_postgres
from floe_core.config.references import is_reference, resolve_model, uri_password
from floe_core.config.rest_properties import header_properties
from floe_core.config.settings import duration_text
from floe_core.config.spec import (
    ClientCredentials,
    LocalStorageConfig,
    PipelineConfig,
    PolarisCatalogConfig,
    ResponseLimits,
    RestCatalogConfig,
    RetryConfig,
    S3StorageConfig,
    SparkConfig,
    SqlCatalogConfig,
    Storage,
    StorageConfig,
)

__all__ = [
    "CATALOG_NAME",
    "ClientCredentials",
    "CompactPolicy",
    "CompactionStrategy",
    "CompiledArtifacts",
    "LocalStorageConfig",
    "MaintenanceConfig",
    "MaintenancePolicy",
    "PipelineConfig",
    "PolarisCatalogConfig",
    "PostgresAddress",
    "ResponseLimits",
    "RestCatalogConfig",
    "RetryConfig",
    "S3StorageConfig",
    "SparkConfig",
    "SqlCatalogConfig",
    "Storage",
    "StorageConfig",
    "contract_path",
    "duration_text",
    "header_properties",
    "is_postgres",
    "is_reference",
    "policy_of",
    "read_document",
    "resolve_model",
    "schema_path",
    "unreadable_contract",
    "uri_password",
    "write_spec_schema",
]
