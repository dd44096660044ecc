"""Settings of a JVM that stay off its command line, which every user of the machine can read."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from floe_spark.jvm.jars import spark_home

__all__ = ["handed_over", "launch_settings"]

_STALE_SECONDS = 600
# Options of spark-submit that decide which jars Spark has, and from where.
_SETTINGS = {"--jars": "spark.jars", "--repositories": "spark.jars.repositories"}


@contextmanager
def handed_over(settings: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Pass settings to a JVM started inside, in a file that only its user can read and that is removed afterwards.

    PySpark would put them on the JVM's command line, where every user of the machine sees them.
    """
    if not settings:
        yield
        return
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    rest, own = without_properties_file(before or "pyspark-shell")
    for stale in folder.glob(".conf-*"):  # left by a process that ended while its JVM started
        if time.time() - stale.stat().st_mtime > _STALE_SECONDS:
            stale.unlink(missing_ok=True)
    handle, name = tempfile.mkstemp(prefix=".conf-", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if own is not None:
                file.write(f"{own.read_text(encoding='utf-8')}\n")
            file.writelines(f"{key}={_escaped(value)}\n" for key, value in settings.items())
        arguments = _without_jars(rest) if "spark.jars" in settings else rest
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(name)} {arguments}"
        yield
    finally:
        Path(name).unlink()
        if before is None:
            os.environ.pop("PYSPARK_SUBMIT_ARGS", None)
        else:
            os.environ["PYSPARK_SUBMIT_ARGS"] = before


def launch_settings() -> dict[str, str]:
    """The settings that the user gives Spark outside of floe.yaml: spark-defaults.conf and PYSPARK_SUBMIT_ARGS."""
    arguments, own = without_properties_file(os.environ.get("PYSPARK_SUBMIT_ARGS") or "pyspark-shell")
    settings = {}
    for line in own.read_text(encoding="utf-8").splitlines() if own is not None else []:
        match = re.match(r"\s*([^\s=:#!]+)\s*[=:\s]\s*(.*?)\s*$", line)
        if match:
            settings[match[1]] = match[2]
    return {**settings, **{key: value for key, value, _ in _options(arguments) if key}}


def without_properties_file(arguments: str) -> tuple[str, Path | None]:
    """The arguments without the user's own properties file, and that file: Spark takes only one."""
    tokens = shlex.split(arguments)
    if "--properties-file" in tokens[:-1]:
        index = tokens.index("--properties-file")
        return shlex.join([*tokens[:index], *tokens[index + 2 :]]), Path(tokens[index + 1])
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf") / "spark-defaults.conf"
    return arguments, defaults if defaults.is_file() else None


def _options(arguments: str) -> Iterator[tuple[str, str, list[str]]]:
    """For each argument of spark-submit: the setting that it sets, if any, its value, and its tokens."""
    tokens = iter(shlex.split(arguments))
    for token in tokens:
        option, joined, value = token.partition("=")
        if option not in ("--conf", *_SETTINGS):
            yield "", "", [token]
            continue
        value = value if joined else next(tokens, "")
        if option == "--conf":
            key, _, setting = value.partition("=")
            yield key, setting, [option, value]
        else:
            yield _SETTINGS[option], value, [option, value]


def _without_jars(arguments: str) -> str:
    """The arguments without the user's jars: Spark would use them instead of the jars in the properties file."""
    return shlex.join(token for key, _, tokens in _options(arguments) if key != "spark.jars" for token in tokens)


def _escaped(value: str) -> str:
    """A value as Java's properties files write it."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"\\{text}" if text[:1].isspace() else text
