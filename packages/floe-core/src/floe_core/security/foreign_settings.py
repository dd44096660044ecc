"""Which settings a catalog server or a table may send: an allow-list, for both engines.

Servers send settings in `/v1/config` and with each table; tables carry properties that any writer may set. Both engines
act on them: they load classes, choose hosts, and replace credentials. This module decides which of them are applied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urljoin, urlsplit

__all__ = [
    "PYTHON_LOCATION_PROVIDER",
    "OwnSettings",
    "Sifted",
    "java_refusals",
    "sift",
    "table_refusals",
    "vended_stores",
]

PYTHON_LOCATION_PROVIDER: Final = "write.py-location-provider.impl"


@dataclass(frozen=True)
class OwnSettings:
    """The project's own settings; nothing that a server sends replaces them.

    Args:
        uri: The address of the catalog.
        token_uri: Where credentials are exchanged for a token.
        engine: An engine's settings for this catalog; a server may send one again with the same value.
    """

    uri: str
    token_uri: str
    engine: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Sifted:
    """The accepted settings, and the names of the refused ones that an engine would have acted on."""

    kept: dict[str, str]
    dropped: tuple[str, ...]


_Check = Callable[[str], bool]


def _matches(pattern: str) -> _Check:
    compiled = re.compile(pattern)
    return lambda value: compiled.fullmatch(value) is not None


_SECRET = _matches(r"[\x21-\x7e]+")
_BOOLEAN = _matches(r"(?i)true|false")
_NUMBER = _matches(r"\d{1,18}")
_REGION = _matches(r"[A-Za-z0-9-]{1,40}")


def _is_prefix(value: str) -> bool:
    """A part of a path on the same server; names of catalogs may have spaces and letters of any language."""
    return re.search(r"[?#\\\x00-\x1f\x7f]", value) is None and ".." not in unquote(value).split("/")


# Settings of the protocol. None of these names code, a host or a credential.
_PROTOCOL: dict[str, _Check] = {
    "prefix": _is_prefix,
    "namespace-separator": lambda value: 0 < len(unquote(value)) <= 8 and value.isascii(),
    "rest-page-size": _matches(r"[1-9]\d{0,8}"),
    "view-endpoints-supported": _BOOLEAN,
    "rest-metrics-reporting-enabled": _BOOLEAN,
}
_ICEBERG_FILE_IOS: Final = (
    "org.apache.iceberg.aws.s3.S3FileIO",
    "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
    "org.apache.iceberg.gcp.gcs.GCSFileIO",
    "org.apache.iceberg.io.ResolvingFileIO",
)
# Settings for Java that PyIceberg does not use. Any warehouse passes: the request already named the project's own.
_JAVA_ONLY: dict[str, _Check] = {
    "warehouse": lambda _value: True,
    "snapshot-loading-mode": lambda value: value.lower() == "all",  # refs would hide writes from their retries
    "scan-planning-mode": _matches(r"(?i)client|server"),
    "io-impl": lambda value: value in _ICEBERG_FILE_IOS,
    "s3.remote-signing-enabled": lambda value: value.lower() == "false",
    "client.refresh-credentials-enabled": _BOOLEAN,
    "gcs.oauth2.refresh-credentials-enabled": _BOOLEAN,
    "adls.refresh-credentials-enabled": _BOOLEAN,
    "s3.use-arn-region-enabled": _BOOLEAN,
}
# Addresses that receive the project's token or credentials: allowed only on the server that already receives them.
_CATALOG_ADDRESSES = (
    "uri",
    "client.refresh-credentials-endpoint",
    "gcs.oauth2.refresh-credentials-endpoint",
    "adls.refresh-credentials-endpoint",
)
_TOKEN_ADDRESS = "oauth2-server-uri"  # noqa: S105 - the name of a setting
# Allowed only for stores whose credentials the server vends.
_STORAGE: dict[str, _Check] = {
    "s3.access-key-id": _SECRET,
    "s3.secret-access-key": _SECRET,
    "s3.session-token": _SECRET,
    "s3.endpoint": _matches(r"https?://[^\s/@]+(/[^\s?#]*)?"),
    "s3.cross-region-access-enabled": _BOOLEAN,
    "gcs.oauth2.token": _SECRET,
    "gcs.project-id": _matches(r"[a-z0-9:.-]{1,64}"),
}
# Also allowed for Java without vended credentials: they choose neither a host nor an account.
_STORAGE_FORM: dict[str, _Check] = {
    "s3.session-token-expires-at-ms": _NUMBER,
    "s3.path-style-access": _BOOLEAN,
    "s3.region": _REGION,
    "client.region": _REGION,
    "gcs.oauth2.token-expires-at": _NUMBER,
}
_STORAGE_FAMILIES: dict[str, _Check] = {"adls.sas-token.": _SECRET, "adls.sas-token-expires-at-ms.": _NUMBER}

# The first words of all settings that Iceberg's Java and Python clients read. Any other setting has no effect, such as
# the free-form properties of its catalogs that Polaris sends. A test compares this with the pinned jars.
_ENGINES_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        access adls audience auth aws azure cache catalog cert client clients credential credentials
        downcast dynamodb encryption fs gcp gcs glue hadoop hdfs header hf hive http io jdbc kms
        lakeformation lock metrics namespace oauth2 oss parquet prefix py resource rest s3 scan scope signer
        snapshot snowflake ssl table token unique uri view warehouse write
        """,
    )
)
# The suffixes of settings of Iceberg and Hadoop that name a class.
_CLASS = re.compile(r"(?i)[.-](impl|class|classes|factory|provider)$")


