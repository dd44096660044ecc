"""What the user gives Spark outside of floe.yaml is kept when a JVM starts."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from floe_spark.jvm.launch import handed_over, launch_settings


@pytest.fixture(autouse=True)
def _defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.jars /no.jar\nspark.jars.ivy   /defaults/ivy\nspark.jars=/defaults.jar\nspark.mine: yes\n"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("pyspark-shell", {"spark.jars": "/defaults.jar"}),
        ("--jars /a.jar,/b.jar pyspark-shell", {"spark.jars": "/a.jar,/b.jar"}),
        ("--conf=spark.jars=/c.jar --name x pyspark-shell", {"spark.jars": "/c.jar"}),
        (
            "--repositories https://repo.example.com --conf spark.mine=a=b pyspark-shell",
            {"spark.jars.repositories": "https://repo.example.com", "spark.mine": "a=b", "spark.jars": "/defaults.jar"},
        ),
    ],
)
def test_settings_of_the_machine_are_those_of_its_defaults_and_of_the_arguments(
    arguments: str, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    assert launch_settings() == {"spark.jars.ivy": "/defaults/ivy", "spark.mine": "yes", **expected}


def test_jars_of_the_file_are_not_replaced_by_those_of_the_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = "--jars /a.jar --conf spark.jars=/c.jar --conf spark.mine=x --name 'my own' pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    with handed_over({"spark.jars": "/verified.jar,/a.jar", "spark.secret": "a\\b"}, tmp_path):
        _, file, *rest = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert rest == ["--conf", "spark.mine=x", "--name", "my own", "pyspark-shell"]
        written = Path(file).read_text()
        assert Path(file).stat().st_mode & 0o077 == 0
    # The last line of a key is the one that Java reads.
    assert written.endswith("spark.mine: yes\n\nspark.jars=/verified.jar,/a.jar\nspark.secret=a\\\\b\n")
    assert not Path(file).exists()
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == given
