"""A session of DuckDB is used again for a query on exactly the same files, and for nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from floe_core.compiler import compile_project
from floe_core.errors import DamagedFileError, QueryError
from floe_iceberg import Lake, RenameColumn
from floe_iceberg.query.session import Session

SUM = "SELECT sum(id)::INT AS total FROM a.b"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    (tmp_path / "spill").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spill"))
    (tmp_path / "floe.yaml").write_text("name: shop")
    with Lake(compile_project(tmp_path).artifacts) as opened:
        write(opened, id=[1, 2])
        yield opened


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """Every session that is opened."""
    opened: list[Session] = []

    class Counted(Session):
        def __init__(self) -> None:
            super().__init__()
            opened.append(self)

    monkeypatch.setattr("floe_iceberg.query.duckdb_engine.Session", Counted)
    return opened


def write(lake: Lake, table: str = "a.b", **columns: Any) -> None:
    lake.tables.write_data(table, pa.table(columns), mode="append")


def rows(lake: Lake, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(query).to_arrow().to_pylist()]


def files(lake: Lake, table: str = "a.b") -> list[Path]:
    paths = lake.tables.load_table(table).inspect.files()["file_path"].to_pylist()
    return [Path(path.removeprefix("file://")) for path in paths]


def test_another_query_on_the_same_files_uses_the_session_again(lake: Lake, sessions: list[Session]) -> None:
    for _ in range(3):
        assert rows(lake, SUM) == [(3,)]
    assert rows(lake, "SELECT b.id FROM a.b JOIN a.b AS c USING (id) ORDER BY 1") == [(1,), (2,)]
    assert len(sessions) == 1


def test_a_query_on_other_files_does_not(lake: Lake, sessions: list[Session]) -> None:
    write(lake, "a.c", id=[10])
    assert rows(lake, SUM) == [(3,)]
    assert rows(lake, "SELECT id FROM a.c") == [(10,)]
    assert rows(lake, "SELECT b.id + c.id FROM a.b, a.c ORDER BY 1") == [(11,), (12,)]
    assert len(sessions) == 3
    for session, table in ((sessions[1], "a.c"), (sessions[2], "a.b")):
        found = session.connection.execute("SELECT value FROM duckdb_settings() WHERE name = 'allowed_paths'")
        allowed = str(found.fetchone())
        assert all(str(path) in allowed for path in files(lake, table))
    with pytest.raises(Exception, match="disabled"):
        sessions[1].connection.execute(f"FROM read_parquet('{files(lake)[0]}')")


def test_every_commit_is_seen(lake: Lake, sessions: list[Session]) -> None:
    first = lake.tables.list_snapshots("a.b")[-1].snapshot_id
    assert rows(lake, SUM) == [(3,)]
    write(lake, id=[10])
    assert rows(lake, SUM) == [(13,)]
    assert rows(lake, f"{SUM} VERSION AS OF {first}") == [(3,)]
    lake.tables.evolve_schema("a.b", RenameColumn("id", "number"))
    assert rows(lake, "SELECT sum(number)::INT FROM a.b") == [(13,)]
    with pytest.raises(QueryError, match="there is no column 'id'"):
        rows(lake, SUM)
    assert len(sessions) == 2, "the renamed column has the same files"


def test_a_file_that_was_damaged_since_is_reported(lake: Lake) -> None:
    assert rows(lake, SUM) == [(3,)]
    (path,) = files(lake)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedFileError, match=path.name):
        rows(lake, SUM)
    path.write_bytes(content)
    assert rows(lake, SUM) == [(3,)]


def test_a_file_that_was_replaced_since_is_read_again(lake: Lake, sessions: list[Session]) -> None:
    write(lake, "a.c", id=[7, 8])
    assert rows(lake, SUM) == [(3,)]
    (path,), (other,) = files(lake), files(lake, "a.c")
    times = path.stat()
    path.unlink()
    path.write_bytes(other.read_bytes())
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert rows(lake, SUM) == [(15,)]
    assert len(sessions) == 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT setseed(0.5) FROM a.b",
        "SELECT error('no') FROM a.b",
        "SELECT 1 FROM a.b LIMIT 0 OFFSET nothing",
    ],
)
def test_a_session_with_a_state_or_an_error_is_not_used_again(query: str, lake: Lake, sessions: list[Session]) -> None:
    with suppress(QueryError):
        rows(lake, query)
    assert rows(lake, SUM) == [(3,)]
    assert len(sessions) == 2


def test_a_result_that_is_not_read_to_its_end_keeps_its_session(lake: Lake, sessions: list[Session]) -> None:
    write(lake, id=list(range(100_000)))
    with lake.sql("SELECT id FROM a.b") as first, lake.sql("SELECT id FROM a.b") as second:
        assert next(first.batches()).num_rows
        assert next(second.batches(limit=1)).num_rows == 1
    assert len(sessions) == 2
    assert rows(lake, "SELECT count(*) FROM a.b") == [(100_002,)]
    assert len(sessions) == 3


def test_threads_do_not_share_a_session(lake: Lake, sessions: list[Session]) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: rows(lake, SUM)[0][0], range(40))) == {3}
    assert len(sessions) < 40


def test_two_sessions_are_kept_until_the_lake_is_closed(lake: Lake, tmp_path: Path) -> None:
    for number in range(4):
        write(lake, f"a.t{number}", id=[number])
        assert rows(lake, f"SELECT id FROM a.t{number}") == [(number,)]
    assert len(list((tmp_path / "spill").iterdir())) == 2
    lake.close()
    assert list((tmp_path / "spill").iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_that_was_forked_after_a_query_ends_as_usual(lake: Lake) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "from floe_core.compiler import compile_project; from floe_iceberg import Lake\n"
        "lake = Lake(compile_project(Path(sys.argv[1])).artifacts)\n"
        f"lake.sql({SUM!r}).to_arrow()\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(7)\n"
        f"assert lake.sql({SUM!r}).to_arrow().num_rows == 1\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(lake.artifacts.root)], check=False)
    assert ran.returncode == 7
