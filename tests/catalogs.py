"""The catalogs that promises are tested on, each as a lake with both engines; one JVM serves them all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.identifiers import Namespace
from floe_iceberg import Lake
from floe_spark.jvm.session import catalog_conf
from tests.servers.seaweedfs import BUCKET, SeaweedFS

__all__ = [
    "CATALOGS",
    "WITHOUT_SEAWEEDFS",
    "SideLake",
    "activate",
    "new_namespace",
    "polaris_is_given",
    "polaris_lake",
    "polaris_settings",
    "polaris_uri",
    "rest_settings",
    "side_lake",
]

# The catalogs, and the fixtures that open them.
CATALOGS = {"embedded": "lake", "rest": "rest_lake", "polaris": "polaris"}
# For what is about the engines: SeaweedFS refuses folders with odd names, and Spark's first column as a partition.
WITHOUT_SEAWEEDFS = ("embedded", "polaris")

_POLARIS = ("FLOE_TEST_POLARIS_URI", "FLOE_TEST_POLARIS_WAREHOUSE", "FLOE_TEST_POLARIS_CREDENTIAL")
_MADE: set[str] = set()  # the namespaces of this process: others may run tests on the same server


class SideLake(Lake):
    """A lake whose Spark is a session of its own, beside that of the tests' own lake and in its JVM."""

    def __init__(self, artifacts: CompiledArtifacts, beside: Lake) -> None:
        super().__init__(artifacts)
        self._beside = beside
        self._session: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        if self._session is None:
            self._own = self._beside.spark
            self._session = self._own.newSession()
            for key, value in catalog_conf(self.tables.catalog_plugin, self.tables.storage_plugin).items():
                if key.startswith("spark.sql."):
                    self._session.conf.set(key, value)
        return self._session

    def step_aside(self) -> None:
        """Let the tests' own session be the active one again: PySpark's createDataFrame made this one so."""
        activate(self._own)


def activate(session: SparkSession) -> None:
    """Make this session the active one of its thread."""
    jvm: Any = session._jvm
    jvm.SparkSession.setActiveSession(session._jsparkSession)
    SparkSession._activeSession = session


def side_lake(beside: Lake, root: Path, settings: str) -> SideLake:
    """A lake in a folder, with this catalog and storage in its floe.yaml."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "floe.yaml").write_text(f"name: tests\n{settings}", encoding="utf-8")
    return SideLake(compile_project(root).artifacts, beside)


def rest_settings(server: SeaweedFS, *, uri: str | None = None, catalog: str = "", storage: str = "") -> str:
    """The settings of a server, by way of a proxy if `uri` is one; its secret is in FLOE_TEST_REST_SECRET."""
    os.environ["FLOE_TEST_REST_SECRET"] = server.secret
    return (
        "catalog:\n"
        "  type: rest\n"
        f"  uri: {uri or server.catalog_uri}\n"
        f"  warehouse: s3://{BUCKET}\n"
        f'  credentials: {{client_id: {server.key}, client_secret: "${{env:FLOE_TEST_REST_SECRET}}"}}\n'
        f"{catalog}"
        f"storage: {{type: s3, bucket: {BUCKET}, endpoint: '{server.s3_endpoint}', path_style_access: true{storage}}}\n"
    )


def polaris_is_given() -> bool:
    """Do the variables name a Polaris? Without one, its cases are not collected."""
    return all(name in os.environ for name in _POLARIS)


def polaris_uri() -> str:
    """The address of the Polaris that is given."""
    return os.environ["FLOE_TEST_POLARIS_URI"]


def polaris_settings(uri: str = "${env:FLOE_TEST_POLARIS_URI}") -> str:
    """The settings of the Polaris that is given, by way of a proxy if `uri` is one."""
    client_id, _, secret = os.environ["FLOE_TEST_POLARIS_CREDENTIAL"].partition(":")
    os.environ |= {"FLOE_TEST_POLARIS_ID": client_id, "FLOE_TEST_POLARIS_SECRET": secret}
    return (
        "catalog:\n"
        "  type: polaris\n"
        f'  uri: "{uri}"\n'
        '  warehouse: "${env:FLOE_TEST_POLARIS_WAREHOUSE}"\n'
        '  credentials: {client_id: "${env:FLOE_TEST_POLARIS_ID}", client_secret: "${env:FLOE_TEST_POLARIS_SECRET}"}\n'
        "storage: {type: s3, bucket: unused}\n"
    )


@contextmanager
def polaris_lake(beside: Lake, root: Path) -> Iterator[Lake]:
    """The Polaris that is given; what this process made in it is removed again."""
    lake = side_lake(beside, root, polaris_settings())
    yield lake
    _remove_ours(lake)


def new_namespace() -> str:
    """A name that no other test has, and that is known to be a test's."""
    name = f"ns_{uuid.uuid4().hex[:10]}"
    _MADE.add(name)
    return name


def _remove_ours(lake: Lake) -> None:
    plugin = lake.tables.catalog_plugin
    for name in plugin.list_namespaces():
        if name[: len("ns_0123456789")] in _MADE:  # some tests make a namespace beside their own
            _remove(lake, Namespace.from_string(name))


def _remove(lake: Lake, namespace: Namespace) -> None:
    plugin = lake.tables.catalog_plugin
    for child in plugin.list_namespaces(str(namespace)):
        _remove(lake, Namespace.from_string(child))
    for table in lake.tables.list_tables(namespace):
        lake.tables.drop_table(table)
    plugin.delete_namespace(str(namespace))
