"""What Spark is told about a catalog in PostgreSQL, and what is said where the driver is missing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from floe_core.config.spec import SqlCatalogConfig
from floe_core.errors import ConfigurationError
from floe_core.jvm import POSTGRESQL_JDBC
from floe_core.security.redaction import SPARK_REDACTION_REGEX, is_credential_key
from floe_iceberg.catalogs.sql import SqlCatalogPlugin


def plugin(uri: str, root: Path = Path("/project")) -> SqlCatalogPlugin:
    return SqlCatalogPlugin(SqlCatalogConfig(uri=uri), root=root)


def test_user_and_password_reach_spark_beside_the_address_and_not_in_it() -> None:
    database = plugin("postgresql://o%27neil:p%40ss%20word@db.example.com/my%20shop").database
    settings = database.jdbc_settings()
    assert settings["uri"] == "jdbc:postgresql://db.example.com:5432/my%20shop"
    assert (settings["jdbc.user"], settings["jdbc.password"]) == ("o'neil", "p@ss word")
    assert database.jdbc_jar == POSTGRESQL_JDBC
    assert [key for key, value in settings.items() if "p@ss" in value] == ["jdbc.password"]


def test_what_spark_must_not_show_is_known_as_a_credential() -> None:
    key = "spark.sql.catalog.lake.jdbc.password"
    assert is_credential_key(key)
    assert re.search(SPARK_REDACTION_REGEX, key)


def test_without_a_password_none_is_given() -> None:
    assert "jdbc.password" not in plugin("postgresql://anna@[::1]/shop").database.jdbc_settings()


def test_spark_gives_up_on_a_silent_server_as_pyiceberg_does(tmp_path: Path) -> None:
    uri = "postgresql://anna@[::1]/shop?sslmode=verify-full&sslrootcert=ca.pem"
    settings = plugin(uri, tmp_path).database.jdbc_settings()
    assert settings["uri"] == "jdbc:postgresql://[::1]:5432/shop"
    assert (settings["jdbc.connectTimeout"], settings["jdbc.socketTimeout"]) == ("10", "30")
    assert (settings["jdbc.sslmode"], settings["jdbc.sslrootcert"]) == ("verify-full", str(tmp_path / "ca.pem"))


def test_a_missing_driver_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "floe_iceberg.catalogs.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "pg8000", None)
    with pytest.raises(ConfigurationError, match=r"pg8000 is missing.*pip install 'floe-iceberg\[postgres\]'"):
        plugin("postgresql://anna:planted@h/shop").connect()
