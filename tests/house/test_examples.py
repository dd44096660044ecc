"""Public classes and functions describe their arguments and have an example, which is executed.

Examples that need Spark or a catalog server are executed in tests/behaviours/test_examples_spark.py.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pyarrow as pa
import pytest
from tests.examples import EXECUTED_IN_UNIT_TESTS, documented, examples, given, parameters, public_names, run
from tests.lakes import open_manager

from floe_core.observability import trace_context
from floe_iceberg import IcebergTableManager

EXECUTED = [name for name, test in examples().items() if given(test) <= EXECUTED_IN_UNIT_TESTS]
METHODS = [
    name
    for name, member in inspect.getmembers(IcebergTableManager)
    if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property))
]


@pytest.mark.parametrize("name", public_names())
def test_a_public_name_describes_its_arguments(name: str) -> None:
    public = public_names()[name]
    assert documented(public) == set(parameters(public))


@pytest.mark.parametrize("name", public_names())
def test_a_public_name_has_an_example(name: str) -> None:
    assert name in examples()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_the_table_manager_has_a_docstring(name: str) -> None:
    assert getattr(IcebergTableManager, name).__doc__


@pytest.mark.parametrize("name", EXECUTED)
@pytest.mark.usefixtures("configured_logs")  # examples open projects, which configure logs and traces
def test_an_example_does_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trace_context, "_program", [])
    run(examples()[name], pa=pa, tables=open_manager(tmp_path / "tables"))
