"""A query reads tables of the lake and nothing else: it writes nothing, and reads no file, address or variable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floe_core.compiler import compile_project
from floe_core.errors import FloeError, QueryError, QueryRefusedError
from floe_iceberg import Lake
from floe_iceberg.query.parsing import Dialect, parse
from floe_iceberg.query.session import Session

WRITES = (
    "INSERT INTO a.b VALUES (1)",
    "UPDATE a.b SET x = 1",
    "DELETE FROM a.b",
    "MERGE INTO a.b USING c.d ON true WHEN MATCHED THEN DELETE",
    "CREATE TABLE a.b AS SELECT 1",
    "CREATE TEMP VIEW v AS SELECT 1",
    "DROP TABLE a.b",
    "ALTER TABLE a.b ADD COLUMN x INT",
    "TRUNCATE TABLE a.b",
    "WITH x AS (INSERT INTO a.b VALUES (1) RETURNING 1) SELECT * FROM x",
    "SELECT 1 INTO a.b",
)
SETTINGS = (
    "SET memory_limit = '1TB'",
    "RESET ALL",
    "USE a",
    "SELECT 1; SELECT 2",
    "BEGIN",
    "EXPLAIN SELECT 1",
    "SHOW TABLES",
    "DESCRIBE a.b",
    "CALL a.b()",
)
DUCKDB = (
    "COPY (SELECT 1) TO 'x.csv'",
    "COPY a.b FROM 'x.csv'",
    "EXPORT DATABASE 'x'",
    "IMPORT DATABASE 'x'",
    "ATTACH 'x.db'",
    "ATTACH ':memory:' AS x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "CHECKPOINT",
    "SELECT * FROM 'x.parquet'",
    'SELECT * FROM "x.parquet"',
    "SELECT * FROM 'https://example.com/x.parquet'",
    "SELECT * FROM 's3://bucket/x.parquet' AS x",
    "FROM '/etc/passwd'",
    "SELECT * FROM read_parquet('x.parquet')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_csv_auto('/etc/passwd')",
    "SELECT * FROM read_json('x.json')",
    "SELECT * FROM read_ndjson_objects('x.json')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM \"read_text\"('/etc/passwd')",
    "SELECT * FROM main.read_text('/etc/passwd')",
    "SELECT * FROM read_duckdb('x.db')",
    "SELECT * FROM parquet_scan('x.parquet')",
    "SELECT * FROM parquet_metadata('x.parquet')",
    "SELECT * FROM sniff_csv('x.csv')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('x')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM pragma_database_list()",
    "SELECT * FROM iceberg_scan('x')",
    "SELECT * FROM sqlite_scan('x.db', 't')",
    "SELECT * FROM postgres_query('x', 'SELECT 1')",
    "SELECT * FROM json_execute_serialized_sql('{}')",
    "SELECT * FROM enable_logging()",
    "SELECT * FROM anything_new('x')",
    "SELECT getenv('HOME')",
    "SELECT current_setting('temp_directory')",
    "SELECT getvariable('x')",
    "SELECT write_log('x')",
    "SELECT (SELECT count(*) FROM glob('/etc/*'))",
    "WITH x AS (FROM read_text('/etc/passwd')) SELECT * FROM x",
    "SELECT * FROM a.b WHERE id IN (SELECT size FROM read_blob('x'))",
)
SPARK = (
    "SELECT * FROM parquet.`/etc/x`",
    "SELECT * FROM csv.`https://example.com/x.csv`",
    "SELECT * FROM json.`x.json`",
    "SELECT TRANSFORM (id) USING 'cat' FROM a.b",
    "SELECT reflect('java.lang.System', 'getenv', 'HOME')",
    "SELECT java_method('java.lang.System', 'getenv', 'HOME')",
    "SELECT try_reflect('java.lang.System', 'getenv', 'HOME')",
    "SELECT * FROM read_files('/etc')",
    "FROM a.b INSERT INTO c.d SELECT 1",
    "WITH x AS (SELECT 1) INSERT INTO a.b SELECT * FROM x",
    "INSERT OVERWRITE DIRECTORY '/tmp/x' USING csv SELECT 1",
    "CACHE TABLE a.b",
    "ADD JAR 'x.jar'",
    "REFRESH TABLE a.b",
    "LOAD DATA INPATH 'x' INTO TABLE a.b",
    "CALL lake.system.expire_snapshots('a.b')",
)


@pytest.mark.parametrize("query", [*WRITES, *SETTINGS, *DUCKDB])
def test_duckdb_is_not_given(query: str) -> None:
    with pytest.raises(QueryRefusedError):
        parse(query, "duckdb")


@pytest.mark.parametrize("query", [*WRITES, *SETTINGS, *SPARK])
def test_spark_is_not_given(query: str) -> None:
    with pytest.raises(QueryRefusedError):
        parse(query, "spark")


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_functions_that_make_rows_are_not_refused(dialect: Dialect) -> None:
    parse("SELECT sum(x) FROM range(3)", dialect)
    parse("SELECT a.explode FROM (SELECT 1 AS explode, 'read_text(x)' AS t) a -- glob('x')", dialect)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "floe.yaml").write_text("name: shop")
    with Lake(compile_project(tmp_path).artifacts) as opened:
        opened.tables.write_data("a.b", pa.table({"id": [1]}), mode="append")
        yield opened


def test_duckdb_itself_refuses_what_is_not_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the parser lets through: a locked session opens no file but those it was given."""
    monkeypatch.chdir(tmp_path)
    for name in ("x.parquet", "allowed.parquet"):
        pq.write_table(pa.table({"id": [1]}), name)
    (tmp_path / "x.csv").write_text("id\n1\n")
    (tmp_path / "x.json").write_text('{"id": 1}\n')
    before = sorted(path.name for path in tmp_path.iterdir())
    session = Session()
    session.allow_only([str(tmp_path / "allowed.parquet")])
    session.lock()
    assert session.connection.execute("SELECT id FROM 'allowed.parquet'").fetchall() == [(1,)]
    executed = []
    for query in ("SET enable_external_access = true", "SET allowed_paths = ['x.csv']", *DUCKDB):
        with suppress(duckdb.Error):
            session.connection.execute(query)
            executed.append(query)
    session.close()
    assert [query for query in executed if not _harmless(query)] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def _harmless(query: str) -> bool:
    """What a locked session executes, because it reads and writes memory of its own only."""
    inside = (":memory:", "PRAGMA", "CHECKPOINT", "query(", "query_table", "duckdb_", "pragma_", "logging", "write_log")
    return any(part in query for part in (*inside, "current_setting", "getvariable", "serialized_sql", "anything_new"))


