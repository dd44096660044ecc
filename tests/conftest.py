"""One lake and one Spark session for the whole test process; each test works in a namespace of its own."""

from __future__ import annotations

import gc
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis  # noqa: F401 - its plugin imports it at the end of a run, where CPython 3.11 was seen to fail
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import SparkSession

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.identifiers import TableIdentifier
from floe_core.jvm import POSTGRESQL_JDBC, iceberg_aws_bundle
from floe_core.observability import telemetry
from floe_core.security import redaction
from floe_iceberg import Lake
from tests.catalogs import CATALOGS, activate, new_namespace, polaris_lake, rest_settings, side_lake
from tests.engines import ArrowEngine, Engine, SparkEngine
from tests.servers.seaweedfs import SeaweedFS, seaweedfs_server

# Tests say what they need; the machine's own settings must not leak in.
for name in ("FLOE_ENV", "DAGSTER_HOME"):
    os.environ.pop(name, None)

# The same for the Spark of commands that tests start: compiling well costs them more than it saves.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_OPENED: list[Lake] = []
_SESSIONS: list[SparkSession] = []

# Tests ask small questions, each of another kind: what makes long queries fast costs more than it saves.
QUICK_SPARK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


pytest_plugins = ["tests.tiers"]


def pytest_collection_finish() -> None:
    """What was collected lives as long as the process: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _spark_scratch() -> Iterator[None]:
    """Where the Spark processes of the tests keep their jars: one that is killed leaves 120 MB."""
    with TemporaryDirectory(prefix="floe-tests-", ignore_cleanup_errors=True) as folder:
        os.environ["SPARK_LOCAL_DIRS"] = folder
        yield


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> CompiledArtifacts:
    """A compiled project with nothing in it but the defaults."""
    root = tmp_path_factory.mktemp("project")
    # The one JVM of the tests serves lakes on S3 and PostgreSQL too, and jars cannot be added to it later.
    conf = {"spark.jars.packages": f"{iceberg_aws_bundle()},{POSTGRESQL_JDBC}", **QUICK_SPARK}
    (root / "floe.yaml").write_text(f"name: tests\nspark: {json.dumps({'conf': conf})}\n", encoding="utf-8")
    artifacts = compile_project(root).artifacts
    artifacts.write()
    return artifacts


@pytest.fixture(scope="session")
def lake(project: CompiledArtifacts) -> Iterator[Lake]:
    opened = Lake(project)
    spark = opened.spark
    _OPENED.append(opened)
    _SESSIONS.append(spark)
    yield opened
    _OPENED.remove(opened)
    _SESSIONS.remove(spark)
    spark.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A catalog server with OAuth2, S3 and vended credentials."""
    with seaweedfs_server(tmp_path_factory.mktemp("seaweedfs")) as running:
        yield running


@pytest.fixture(scope="session")
def rest_lake(lake: Lake, server: SeaweedFS) -> Lake:
    return side_lake(lake, lake.artifacts.root / "rest", rest_settings(server))


@pytest.fixture(scope="session")
def polaris(lake: Lake) -> Iterator[Lake]:
    with polaris_lake(lake, lake.artifacts.root / "polaris") as opened:
        yield opened


@pytest.fixture(scope="session", params=CATALOGS)
def catalog(request: pytest.FixtureRequest) -> Lake:
    """The lake of each catalog that the promises are tested on."""
    opened: Lake = request.getfixturevalue(CATALOGS[request.param])
    return opened


@pytest.fixture(scope="session", params=[ArrowEngine, SparkEngine], ids=lambda kind: kind.name)
def engine(request: pytest.FixtureRequest, catalog: Lake) -> Engine:
    """Each engine on each catalog."""
    made: Engine = request.param(catalog)
    return made


@pytest.fixture(autouse=True)
def _forgotten_words() -> Iterator[None]:
    """Forget the words that tests had as secrets: they would be masked in the messages that other tests read."""
    _forget_words()
    yield
    _forget_words()


def _forget_words() -> None:
    # Also those of fixtures that serve several tests, whichever of them runs first in this process.
    redaction._protected.difference_update([one for one in redaction._protected if len(one) < 12])


@pytest.fixture(autouse=True)
def _own_session() -> Iterator[None]:
    """Make the session of the tests' lake the active one again: a test may have used a session beside it."""
    yield
    for session in _SESSIONS:
        activate(session)


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace of its own, emptied afterwards: maintenance asks every table of a catalog before it deletes."""
    name = new_namespace()
    yield name
    for opened in _OPENED:
        catalog: Any = opened.tables.catalog_plugin.connect()
        for table in catalog.list_tables(name) if catalog.namespace_exists(name) else []:
            with suppress(NoSuchTableError):
                catalog.drop_table(table)


@pytest.fixture
def table(namespace: str) -> TableIdentifier:
    """The name of a table that does not exist yet."""
    return TableIdentifier(namespace=(namespace,), name="events")


@pytest.fixture
def new_project(tmp_path: Path) -> Callable[[str], Path]:
    """Write a floe.yaml into an empty folder and return the folder."""

    def create(text: str) -> Path:
        (tmp_path / "floe.yaml").write_text(text, encoding="utf-8")
        return tmp_path

    return create


@pytest.fixture
def configured_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets a test call telemetry.configure() and undoes it."""
    logger = logging.getLogger("floe")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    for name in ("_log", "_own_level", "_failure_level", "_chosen_format", "_is_command"):
        monkeypatch.setattr(telemetry, name, getattr(telemetry, name))
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logger.propagate = propagate
