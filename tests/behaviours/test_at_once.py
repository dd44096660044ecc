"""Several tables are read as they were at one moment: by a program, and by a step with several inputs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from dagster import AssetIn, AssetsDefinition, DagsterInstance, asset, materialize
from pyspark.sql import DataFrame
from sqlalchemy import event

from floe_core.errors import ConcurrencyConflictError, TableNotFoundError
from floe_dagster import IcebergIOManager
from floe_iceberg import AddColumn, Lake, RenameColumn

TABLES = ("orders", "stores")
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@pytest.fixture
def names(lake: Lake, namespace: str) -> list[str]:
    made = [f"{namespace}.{name}" for name in TABLES]
    for name in made:
        lake.tables.write_data(name, pa.table({"id": [1]}), mode="append")
    return made


def publish(lake: Lake, names: list[str], id: int) -> None:  # noqa: A002 - the column
    for name in names:
        lake.tables.create_branch(name, "next")
        lake.tables.write_data(name, pa.table({"id": [id]}), mode="append", branch="next")
    lake.tables.publish(dict.fromkeys(names, "next"))


@contextmanager
def statements(lake: Lake) -> Iterator[list[str]]:
    catalog: Any = lake.tables.catalog_plugin.connect()
    sent: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    event.listen(catalog.engine, "before_cursor_execute", note)
    yield sent
    event.remove(catalog.engine, "before_cursor_execute", note)


def test_heads_stay_as_they_were_for_both_engines(lake: Lake, names: list[str]) -> None:
    heads = lake.at_once(names)
    publish(lake, names, 2)
    assert [heads[name].scan().to_arrow()["id"].to_pylist() for name in names] == [[1], [1]]
    assert [[row.id for row in heads[name].frame().collect()] for name in names] == [[1], [1]]
    assert heads[names[0]].frame(row_filter="id > 1").count() == 0
    now = lake.at_once(names)
    assert [now[name].frame().count() for name in names] == [2, 2]
    assert all(now[name].snapshot_id != heads[name].snapshot_id for name in names)


def test_a_catalog_database_reads_all_heads_in_one_statement(lake: Lake, names: list[str]) -> None:
    with statements(lake) as sent:
        lake.at_once(names)
    assert len([text for text in sent if "metadata_location" in text]) == 1, sent


def test_a_table_that_does_not_exist_is_named(lake: Lake, names: list[str], namespace: str) -> None:
    with pytest.raises(TableNotFoundError, match=rf"'{namespace}.none' not found"):
        lake.at_once([*names, f"{namespace}.none"])


def test_a_head_without_rows_stays_empty(lake: Lake, names: list[str], namespace: str) -> None:
    empty = f"{namespace}.empty"
    lake.tables.create_table(empty, pa.schema([("id", pa.int64())]))
    heads = lake.at_once([*names, empty])
    lake.tables.write_data(empty, pa.table({"id": [1]}), mode="append")
    assert heads[empty].snapshot_id is None
    assert heads[empty].scan().to_arrow().num_rows == heads[empty].frame().count() == 0


def test_a_head_has_the_columns_of_the_table_and_a_later_one_is_not_taken_for_it(lake: Lake, names: list[str]) -> None:
    lake.tables.evolve_schema(names[0], RenameColumn("id", "number"))
    lake.tables.evolve_schema(names[0], AddColumn("note", pa.string()))
    head = lake.at_once(names)[names[0]]
    assert head.scan().to_arrow().to_pylist() == [row.asDict() for row in head.frame().collect()]
    lake.tables.write_data(names[0], pa.table({"number": [2]}), mode="append")
    assert head.scan().to_arrow().column_names == ["number", "note"]
    with pytest.raises(ConcurrencyConflictError, match="read it again"):
        head.frame()


class Interrupted(IcebergIOManager):
    """Something happens after the first input of a step was loaded."""

    def load_input(self, context: Any) -> Any:
        loaded = super().load_input(context)
        if HAPPENS:
            HAPPENS.pop()()
        return loaded


HAPPENS: list[Callable[[], None]] = []


@pytest.mark.parametrize("kind", [pa.Table, DataFrame])
def test_the_inputs_of_a_step_are_of_one_moment(
    lake: Lake, names: list[str], namespace: str, instance: DagsterInstance, kind: Any
) -> None:
    seen: list[Any] = []

    def rows(value: Any) -> list[int]:
        return sorted(value["id"].to_pylist()) if kind is pa.Table else sorted(row.id for row in value.collect())

    sources: list[AssetsDefinition] = []
    for name in TABLES:

        @asset(name=name, key_prefix=namespace, metadata={"write_mode": "overwrite"})
        def source() -> pa.Table:
            raise AssertionError("it is not run")

        sources.append(source)

    @asset(
        key_prefix=namespace,
        ins={name: AssetIn(key=[namespace, name]) for name in TABLES},
        metadata={"write_mode": "overwrite"},
    )
    def report(orders: kind, stores: kind) -> pa.Table:
        seen.append((rows(orders), rows(stores)))
        return pa.table({"n": [1]})

    def run() -> None:
        done = materialize(
            [*sources, report],
            selection=[report],
            resources={"io_manager": Interrupted(lake=lake)},
            instance=instance,
            run_config=QUIET,
        )
        assert done.success

    HAPPENS[:] = [lambda: publish(lake, names, 2)]
    run()
    run()
    assert seen == [([1], [1]), ([1, 2], [1, 2])]
    read = lake.tables.list_snapshots(f"{namespace}.report")[0].summary["floe.input-snapshots"]
    assert sorted(entry.partition("@")[0] for entry in read.split(",")) == sorted(names)