def test_variables_of_python_are_no_tables(lake: Lake) -> None:
    hidden = pa.table({"id": [1]})
    with pytest.raises(QueryError, match="table 'hidden' has no namespace"):
        lake.sql("SELECT * FROM hidden")
    assert hidden.num_rows == 1


def test_a_common_table_expression_does_not_open_the_engines_own_tables(lake: Lake) -> None:
    for query, said in (
        ("WITH x AS (FROM pg_settings), pg_settings AS (SELECT 1) FROM x, a.b", "no namespace"),  # a later one
        ("WITH duckdb_views AS (FROM duckdb_views) FROM a.b", "no namespace"),  # itself
        ("WITH RECURSIVE sqlite_master AS (FROM sqlite_master) FROM sqlite_master, a.b", "engine's own"),
    ):
        with pytest.raises(FloeError, match=said):
            lake.sql(query)
    recursive = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3), m AS (FROM n) FROM m"
    assert lake.sql(recursive).to_arrow()["i"].to_pylist() == [1, 2, 3]


def test_names_of_the_session_are_no_tables(lake: Lake) -> None:
    for name in (
        "floe_0",
        "information_schema.tables",
        "pg_catalog.pg_class",
        "memory.a.b",
        "temp.floe_0",
        "main.floe_0",
    ):
        with pytest.raises(FloeError, match=r"has no namespace|not found in the catalog"):
            lake.sql(f"SELECT * FROM {name}, a.b")
