"""How the floe command reports errors: once, one line each, with the prefix `error:`. No Spark is started here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.commands import floe


def test_a_new_project_names_a_schema_that_exists(tmp_path: Path) -> None:
    created = floe("init", "shop", cwd=tmp_path)
    assert created.returncode == 0, created.stderr
    (line,) = [one for one in (tmp_path / "shop" / "floe.yaml").read_text().splitlines() if "$schema=" in one]
    schema = tmp_path / "shop" / line.partition("$schema=")[2]
    assert schema.is_file()
    schema.unlink()  # as in a clone: .floe is not under version control
    assert floe("namespaces", "list", cwd=tmp_path / "shop").returncode == 0
    assert schema.is_file()


def test_an_error_is_printed_once_and_not_as_a_log_line_too(new_project: Any) -> None:
    root: Path = new_project("name: shop\n")
    ran = floe("namespaces", "show", "nowhere", cwd=root)
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1, ran.stderr
    assert ran.stderr.startswith("error: namespace 'nowhere' not found")


def test_every_problem_of_the_file_has_the_prefix(new_project: Any) -> None:
    ran = floe("compile", cwd=new_project("name: shop\nspark: {mster: x}\nmaintenance: {expire: {keep_last: 0}}\n"))
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [
        "error: floe.yaml:2: spark.mster: unknown key 'mster'; did you mean 'master'?",
        "error: floe.yaml:3: maintenance.expire.keep_last: this must be 1 or more",
    ]


def test_wrong_usage_has_the_prefix_too(new_project: Any) -> None:
    ran = floe("run", "--frobnicate", cwd=new_project("name: shop\n"))
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == ["error: No such option '--frobnicate'.", "see: floe run --help"]