def vended_stores(sent: Mapping[str, Any]) -> frozenset[str]:
    """The stores for which complete credentials were sent: `s3`, `gcs`, `adls`."""
    stores = {
        "s3": "s3.access-key-id" in sent and "s3.secret-access-key" in sent,
        "gcs": "gcs.oauth2.token" in sent,
        "adls": any(key.startswith("adls.sas-token.") for key in sent),
    }
    return frozenset(store for store, is_vended in stores.items() if is_vended)


def sift(sent: Mapping[str, Any], own: OwnSettings, *, vended: Collection[str] = ()) -> Sifted:
    """The server's settings that PyIceberg may use; the project's own are not included.

    Args:
        vended: The stores whose credentials were requested, and sent with these settings.
    """
    kept: dict[str, str] = {}
    dropped = []
    for key, value in sent.items():
        if key in _JAVA_ONLY and _passes(_JAVA_ONLY[key], value):
            continue
        if _is_allowed(key, value, own, vended=vended):
            kept[key] = value
        elif _is_known_to_engines(key) and not _repeats(key, value, own):
            dropped.append(key)
    return Sifted(kept, tuple(sorted(dropped)))


def java_refusals(sent: Mapping[str, Any], own: OwnSettings, *, vended: Collection[str] = ()) -> list[str]:
    """The settings because of which Spark must not use this server: Java lets them override the project's own."""
    return sorted(key for key, value in sent.items() if not _is_harmless_to_java(key, value, own, vended=vended))


def _is_harmless_to_java(key: str, value: Any, own: OwnSettings, *, vended: Collection[str] = ()) -> bool:
    if not _is_trimmed(key):
        return False
    for prefix in ("table-default.", "table-override.", "view-default.", "view-override."):
        if key.startswith(prefix):
            return not table_refusals({key.removeprefix(prefix): value})
    if key.startswith("py-") or not _is_known_to_engines(key) or _repeats(key, value, own):
        return True
    if key in _JAVA_ONLY:
        return _passes(_JAVA_ONLY[key], value)
    if key in _STORAGE_FORM:
        return _passes(_STORAGE_FORM[key], value)
    return _is_allowed(key, value, own, vended=vended)


def _is_allowed(key: str, value: Any, own: OwnSettings, *, vended: Collection[str] = ()) -> bool:
    if not isinstance(value, str):
        return False
    if key in _CATALOG_ADDRESSES:
        return _is_same_server(own.uri, value)
    if key == _TOKEN_ADDRESS:
        return _is_same_server(own.token_uri, value)
    if key in _PROTOCOL:
        return _passes(_PROTOCOL[key], value)
    check = _STORAGE.get(key) or _STORAGE_FORM.get(key)
    check = check or next((family for prefix, family in _STORAGE_FAMILIES.items() if key.startswith(prefix)), None)
    return _store_of(key) in vended and check is not None and _passes(check, value)


