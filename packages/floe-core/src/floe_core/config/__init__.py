"""floe.yaml: the spec, the compiler and the compiled contract."""

from floe_core.config.artifacts import CompiledArtifacts, contract_path, unreadable_contract
from floe_core.config.catalog_name import CATALOG_NAME
from floe_core.config.checks import (
    AcceptedValues,
    CheckScope,
    CheckValue,
    CustomQuery,
    DeclaredColumns,
    Freshness,
    Reference,
    RowCount,
    TableCheck,
    ValueRange,
    check_name,
)
from floe_core.config.documents import read_document
from floe_core.config.json_schema import schema_path, write_spec_schema
from floe_core.config.policy import CompactionStrategy, CompactPolicy, MaintenanceConfig, MaintenancePolicy, policy_of
from floe_core.config.postgres_address import PostgresAddress, is_postgres
from floe_core.config.quarantine import quarantine_of, refuse_shared_quarantines
from floe_core.config.references import is_reference, resolve_model, uri_password
from floe_core.config.rest_properties import header_properties
from floe_core.config.settings import duration_text
from floe_core.config.spec import (
    BRANCH_VARIABLE,
    MAIN,
    PUBLISH_VARIABLE,
    ClientCredentials,
    LocalStorageConfig,
    PipelineConfig,
    PolarisCatalogConfig,
    Publish,
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
    "BRANCH_VARIABLE",
    "CATALOG_NAME",
    "MAIN",
    "PUBLISH_VARIABLE",
    "AcceptedValues",
    "CheckScope",
    "CheckValue",
    "ClientCredentials",
    "CompactPolicy",
    "CompactionStrategy",
    "CompiledArtifacts",
    "CustomQuery",
    "DeclaredColumns",
    "Freshness",
    "LocalStorageConfig",
    "MaintenanceConfig",
    "MaintenancePolicy",
    "PipelineConfig",
    "PolarisCatalogConfig",
    "PostgresAddress",
    "Publish",
    "Reference",
    "ResponseLimits",
    "RestCatalogConfig",
    "RetryConfig",
    "RowCount",
    "S3StorageConfig",
    "SparkConfig",
    "SqlCatalogConfig",
    "Storage",
    "StorageConfig",
    "TableCheck",
    "ValueRange",
    "check_name",
    "contract_path",
    "duration_text",
    "header_properties",
    "is_postgres",
    "is_reference",
    "policy_of",
    "quarantine_of",
    "read_document",
    "refuse_shared_quarantines",
    "resolve_model",
    "schema_path",
    "unreadable_contract",
    "uri_password",
    "write_spec_schema",
]
