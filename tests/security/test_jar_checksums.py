"""A jar that Floe brings runs only if it is, byte for byte, the one whose digest Floe pins."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyspark
import pytest

from floe_core.errors import UntrustedJarError
from floe_core.jvm import (
    ICEBERG_RUNTIMES,
    JAR_SHA256,
    POSTGRESQL_JDBC,
    SQLITE_JDBC,
    brought_jars,
    iceberg_aws_bundle,
    iceberg_runtime,
    jar_name,
    module_of,
)
from floe_iceberg import Lake
from floe_spark.jvm.jars import default_ivy_folder, with_verified_jars

START = "from floe_runtime import connect; print('started', connect().spark.range(3).count())"


def start_spark(root: Path, conf: dict[str, str]) -> subprocess.CompletedProcess[str]:
    lines = "".join(f'    {key}: "{value}"\n' for key, value in conf.items())
    (root / "floe.yaml").write_text(f"name: shop\nspark:\n  conf:\n{lines}")
    command = [sys.executable, "-c", START]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)


def logs_of_spark(root: Path) -> str:
    return "".join(path.read_text() for path in root.glob(".floe/logs/spark-*.log"))


@pytest.fixture
def ivy(tmp_path: Path) -> Path:
    """An Ivy folder with the jars of a default project, as this machine has them, or fetches them."""
    asked = {"spark.jars.packages": f"{iceberg_runtime(pyspark.__version__)},{SQLITE_JDBC}"}
    folder = tmp_path / "ivy" / "jars"
    folder.mkdir(parents=True)
    for jar in with_verified_jars(asked, defaults={}, log=tmp_path / "fetched.log")["spark.jars"].split(","):
        (folder / Path(jar).name).symlink_to(jar)
    return folder.parent


def change_one_byte(jar: Path) -> tuple[str, str]:
    """The digests before and after."""
    content = bytearray(jar.read_bytes())
    before = hashlib.sha256(content).hexdigest()
    content[len(content) // 2] ^= 1
    jar.unlink()
    jar.write_bytes(content)
    return before, hashlib.sha256(content).hexdigest()


def test_a_jar_with_one_byte_changed_is_refused_before_a_jvm_starts(tmp_path: Path, ivy: Path) -> None:
    jar = ivy / "jars" / jar_name(SQLITE_JDBC)
    before, after = change_one_byte(jar)
    ran = start_spark(tmp_path, {"spark.jars.ivy": str(ivy)})
    assert ran.returncode != 0, ran.stdout
    assert "UntrustedJarError" in ran.stderr
    for named in (str(jar), before, after, "delete"):
        assert named in ran.stderr
    assert "started" not in ran.stdout
    assert logs_of_spark(tmp_path) == ""  # no JVM was asked for anything


def hostile_jar() -> bytes:
    """A jar that is well-formed, and not the one of SQLite."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as jar:
        jar.writestr(zipfile.ZipInfo("META-INF/services/java.sql.Driver"), "org.example.Hostile\n")
    return buffer.getvalue()


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[str]:
    """A Maven repository whose checksum files agree with the wrong jar that it delivers."""
    group, artifact, version = SQLITE_JDBC.split(":")
    folder = tmp_path / "repository" / group.replace(".", "/") / artifact / version
    folder.mkdir(parents=True)
    pom = (
        f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId>"
        f"<artifactId>{artifact}</artifactId><version>{version}</version></project>"
    )
    for suffix, content in (("pom", pom.encode()), ("jar", hostile_jar())):
        file = folder / f"{artifact}-{version}.{suffix}"
        file.write_bytes(content)
        file.with_name(f"{file.name}.sha1").write_text(hashlib.sha1(content).hexdigest())
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "repository"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_wrong_jar_from_the_repository_never_reaches_a_class_path(tmp_path: Path, ivy: Path, repository: str) -> None:
    (ivy / "jars" / jar_name(SQLITE_JDBC)).unlink()
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="r"/><resolvers>'
        f'<ibiblio name="r" m2compatible="true" root="{repository}"/></resolvers></ivysettings>'
    )
    ran = start_spark(tmp_path, {"spark.jars.ivy": str(ivy), "spark.jars.ivySettings": str(settings)})
    assert ran.returncode != 0, ran.stdout
    assert "UntrustedJarError" in ran.stderr, ran.stderr
    assert hashlib.sha256(hostile_jar()).hexdigest() in ran.stderr
    assert "found org.xerial#sqlite-jdbc" in logs_of_spark(tmp_path)  # it was fetched
    assert "py4j" not in logs_of_spark(tmp_path)
    assert "started" not in ran.stdout


