"""Private certificate authorities for the JVM: a PEM file as a trust store, beside the authorities Java trusts."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from floe_core.errors import ConfigurationError
from floe_core.java import java_executable, java_problem
from floe_polaris.http import check_authorities

__all__ = ["java_trust_options"]

# Not a secret: the store holds public certificates, and Java requires a password.
_PASSWORD = "changeit"  # noqa: S105


def java_trust_options(bundle: Path, folder: Path) -> str:
    """The options of a JVM that trusts the bundle; the store is created once and kept in the folder."""
    check_authorities(bundle)
    text = bundle.read_text(encoding="utf-8", errors="replace")
    store = folder / f"truststore-{hashlib.sha256(text.encode()).hexdigest()[:16]}.p12"
    if not store.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as workspace:
            _create_store(bundle, text, Path(workspace)).replace(store)
    options = (f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}")
    return " ".join(shlex.quote(option) for option in options)


def _java_home() -> Path:
    """The home of the Java that Spark starts; the program on the PATH may be a link or a wrapper."""
    java = java_executable()
    if java is None:
        raise ConfigurationError(f"catalog.ca_bundle: {java_problem()}")
    settings = subprocess.run(  # noqa: S603 - the user's own Java
        [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=False
    )
    home = re.search(r"java\.home = (.+)", settings.stderr + settings.stdout)
    return Path(home[1].strip()) if home else Path(java).resolve().parent.parent


def _create_store(bundle: Path, text: str, workspace: Path) -> Path:
    certificates = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", text, re.S)
    home = _java_home()
    store = workspace / "store"
    shipped, keytool = home / "lib" / "security" / "cacerts", home / "bin" / "keytool"
    if not shipped.is_file() or not keytool.is_file():
        raise ConfigurationError(
            f"catalog.ca_bundle: the Java at {home} has no trust store or no keytool, so that Spark cannot trust "
            f"{bundle}; set JAVA_HOME to a complete Java 17 or newer"
        )
    shutil.copyfile(shipped, store)
    for number, certificate in enumerate(certificates):
        file = workspace / f"{number}.pem"
        file.write_text(certificate, encoding="utf-8")
        command = [str(keytool), "-importcert", "-noprompt", "-alias", f"floe-{number}"]
        imported = subprocess.run(  # noqa: S603 - Java's own tool, with Floe's arguments
            [*command, "-file", str(file), "-keystore", str(store), "-storepass", _PASSWORD],
            capture_output=True,
            text=True,
            check=False,
        )
        if imported.returncode:
            reason = " ".join(imported.stdout.split())
            raise ConfigurationError(f"catalog.ca_bundle: Java's keytool refused {bundle}: {reason}")
    return store
