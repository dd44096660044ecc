"""A commit that was not sent is no doubt, and one whose table went away is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import requests
from pyiceberg.exceptions import CommitStateUnknownException, TooManyRequestsError
from pyiceberg.table import CommitTableResponse
from tests.faults.catalog import Outage, Send, answer_lost, faulty, not_applied
from tests.lakes import open_manager

from floe_core.errors import CatalogConnectionError, CommitStateUnknownError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager
from floe_iceberg.writing import commits

TABLE = TableIdentifier.from_string("bronze.orders")
RENAMED = TableIdentifier.from_string("bronze.renamed")
ROW = pa.table({"id": [1]})


@pytest.fixture
def tables(tmp_path: Path) -> IcebergTableManager:
    manager = open_manager(tmp_path)
    manager.write_data(TABLE, ROW, mode="append")
    return manager


def test_what_was_never_sent_is_told_as_that_though_nobody_can_look(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = CatalogConnectionError("not asked now")
    outage = Outage(requests.ConnectionError("away"))

    def unsent(_send: Send) -> CommitTableResponse:
        outage._begun = True
        raise away

    catalog = tables.catalog_plugin.connect()
    with faulty(catalog, monkeypatch, unsent, outage=outage), pytest.raises(CatalogConnectionError, match="not asked"):
        tables.write_data(TABLE, ROW, mode="append")


def test_a_lost_answer_and_then_no_table_is_a_doubt(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acted_then_renamed(send: Send) -> CommitTableResponse:
        send()
        tables.rename_table(TABLE, RENAMED)
        tables.write_data(TABLE, pa.table({"other": ["x"]}), mode="append")
        raise CommitStateUnknownException("504")

    catalog = tables.catalog_plugin.connect()
    with (
        faulty(catalog, monkeypatch, acted_then_renamed),
        pytest.raises(CommitStateUnknownError, match=r"renamed, dropped or created again.*under its new name"),
    ):
        tables.write_data(TABLE, ROW, mode="append")
    assert tables.scan(RENAMED).to_arrow().num_rows == 2


def test_a_catalog_that_is_asked_too_often_is_asked_again(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = TooManyRequestsError("429")
    with faulty(tables.catalog_plugin.connect(), monkeypatch, not_applied(busy), not_applied(busy)):
        tables.write_data(TABLE, ROW, mode="append")
    assert tables.scan(TABLE).to_arrow().num_rows == 2


def test_the_wish_of_the_server_is_the_pause() -> None:
    answer = requests.Response()
    answer.headers["Retry-After"] = "7"
    busy = TooManyRequestsError("429")
    busy.__cause__ = requests.HTTPError(response=answer)
    assert commits._pause(1, busy) == 7
    answer.headers["Retry-After"] = "9999"
    assert commits._pause(1, busy) == 60
    assert commits._pause(1, TooManyRequestsError("429")) <= 0.2


def test_a_creation_that_was_acknowledged_and_not_kept_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that lets two create at once tells both that they did it."""
    manager = open_manager(tmp_path)
    catalog = manager.catalog_plugin.connect()

    def overwritten(send: Send) -> CommitTableResponse:
        answer = send()
        manager.drop_table(TABLE)
        manager.write_data(TABLE, pa.table({"id": [2]}), mode="append")
        return answer

    with faulty(catalog, monkeypatch, overwritten):
        manager.write_data(TABLE, ROW, mode="append")
    assert sorted(manager.scan(TABLE).to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_lost_answer_is_found_as_before(tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = answer_lost(CommitStateUnknownException("504"))
    with faulty(tables.catalog_plugin.connect(), monkeypatch, lost):
        tables.write_data(TABLE, ROW, mode="append")
    assert tables.scan(TABLE).to_arrow().num_rows == 2
