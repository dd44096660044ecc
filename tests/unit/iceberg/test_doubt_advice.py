"""What an error about a commit in doubt advises can be followed where the write was made."""

from __future__ import annotations

from pathlib import Path

import pytest

from floe_core.compiler import compile_project
from floe_core.identifiers import TableIdentifier
from floe_core.models import WriteMode
from floe_iceberg import IcebergTableManager
from floe_iceberg.writing import commit_outcome
from floe_iceberg.writing.request import WriteRequest


@pytest.mark.parametrize(
    ("environment", "call"), [("prod", "connect(environment='prod').tables"), (None, "connect().tables")]
)
def test_the_write_is_looked_for_in_the_environment_it_was_made_in(
    tmp_path: Path, environment: str | None, call: str
) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\nenvironments: {prod: {}}\n", encoding="utf-8")
    tables = IcebergTableManager.open(compile_project(tmp_path, environment).artifacts)
    request = WriteRequest(TableIdentifier.from_string("bronze.orders"), WriteMode.APPEND, "w", {})
    for error in (
        commit_outcome.unknown(request, tables),
        commit_outcome.undecided(request, tables, reason="the catalog did not answer."),
    ):
        assert f"{call}.find_write('bronze.orders', 'w') returns" in str(error)
    tables.close()


def test_a_write_that_may_still_arrive_is_not_looked_for_at_once(tmp_path: Path) -> None:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    tables = IcebergTableManager.open(compile_project(tmp_path).artifacts)
    request = WriteRequest(TableIdentifier.from_string("bronze.orders"), WriteMode.APPEND, "w", {}, branch="audit")
    told = str(commit_outcome.undecided(request, tables, reason="the catalog did not answer."))
    assert "it may still arrive" in told
    assert "wait a few minutes and check" in told
    assert "'w', branch='audit')" in told
    tables.close()
