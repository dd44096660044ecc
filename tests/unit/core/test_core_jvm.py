"""The JVM artifacts and the Java that Spark needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from floe_core import java
from floe_core.errors import ConfigurationError
from floe_core.java import java_problem, java_version
from floe_core.jvm import ICEBERG_RUNTIMES, POSTGRESQL_JDBC, SQLITE_JDBC, iceberg_runtime


@pytest.mark.parametrize(
    ("spark", "artifact"),
    [
        ("3.5.0", "iceberg-spark-runtime-3.5_2.12"),
        ("3.5.7", "iceberg-spark-runtime-3.5_2.12"),
        ("4.0.1", "iceberg-spark-runtime-4.0_2.13"),
        ("4.1.0", "iceberg-spark-runtime-4.1_2.13"),
        ("4.1.4", "iceberg-spark-runtime-4.1_2.13"),
        ("4.1.0.dev1", "iceberg-spark-runtime-4.1_2.13"),
    ],
)
def test_each_minor_version_of_spark_has_its_runtime(spark: str, artifact: str) -> None:
    assert iceberg_runtime(spark).split(":")[:2] == ["org.apache.iceberg", artifact]


@pytest.mark.parametrize("spark", ["4.2.0", "3.4.4", "3.50.0", "4.10.0", "5.0.0", "4", "", "garbage", "v4.1.0"])
def test_other_versions_of_spark_are_refused_with_what_to_install(spark: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"Floe runs on Spark 3\.5, 4\.0, 4\.1: pip install 'pyspark~=4\.1\.0'"
    ):
        iceberg_runtime(spark)


def test_coordinates_are_pinned() -> None:
    for coordinate in (*ICEBERG_RUNTIMES.values(), POSTGRESQL_JDBC, SQLITE_JDBC):
        group, artifact, version = coordinate.split(":")
        assert group
        assert artifact
        assert version.replace(".", "").isdigit()


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


def answers(home: Path, script: str) -> None:
    """Make bin/java a script that does this."""
    path = home / "bin" / "java"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_java_home_without_java_is_named(java_home: Path) -> None:
    problem = java_problem()
    assert problem is not None
    assert f"JAVA_HOME is {java_home}, but there is no bin/java in it" in problem
    assert "install Java 17" in problem


def test_no_java_at_all_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = java_problem()
    assert problem is not None
    assert "no Java was found" in problem


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ('openjdk version "11.0.22" 2024-01-16', 11),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "16"', 16),
    ],
)
def test_an_old_java_is_told_with_its_version(java_home: Path, line: str, version: int) -> None:
    answers(java_home, f"echo '{line}' >&2")
    problem = java_problem()
    assert problem is not None
    assert f"{java_home}/bin/java is Java {version}: install Java 17" in problem


@pytest.mark.parametrize(
    "script",
    ["echo hello", "exit 3", "printf '\\377\\376\\000' >&2", "kill -9 $$"],
    ids=["garbage", "failure", "binary", "killed"],
)
def test_a_program_that_does_not_answer_like_java_is_told(java_home: Path, script: str) -> None:
    answers(java_home, script)
    problem = java_problem()
    assert problem is not None
    assert f"{java_home}/bin/java does not work: install Java 17" in problem


def test_a_java_that_cannot_be_executed_is_told(java_home: Path) -> None:
    (java_home / "bin" / "java").write_text("not a program")
    problem = java_problem()
    assert problem is not None
    assert "does not work" in problem


@pytest.mark.parametrize(
    "line",
    [
        'openjdk version "17.0.10" 2024-01-16',
        'openjdk version "21" 2023-09-19',
        'openjdk version "25-ea" 2025-09-16',
    ],
)
def test_a_good_java_is_no_problem(java_home: Path, line: str) -> None:
    answers(java_home, f"echo 'Picked up JAVA_TOOL_OPTIONS: -Dx=1' >&2; echo '{line}' >&2")
    assert java_problem() is None


def test_java_home_comes_before_the_path(java_home: Path) -> None:
    answers(java_home, "echo 'openjdk version \"21\"' >&2")
    assert java.java_executable() == str(java_home / "bin" / "java")
    assert java_version(str(java_home / "bin" / "java")) == 21


@pytest.mark.parametrize(("version", "code"), [("11", 1), ("21", 0)])
def test_as_a_script_it_says_one_sentence_and_no_stack_trace(java_home: Path, version: str, code: int) -> None:
    answers(java_home, f"echo 'openjdk version \"{version}\"' >&2")
    done = subprocess.run(
        [sys.executable, "-I", java.__file__],
        capture_output=True,
        text=True,
        env={**os.environ, "JAVA_HOME": str(java_home)},
        check=False,
    )
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.count("\n") == code
    assert "Traceback" not in done.stderr
