"""Iceberg's own REST catalog: the reference server's servlet over an SQLite file, bound to loopback."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped] # no stubs

__all__ = ["rest_catalog_server"]

# Iceberg 1.12 published no jar of its tests, where the servlet is.
_DEPENDENCIES = """
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="floe" module="rest-catalog"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="1.11.0" conf="default->master,compile,runtime">
      <artifact name="iceberg-core" type="jar"/>
      <artifact name="iceberg-core" type="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.eclipse.jetty.ee10" name="jetty-ee10-servlet" rev="12.1.5"
                conf="default->master,compile,runtime"/>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="3.53.2.0" conf="default->master"/>
  </dependencies>
</ivy-module>
"""
# What the server takes from Spark's distribution: the file system, and somewhere for the log to go.
_FROM_SPARK = ("hadoop-client-api", "hadoop-client-runtime", "log4j-api", "log4j-core", "log4j-slf4j2-impl", "py4j")


@contextmanager
def rest_catalog_server(folder: Path, *, warehouse: str) -> Iterator[str]:
    """The address of a running server whose database and log are in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "server.log").open("w") as log:
        port, process = launch_gateway(
            classpath=":".join([*_fetched_jars(folder), *_spark_jars(*_FROM_SPARK)]),
            jarpath=_spark_jars("py4j")[0],
            die_on_exit=True,
            redirect_stdout=log,
            redirect_stderr=log,
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        try:
            server = _serve(gateway, folder, warehouse)
            yield f"http://127.0.0.1:{server.getConnectors()[0].getLocalPort()}"
        finally:
            gateway.close()
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:  # its shutdown hooks may wait for each other
                process.kill()
                process.wait(20)


def _serve(gateway: JavaGateway, folder: Path, warehouse: str) -> Any:
    java: Any = gateway.jvm
    settings = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "jdbc.busy_timeout": "60000",
        "clients": "1",  # one connection to the file, so that writers wait for each other and not for its lock
        "warehouse": warehouse,
    }
    properties = java.java.util.HashMap()
    for key, value in settings.items():
        properties.put(key, value)
    catalog = java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
        "backend", properties, java.org.apache.hadoop.conf.Configuration()
    )
    rest = java.org.apache.iceberg.rest
    context = java.org.eclipse.jetty.ee10.servlet.ServletContextHandler()
    servlet = rest.RESTCatalogServlet(rest.RESTCatalogAdapter(catalog))
    context.addServlet(java.org.eclipse.jetty.ee10.servlet.ServletHolder(servlet), "/*")
    server = java.org.eclipse.jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", 0))
    server.setHandler(context)
    server.start()
    return server


def _spark_jars(*names: str) -> list[str]:
    jars = Path(pyspark.__file__).parent / "jars"
    return [str(next(jars.glob(f"{name}-[0-9]*.jar"))) for name in names]


def _fetched_jars(folder: Path) -> list[str]:
    """The server's jars, fetched by Spark's own Ivy, which keeps them for the next time."""
    asked, told = folder / "ivy.xml", folder / "classpath.txt"
    asked.write_text(_DEPENDENCIES, encoding="utf-8")
    command = ["java", "-jar", *_spark_jars("ivy"), "-ivy", str(asked), "-confs", "default", "-cachepath", str(told)]
    # Ivy's cache is shared by all processes, and what two fetch at once is broken for both.
    with (Path(tempfile.gettempdir()) / "floe-tests-jars.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode or not told.is_file():
        raise RuntimeError(f"the jars of the REST catalog could not be fetched:\n{done.stdout[-3000:]}{done.stderr}")
    return told.read_text(encoding="utf-8").strip().split(":")
