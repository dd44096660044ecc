"""The jars that Floe needs: fetched by Spark's Ivy, and verified before they are on the class path of a JVM."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from floe_core.errors import ConfigurationError, UntrustedJarError
from floe_core.jvm import JAR_SHA256, brought_jars, jar_name, module_of
from floe_core.observability import operation
from floe_core.security import is_credential_key, redact

__all__ = ["default_ivy_folder", "spark_home", "unfetched", "with_verified_jars"]

_PACKAGES, _EXCLUDES, _IVY = "spark.jars.packages", "spark.jars.excludes", "spark.jars.ivy"
# The settings that decide from where, and through which proxy, Spark fetches.
_FETCHING = ("spark.jars.repositories", "spark.jars.ivySettings", "spark.driver.extraJavaOptions")


def with_verified_jars(conf: Mapping[str, str], *, defaults: Mapping[str, str], log: Path) -> dict[str, str]:
    """The settings with each jar that Floe pins as a verified file instead of a coordinate that Spark resolves.

    A coordinate that Floe does not pin is the user's own and stays; it also replaces another version of the same
    artifact. `defaults` are the settings that the user gives Spark outside of floe.yaml.
    """
    requested, elsewhere = _coordinates(conf), _coordinates(defaults)
    own = [coordinate for coordinate in requested if coordinate not in JAR_SHA256]
    replaced = {module_of(coordinate) for coordinate in own}
    pinned = [
        coordinate for coordinate in requested if coordinate in JAR_SHA256 and module_of(coordinate) not in replaced
    ]
    # A jar that the machine adds to every Spark must not be another build of a jar of Floe's: they share a class path.
    brought = {_family(coordinate) for coordinate in requested}
    own += [coordinate for coordinate in elsewhere if _family(coordinate) not in brought]
    changed = {key: value for key, value in conf.items() if key != _PACKAGES}
    if own or elsewhere:
        changed[_PACKAGES] = ",".join(own)
    if not pinned:
        return changed
    folder = Path(conf.get(_IVY) or defaults.get(_IVY) or default_ivy_folder(pyspark.__version__)).absolute()
    wanted = [jar for coordinate in pinned for jar in brought_jars(coordinate) if module_of(jar) not in replaced]
    files = {coordinate: folder / "jars" / jar_name(coordinate) for coordinate in dict.fromkeys(wanted)}
    with _one_process_at_a_time(folder):
        absent = {coordinate for coordinate, path in files.items() if not path.is_file()}
        if absent:
            fetched = [coordinate for coordinate in pinned if absent.intersection(brought_jars(coordinate))]
            _fetch(fetched, folder, {**defaults, **conf}, log)
        for coordinate, path in files.items():
            _verify(coordinate, path, folder)
    if own:
        changed[_EXCLUDES] = _list(conf.get(_EXCLUDES) or defaults.get(_EXCLUDES), *map(module_of, files))
    given = conf.get("spark.jars"), defaults.get("spark.jars")
    return {**changed, "spark.jars": _list(*map(str, files.values()), *given)}


def _coordinates(conf: Mapping[str, str]) -> list[str]:
    named = conf.get(_PACKAGES, "").split(",")
    return list(dict.fromkeys(coordinate.strip().replace("/", ":") for coordinate in named if coordinate))


def _family(coordinate: str) -> str:
    """The artifact without the versions of Spark and Scala that are part of its name."""
    return re.sub(r"(-\d+\.\d+)?_2\.\d+$", "", module_of(coordinate))


def default_ivy_folder(spark_version: str) -> Path:
    """Where Spark stores what its Ivy fetches: in the home folder of the account, as Java finds it, not $HOME."""
    name = ".ivy2" if spark_version.startswith("3.") else ".ivy2.5.2"
    try:
        import pwd

        return Path(pwd.getpwuid(os.getuid()).pw_dir) / name
    except (ImportError, KeyError):
        with suppress(RuntimeError):
            return Path.home() / name
    raise ConfigurationError(
        "this user has no home folder, where Spark would store its jars; set spark.jars.ivy in spark.conf of floe.yaml "
        "to a folder that this user may write"
    )


def spark_home() -> Path:
    """The Spark that PySpark starts."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def unfetched(log: str) -> str | None:
    """The jars that a JVM could not fetch, by its log, and the next step; None if there are none."""
    # Ivy writes org#name;version, and appends !name.jar where the file itself is missing.
    missing = re.findall(r"(?:unresolved dependency|download failed): ([^;\s]+;[\d.]+\d)", log)
    if not missing:
        return None
    wanted = ", ".join(dict.fromkeys(name.replace("#", ":").replace(";", ":") for name in missing))
    return (
        f"these jars could not be fetched: {wanted}. Check the connection to Maven Central; without one, put "
        f"the jars into a folder and set spark: {{jars: FOLDER}} in floe.yaml"
    )


def _list(*values: str | None) -> str:
    return ",".join(dict.fromkeys(value for value in values if value))


def _verify(coordinate: str, path: Path, folder: Path) -> None:
    wanted = JAR_SHA256[coordinate]
    if not path.is_file():
        raise ConfigurationError(
            f"Spark fetched {coordinate}, but {path} does not exist; set spark.jars.ivy in floe.yaml to a folder that "
            f"this user may write"
        )
    digest = _sha256(path)
    if digest != wanted:
        cached = folder.joinpath("cache", *module_of(coordinate).split(":"))
        raise UntrustedJarError(
            f"the jar {path} is not {coordinate}: its SHA-256 is {digest}, expected {wanted}. Spark was not started "
            f"with it. If a download was cut off, delete the file and {cached}, and start again; if the digest stays, "
            f"the repository delivers another jar: do not use it"
        )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _fetch(coordinates: list[str], folder: Path, conf: Mapping[str, str], log: Path) -> None:
    """Let Spark's own resolver store the jars, in a JVM that runs none of their code and gets no credential."""
    chosen = {key: conf[key] for key in _FETCHING if key in conf and not is_credential_key(key)}
    settings = [f"--conf={key}={value}" for key, value in {**chosen, _IVY: str(folder)}.items()]
    program = spark_home() / "bin" / ("spark-submit.cmd" if sys.platform == "win32" else "spark-submit")
    command = [str(program), "--master", "local[1]", *settings, "--packages", ",".join(coordinates)]
    # SparkSubmit resolves the packages before it runs a class; this one, of Spark's own Ivy, prints its version.
    command += ["--class", "org.apache.ivy.Main", "spark-internal", "-version"]
    with operation("spark.fetch_jars", jars=",".join(coordinates)), log.open("a", encoding="utf-8") as written:
        environment = {**os.environ, "SPARK_HOME": str(spark_home())}
        done = subprocess.run(  # noqa: S603 - the program is Spark's, the settings are of floe.yaml
            command, stdin=subprocess.DEVNULL, stdout=written, stderr=written, env=environment, check=False
        )
    if done.returncode:
        text = redact(log.read_text(encoding="utf-8", errors="replace"))
        reason = unfetched(text) or f"spark-submit ended with {done.returncode} while it fetched jars"
        raise ConfigurationError(f"Spark did not start: {reason}; its log is {log}")


@contextmanager
def _one_process_at_a_time(folder: Path) -> Iterator[None]:
    """Ivy copies a jar in place: another process must not verify an incomplete jar."""
    try:
        import fcntl

        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".floe-lock", os.O_RDWR | os.O_CREAT, 0o600)
    except (ImportError, OSError):  # a shared, read-only folder is filled already
        yield
        return
    try:
        with suppress(OSError):  # not every network file system locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