def _store_of(key: str) -> str:
    word = key.partition(".")[0]
    return "s3" if word == "client" else word


def _passes(check: _Check, value: Any) -> bool:
    return isinstance(value, str) and check(value)


def _repeats(key: str, value: Any, own: OwnSettings) -> bool:
    mine = own.engine.get(key)
    return mine is not None and isinstance(value, str) and mine.rstrip("/") == value.rstrip("/")


def _is_known_to_engines(key: str) -> bool:
    return re.split(r"[^a-z0-9]", key.lower(), maxsplit=1)[0] in _ENGINES_WORDS or _CLASS.search(key) is not None


def _is_same_server(own: str, sent: str) -> bool:
    """Scheme, host and port are those of the project's own address; a path alone is on the same server."""
    if re.search(r"[\x00-\x20\\]", sent):  # parsers disagree about these characters
        return False
    try:
        expected, actual = urlsplit(own), urlsplit(urljoin(own, sent))
        return _origin(expected) == _origin(actual) and actual.username is None and bool(actual.hostname)
    except ValueError:
        return False


def _origin(parts: Any) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


# Table properties ---------------------------------------------------------------------------------------------------

# Properties of tables that Iceberg's Java code reads: numbers, booleans, names of columns, and paths.
_TABLE_FAMILIES = (
    "comment",
    "commit.",
    "compatibility.",
    "engine.hive.",
    "format-version",
    "gc.enabled",
    "history.",
    "iceberg.",
    "identifier-fields.",
    "read.",
    "replace.",
    "schema.name-mapping.",
    "version.",
    "write.avro.",
    "write.data.",
    "write.delete.",
    "write.distribution-mode",
    "write.fanout.",
    "write.folder-storage.",
    "write.format.",
    "write.manifest",
    "write.merge.",
    "write.metadata.",
    "write.object-storage.",
    "write.orc.",
    "write.parquet.",
    "write.spark.",
    "write.summary.",
    "write.target-file-size-bytes",
    "write.update.",
    "write.upsert.",
    "write.wap.",
)
_OF_A_COLUMN = re.compile(r"write\.(metadata\.metrics|parquet\.[a-z-]+)\.column\..+")  # columns may have any name
# Set on tables by Hive and Spark: numbers, and names of Parquet's own codecs.
_OF_PARQUET = re.compile(
    r"parquet\.(compression|block\.size|page\.size|dictionary\.page\.size|enable\.dictionary|writer\.version)"
)
# The first words of properties that the Java code of Iceberg, Parquet or Hadoop reads: Iceberg's Parquet writers copy
# all properties of a table into Hadoop's settings.
_TABLE_WORDS = frozenset(["encryption", "hadoop", "io", "parquet", "write"])
_HADOOPS_WORDS = frozenset(["hive", "java", "javax", "mapred", "mapreduce", "net", "org", "yarn"])


# Settings of Hadoop's file systems: classes, addresses and credentials.
_FILE_SYSTEM_WORDS = frozenset(["dfs", "fs", "ipc"])


def _is_trimmed(key: str) -> bool:
    """Hadoop trims the names of settings as Java does: ` fs.s3a.impl` would become another name there."""
    return not key or (key[0] > " " and key[-1] > " ")


def table_refusals(properties: Mapping[str, Any]) -> list[str]:
    """The properties because of which Spark must not use a table: Java would load a class or contact a key server."""
    return sorted(key for key in properties if not _is_harmless_table_property(key))


def _is_harmless_table_property(key: str) -> bool:
    if key == PYTHON_LOCATION_PROVIDER or _OF_A_COLUMN.fullmatch(key):  # Java ignores the first one
        return True
    word = re.split(r"[^a-z0-9]", key.lower(), maxsplit=1)[0]
    if not _is_trimmed(key) or word in _FILE_SYSTEM_WORDS:
        return False
    if word == "write" and not key.lower().startswith("write."):  # Iceberg ignores Athena's write_compression
        return True
    if _CLASS.search(key) and word in _TABLE_WORDS | _HADOOPS_WORDS | _ENGINES_WORDS - {"py"}:
        return False
    return word not in _TABLE_WORDS or key.startswith(_TABLE_FAMILIES) or _OF_PARQUET.fullmatch(key) is not None
