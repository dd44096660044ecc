"""A catalog behind a certificate of an authority of one's own: both engines trust it when floe.yaml says so."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests.catalogs import rest_settings
from tests.faults.proxy import FaultProxy, fault_proxy
from tests.servers.catalogs import open_catalog
from tests.servers.seaweedfs import SeaweedFS

from floe_core.errors import CatalogConnectionError

SCRIPT = """
import sys
from pathlib import Path
import pyarrow as pa
from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake

lake = Lake(compile_project(Path(sys.argv[1])).artifacts)
table = TableIdentifier.from_string(sys.argv[2])
lake.tables.write_data(table, pa.table({"id": [1, 2]}), mode="append")
lake.write(lake.spark.range(3, 6), table, mode="append")
print(sorted(row.id for row in lake.read(table).collect()), lake.tables.scan(table).to_arrow().num_rows)
lake.spark.stop()
"""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def proxy(server: SeaweedFS, authority: trustme.CA) -> Iterator[FaultProxy]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with fault_proxy(server.catalog_uri, tls=context) as running:
        yield running


@pytest.mark.full
def test_both_engines_trust_the_authority_of_floe_yaml(
    server: SeaweedFS, proxy: FaultProxy, authority: trustme.CA, tmp_path: Path, namespace: str
) -> None:
    project = tmp_path / "a project"  # the path reaches the options of a JVM
    project.mkdir()
    authority.cert_pem.write_to_path(str(project / "authorities.pem"))
    settings = rest_settings(server, uri=proxy.uri, catalog="  ca_bundle: authorities.pem\n")
    (project / "floe.yaml").write_text(f"name: tests\n{settings}")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", str(project), f"{namespace}.events"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=os.environ)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("[1, 2, 3, 4, 5] 5")
    agents = {one.headers["user-agent"].partition(" ")[0] for one in proxy.requests}
    assert agents == {"Floe/0.1.0"}


def test_an_unknown_authority_is_refused(server: SeaweedFS, proxy: FaultProxy) -> None:
    with pytest.raises(CatalogConnectionError, match=r"the certificate of .* is not trusted here.*catalog\.ca_bundle"):
        open_catalog(server, proxy.uri)