def test_spark_is_given_the_verified_files_and_resolves_nothing_itself(lake: Lake) -> None:
    given = str(lake.spark.conf.get("spark.jars")).split(",")
    assert {Path(jar).name for jar in given} >= {jar_name(SQLITE_JDBC), jar_name(iceberg_aws_bundle())}
    assert lake.spark.conf.get("spark.jars.packages", "") == ""
    for jar in given:
        path = Path("/" + jar.removeprefix("file:").lstrip("/"))
        assert hashlib.sha256(path.read_bytes()).hexdigest() in JAR_SHA256.values()


def test_every_jar_that_floe_can_ask_for_is_pinned() -> None:
    bundles = {f"org.apache.iceberg:iceberg-aws-bundle:{one.rpartition(':')[2]}" for one in ICEBERG_RUNTIMES.values()}
    asked = {SQLITE_JDBC, POSTGRESQL_JDBC, iceberg_aws_bundle(), *bundles, *ICEBERG_RUNTIMES.values()}
    pinned = {jar for coordinate in asked for jar in brought_jars(coordinate)}
    assert asked <= pinned == set(JAR_SHA256)
    assert all(len(digest) == 64 and int(digest, 16) for digest in JAR_SHA256.values())
    assert len(set(JAR_SHA256.values())) == len(JAR_SHA256)


def conf_for(folder: Path, packages: str, **more: str) -> dict[str, str]:
    return {"spark.jars.packages": packages, "spark.jars.ivy": str(folder), **more}


def test_packages_of_the_user_are_resolved_beside_the_verified_jars(tmp_path: Path, ivy: Path) -> None:
    asked = conf_for(ivy, f"org.acme:udfs:1.0,{SQLITE_JDBC},{SQLITE_JDBC}", **{"spark.jars": "/mine.jar"})
    given = with_verified_jars(asked, defaults={}, log=tmp_path / "log")
    assert given["spark.jars.packages"] == "org.acme:udfs:1.0"
    assert given["spark.jars"] == f"{ivy / 'jars' / jar_name(SQLITE_JDBC)},/mine.jar"
    # What a package of the user depends on does not bring the driver a second time.
    assert given["spark.jars.excludes"] == module_of(SQLITE_JDBC)


def test_another_version_that_the_user_asks_for_takes_the_place_of_the_pinned_one(tmp_path: Path, ivy: Path) -> None:
    asked = conf_for(ivy, f"org.xerial:sqlite-jdbc:3.40.0.0,{SQLITE_JDBC}")
    given = with_verified_jars(asked, defaults={}, log=tmp_path / "log")
    assert given["spark.jars.packages"] == "org.xerial:sqlite-jdbc:3.40.0.0"
    assert "spark.jars" not in given


def test_another_build_that_the_machine_gives_spark_is_not_on_one_class_path_with_the_pinned_one(
    tmp_path: Path, ivy: Path
) -> None:
    runtime = iceberg_runtime(pyspark.__version__)
    defaults = {"spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-3.3_2.12:1.4.0,org.acme:udfs:1.0"}
    defaults["spark.jars"] = "/machine.jar"
    asked = conf_for(ivy, runtime, **{"spark.jars": "/mine.jar"})
    given = with_verified_jars(asked, defaults=defaults, log=tmp_path / "log")
    assert given["spark.jars.packages"] == "org.acme:udfs:1.0"
    assert given["spark.jars"] == f"{ivy / 'jars' / jar_name(runtime)},/mine.jar,/machine.jar"


def test_the_ivy_folder_is_the_one_that_spark_would_use(tmp_path: Path, ivy: Path) -> None:
    given = with_verified_jars(
        {"spark.jars.packages": SQLITE_JDBC}, defaults={"spark.jars.ivy": str(ivy)}, log=tmp_path / "log"
    )
    assert given["spark.jars"].startswith(str(ivy))
    assert default_ivy_folder("3.5.6").name == ".ivy2"
    assert default_ivy_folder("4.1.0").name == ".ivy2.5.2"


def test_the_remedy_names_what_to_delete(tmp_path: Path, ivy: Path) -> None:
    change_one_byte(ivy / "jars" / jar_name(SQLITE_JDBC))
    with pytest.raises(UntrustedJarError) as refused:
        with_verified_jars(conf_for(ivy, SQLITE_JDBC), defaults={}, log=tmp_path / "log")
    assert f"{ivy / 'cache' / 'org.xerial' / 'sqlite-jdbc'}" in str(refused.value)
