"""A damaged SQLite catalog: the error names the way back, and the way back works."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import open_manager

from floe_core.errors import CatalogConnectionError
from floe_core.identifiers import TableIdentifier

ORDERS = TableIdentifier.from_string("bronze.raw.orders")
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "tables.md"


def damage(database: Path, kind: str) -> None:
    content = bytearray(database.read_bytes())
    if kind == "overwritten":
        content[:] = b"not a database, but something else " * (len(content) // 35)
    else:
        content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
        content[100:200] = b"\xff" * 100
    database.write_bytes(content)
    for suffix in ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    tables = open_manager(tmp_path)
    tables.write_data(ORDERS, pa.table({"n": [1]}), mode="append")
    tables.write_data(ORDERS, pa.table({"n": [2]}), mode="append")
    tables.catalog_plugin.shutdown()
    return tmp_path


@pytest.mark.parametrize("kind", ["overwritten", "half"])
def test_a_damaged_catalog_is_named_with_steps_that_delete_nothing(lake: Path, kind: str) -> None:
    damage(lake / ".floe" / "catalog.db", kind)
    with pytest.raises(CatalogConnectionError) as raised:
        open_manager(lake).load_table(ORDERS)
    message = str(raised.value)
    assert "is damaged" in message
    assert "Move the damaged file aside" in message
    assert "register the tables again" in message
    assert not re.search(r"\b(delete|remove|rm)\b", message)


def test_the_tables_of_a_damaged_catalog_are_registered_again_as_the_guide_shows(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(lake / ".floe" / "catalog.db", "overwritten")
    shutil.move(lake / ".floe" / "catalog.db", lake / "damaged.db")
    section = GUIDE.read_text(encoding="utf-8").partition("### A damaged catalog")[2]
    (block,) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    tables = open_manager(lake)
    opened: Any = type("Opened", (), {"tables": tables})
    monkeypatch.chdir(lake)
    exec(block, {"lake": opened, "TableIdentifier": TableIdentifier})
    assert sorted(tables.scan(ORDERS).to_arrow()["n"].to_pylist()) == [1, 2]
    tables.write_data(ORDERS, pa.table({"n": [3]}), mode="append")
    assert tables.scan(ORDERS).count() == 3
