"""Which settings a session gets, and what is refused before a JVM starts."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from floe_core.config.spec import S3StorageConfig, SparkConfig, SqlCatalogConfig
from floe_core.errors import ConfigurationError
from floe_core.jvm import SQLITE_JDBC
from floe_core.security.redaction import SPARK_REDACTION_REGEX
from floe_iceberg.catalogs.sql import SqlCatalogPlugin
from floe_iceberg.storage.s3 import S3StoragePlugin
from floe_spark.errors import java_classes
from floe_spark.jvm import session
from floe_spark.jvm.launch import without_properties_file
from floe_spark.jvm.session import catalog_conf, session_conf

WORLD = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog", "spark.jars.packages": SQLITE_JDBC}


def conf(root: Path = Path(), **settings: object) -> dict[str, str]:
    return session_conf(SparkConfig.model_validate(settings), WORLD, root=root)


def test_a_local_session_fits_its_cores_and_stays_on_loopback() -> None:
    assert conf()["spark.master"] == "local[*]"
    assert conf()["spark.sql.shuffle.partitions"] == str(max(4, 2 * (os.cpu_count() or 1)))
    assert conf(master="local[8]")["spark.sql.shuffle.partitions"] == "16"
    assert conf(master="local")["spark.sql.shuffle.partitions"] == "4"
    assert conf()["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_cluster_keeps_its_own_ideas_of_cores_and_addresses() -> None:
    cluster = conf(master="spark://host:7077")
    assert not {"spark.sql.shuffle.partitions", "spark.driver.memory", "spark.driver.host"} & set(cluster)


@pytest.mark.parametrize(
    ("settings", "before", "expected"),
    [
        ({}, None, sys.executable),
        ({}, "/usr/bin/mine", "/usr/bin/mine"),
        ({"master": "spark://host:7077"}, None, None),
        ({"conf": {"spark.pyspark.python": "/opt/python"}}, None, "/opt/python"),
        ({"conf": {"spark.pyspark.python": "/opt/python"}}, "/usr/bin/mine", "/opt/python"),
        ({"conf": {"spark.pyspark.python": "/opt/python"}, "master": "spark://host:7077"}, None, "/opt/python"),
    ],
)
def test_python_functions_run_on_the_python_of_the_settings_or_locally_on_this_one(
    settings: dict[str, Any], before: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", before or "")  # so that it is put back after the test
    if before is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    session._choose_python(conf(**settings))
    assert os.environ.get("PYSPARK_PYTHON") == expected


def test_the_jars_of_the_runtime_the_catalog_and_the_user_are_joined() -> None:
    packages = conf(conf={"spark.jars.packages": "org.acme:udfs:1.0"})["spark.jars.packages"].split(",")
    assert [name.split(":")[1] for name in packages] == [packages[0].split(":")[1], "udfs", "sqlite-jdbc"]
    assert packages[0].startswith("org.apache.iceberg:iceberg-spark-runtime-")


def test_the_jars_of_the_catalog_and_of_the_storage_are_joined(tmp_path: Path) -> None:
    catalog = SqlCatalogPlugin(SqlCatalogConfig(), root=tmp_path)
    packages = catalog_conf(catalog, S3StoragePlugin(S3StorageConfig(bucket="b"), root=tmp_path))["spark.jars.packages"]
    assert [name.split(":")[1] for name in packages.split(",")] == ["iceberg-aws-bundle", "sqlite-jdbc"]


def test_extensions_of_the_user_are_added_to_those_of_iceberg() -> None:
    joined = conf(conf={"spark.sql.extensions": "org.acme.More"})["spark.sql.extensions"]
    assert joined.endswith("IcebergSparkSessionExtensions,org.acme.More")


def test_settings_of_the_user_win_over_defaults() -> None:
    assert conf(conf={"spark.driver.memory": "8g"})["spark.driver.memory"] == "8g"


def test_local_jars_take_the_place_of_coordinates(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar"):
        (tmp_path / name).touch()
    offline = conf(tmp_path.parent, jars=tmp_path.name)
    assert offline["spark.jars"] == f"{tmp_path}/a.jar,{tmp_path}/b.jar"
    assert "spark.jars.packages" not in offline
    with pytest.raises(ConfigurationError, match="there is no jar at"):
        conf(tmp_path, jars="nothing")


def test_a_remote_session_is_sent_only_what_a_session_may_set() -> None:
    remote = conf(remote="sc://localhost:15002", conf={"spark.sql.ansi.enabled": "true"})
    assert remote == {"spark.sql.catalog.lake": WORLD["spark.sql.catalog.lake"], "spark.sql.ansi.enabled": "true"}


@pytest.mark.parametrize(
    "key",
    [
        "spark.sql.catalog.lake.credential",
        "spark.sql.catalog.lake.token",
        "spark.sql.catalog.lake.s3.secret-access-key",
        "spark.sql.catalog.lake.s3.access-key-id",
        "spark.sql.catalog.lake.jdbc.password",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.azure.account.key.x",
    ],
)
def test_spark_redacts_every_credential_like_key(key: str) -> None:
    assert re.search(SPARK_REDACTION_REGEX, key)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("An error occurred while calling o1.append.\n: org.apache.iceberg.exceptions.CommitFailedException: x",
         ["CommitFailedException"]),
        ("(org.apache.iceberg.exceptions.ValidationException) Found conflicting files", ["ValidationException"]),
        ("[INTERNAL] oops\nCaused by: org.apache.iceberg.exceptions.CommitStateUnknownException: who knows",
         ["CommitStateUnknownException"]),
        ("nothing of the kind", []),
    ],
)  # fmt: skip
def test_the_java_exception_is_found_in_what_either_kind_of_session_prints(text: str, expected: list[str]) -> None:
    assert java_classes(RuntimeError(text)) == expected


def test_a_rotated_secret_is_the_same_world_and_another_principal_is_not() -> None:
    credential, token = "spark.sql.catalog.lake.credential", "spark.sql.catalog.lake.token"
    assert session._alike(credential, "floe:old", "floe:new:er")
    assert not session._alike(credential, "guest:old", "floe:old")
    assert not session._alike(credential, None, "floe:old")
    assert session._alike(token, "old", "new")
    assert session._alike("spark.sql.catalog.lake.s3.secret-access-key", "old", "new")
    assert not session._alike("spark.sql.catalog.lake.uri", "https://a", "https://b")


def test_the_users_own_properties_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "my own.conf"
    given = f"--properties-file '{own}' --name x pyspark-shell"
    assert without_properties_file(given) == ("--name x pyspark-shell", own)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert without_properties_file("pyspark-shell") == ("pyspark-shell", None)
    (tmp_path / "spark-defaults.conf").write_text("spark.mine yes\n")
    assert without_properties_file("pyspark-shell") == ("pyspark-shell", tmp_path / "spark-defaults.conf")
