"""Namespaces: made with their parents, described, and dropped only when nothing is in them; on every catalog."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.catalogs import WITHOUT_SEAWEEDFS
from tests.lakes import open_manager

from floe_core.errors import (
    ConfigurationError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
)
from floe_core.identifiers import Namespace, TableIdentifier
from floe_iceberg import IcebergTableManager, Lake
from floe_iceberg.catalogs.sql import SqlCatalogPlugin

pytestmark = pytest.mark.every_catalog

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def tables(catalog: Lake) -> IcebergTableManager:
    return catalog.tables


@pytest.fixture
def root(namespace: str) -> Namespace:
    """A namespace that does not exist yet."""
    return Namespace.from_string(namespace)


def under(parent: Namespace, *levels: str) -> Namespace:
    return Namespace(levels=(*parent.levels, *levels))


def table_in(namespace: Namespace, name: str) -> TableIdentifier:
    return TableIdentifier(namespace=namespace.levels, name=name)


def given(tables: IcebergTableManager, namespace: Namespace, *names: str) -> dict[str, str | None]:
    """Some properties as they are; servers add some of their own."""
    properties = tables.load_namespace(namespace).properties
    return {name: properties.get(name) for name in names}


# Creating and looking ---------------------------------------------------------------------------------------------


def test_a_namespace_is_created_with_its_properties(tables: IcebergTableManager, root: Namespace) -> None:
    assert not tables.namespace_exists(root)
    assert tables.create_namespace(root, {"owner": "sales", "note": "größer 'als' \"10\" %"}) is True
    assert tables.namespace_exists(root)
    info = tables.load_namespace(root)
    assert (info.name, info.tables) == (str(root), ())
    assert given(tables, root, "owner", "note") == {"owner": "sales", "note": "größer 'als' \"10\" %"}
    assert root in tables.list_namespaces()


def test_missing_parents_are_created_and_each_level_is_a_level(tables: IcebergTableManager, root: Namespace) -> None:
    raw, events = under(root, "raw"), under(root, "raw", "events")
    tables.create_namespace(events, {"owner": "sales"})
    assert all(tables.namespace_exists(one) for one in (root, raw, events))
    assert tables.list_namespaces(root) == [raw]
    assert tables.list_namespaces(raw) == [events]
    assert tables.list_namespaces(events) == []
    assert given(tables, raw, "owner") == {"owner": None}
    # What the catalog itself holds: three levels, and no name with a dot in it.
    levels = {tuple(one) for one in tables._catalog.list_namespaces(raw.levels)}
    assert events.levels in levels
    assert not any("." in level for one in levels for level in one)


def test_a_table_of_a_nested_namespace_is_written_and_read(catalog: Lake, root: Namespace) -> None:
    events = under(root, "raw", "events")
    catalog.tables.create_namespace(events)
    identifier = table_in(events, "clicks")
    catalog.tables.write_data(identifier, pa.table({"id": [1, 2, 3]}), mode="append")
    assert catalog.read(identifier).count() == 3
    assert catalog.tables.load_namespace(events).tables == ("clicks",)
    assert catalog.tables.list_tables(events) == [identifier]
    assert catalog.tables.list_tables(under(root, "raw")) == []


def test_listing_goes_one_level_down_or_all_the_way(tables: IcebergTableManager, root: Namespace) -> None:
    for levels in (("a",), ("a", "x"), ("a", "x", "y"), ("b",)):
        tables.create_namespace(under(root, *levels))
    tables.create_namespace(Namespace.from_string(f"{root}_beside"))
    assert tables.list_namespaces(root) == [under(root, "a"), under(root, "b")]
    everything = [under(root, *levels) for levels in (("a",), ("a", "x"), ("a", "x", "y"), ("b",))]
    assert tables.list_namespaces(root, recursive=True) == everything
    assert {root, *everything} <= set(tables.list_namespaces(recursive=True))
    assert under(root, "a") not in tables.list_namespaces()


def test_creating_it_again_is_as_good_as_once_unless_its_properties_differ(
    tables: IcebergTableManager, root: Namespace
) -> None:
    tables.create_namespace(root, {"owner": "sales", "tier": "1"})
    assert tables.create_namespace(root, {"owner": "sales", "tier": "1"}) is False
    assert tables.create_namespace(root, {"owner": "sales"}) is False
    with pytest.raises(NamespaceAlreadyExistsError, match=r"exists already, with other properties \(owner, zone\)"):
        tables.create_namespace(root, {"owner": "finance", "tier": "1", "zone": "eu"})
    assert tables.create_namespace(root, {"owner": "finance"}, if_not_exists=True) is False
    assert given(tables, root, "owner", "tier", "zone") == {"owner": "sales", "tier": "1", "zone": None}


def test_eight_threads_create_the_same_nested_namespace_at_once(tables: IcebergTableManager, root: Namespace) -> None:
    deep = under(root, "raw", "events")
    barrier = threading.Barrier(8)

    def create(_number: int) -> bool:
        barrier.wait()
        return tables.create_namespace(deep, {"owner": "sales"})

    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(create, range(8)))
    if isinstance(tables.catalog_plugin, SqlCatalogPlugin):  # some servers agree to several at once
        assert sum(created) == 1
    assert tables.list_namespaces(root, recursive=True) == [under(root, "raw"), deep]
    assert given(tables, deep, "owner") == {"owner": "sales"}


@pytest.mark.parametrize("name", ["a/b", "", "a..b", ".a", "größe", "a\x1fb", "a b", "-a", "a%1Fb", "a'b", "x" * 129])
def test_a_name_that_could_be_taken_for_another_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="namespace"):
        Namespace.from_string(name)


def test_a_level_with_a_dot_in_it_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a valid name"):
        Namespace(levels=("a.b",))


def test_an_unknown_namespace_is_told_by_every_verb(tables: IcebergTableManager, root: Namespace) -> None:
    unknown = under(root, "nowhere")
    tables.create_namespace(root)
    verbs: list[Callable[[], object]] = [
        lambda: tables.list_tables(unknown),
        lambda: tables.list_namespaces(unknown),
        lambda: tables.list_namespaces(unknown, recursive=True),
        lambda: tables.load_namespace(unknown),
        lambda: tables.update_namespace(unknown, set={"a": "b"}),
        lambda: tables.drop_namespace(unknown),
    ]
    for verb in verbs:
        with pytest.raises(NamespaceNotFoundError, match=rf"namespace '{unknown}' not found in catalog"):
            verb()
    assert tables.list_namespaces(root) == []


# Properties -------------------------------------------------------------------------------------------------------


def test_properties_are_set_and_removed_and_the_others_stay(tables: IcebergTableManager, root: Namespace) -> None:
    tables.create_namespace(root, {"owner": "sales", "tier": "1", "zone": "eu"})
    after = tables.update_namespace(root, set={"tier": "2", "note": "new"}, remove=["zone"])
    assert {key: after.get(key) for key in ("owner", "tier", "zone", "note")} == {
        "owner": "sales",
        "tier": "2",
        "zone": None,
        "note": "new",
    }
    assert given(tables, root, *after) == after


def test_a_namespace_outlives_its_last_property(tables: IcebergTableManager, root: Namespace) -> None:
    tables.create_namespace(root, {"owner": "sales"})
    assert "owner" not in tables.update_namespace(root, remove=["owner"])
    assert tables.namespace_exists(root)
    assert "exists" not in tables.load_namespace(root).properties


def test_removing_a_property_that_is_not_there_is_told_and_no_error(
    tables: IcebergTableManager, root: Namespace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("floe"), "propagate", True)
    tables.create_namespace(root, {"owner": "sales"})
    tables.update_namespace(root, remove=["ownre"])
    assert f"namespace '{root}' has no property ownre" in caplog.text
    assert given(tables, root, "owner") == {"owner": "sales"}


def test_a_property_cannot_be_both_set_and_removed(tables: IcebergTableManager, root: Namespace) -> None:
    tables.create_namespace(root, {"owner": "sales"})
    with pytest.raises(ConfigurationError, match="owner cannot be both set and removed"):
        tables.update_namespace(root, set={"owner": "finance"}, remove=["owner"])
    with pytest.raises(ConfigurationError, match="a property is a name and a text"):
        tables.update_namespace(root, set={"tier": 1})  # type: ignore[dict-item] # as a caller without types does
    assert given(tables, root, "owner", "tier") == {"owner": "sales", "tier": None}


def test_a_property_of_ten_thousand_characters_survives(tables: IcebergTableManager, root: Namespace) -> None:
    long = "ä-" * 5000
    tables.create_namespace(root, {"note": long})
    assert given(tables, root, "note") == {"note": long}
    tables.update_namespace(root, set={"note": long[::-1]})
    assert given(tables, root, "note") == {"note": long[::-1]}


# Dropping ---------------------------------------------------------------------------------------------------------


def test_an_empty_namespace_is_dropped_and_its_parent_stays(tables: IcebergTableManager, root: Namespace) -> None:
    raw = under(root, "raw")
    tables.create_namespace(raw, {"owner": "sales"})
    tables.drop_namespace(raw)
    assert not tables.namespace_exists(raw)
    assert tables.namespace_exists(root)
    tables.drop_namespace(root)
    assert root not in tables.list_namespaces()


def test_a_namespace_with_tables_and_namespaces_names_and_counts_them(
    tables: IcebergTableManager, root: Namespace
) -> None:
    tables.create_namespace(root, {"owner": "sales"})
    tables.create_namespace(under(root, "raw", "deep"))
    with pytest.raises(NamespaceNotEmptyError) as caught:
        tables.drop_namespace(root)
    assert str(caught.value) == f"namespace '{root}' is not empty: 1 namespace (raw); drop them first"
    for letter in "fedcba":
        tables.create_table(table_in(root, letter), SCHEMA)
    with pytest.raises(NamespaceNotEmptyError) as caught:
        tables.drop_namespace(root)
    assert str(caught.value) == (
        f"namespace '{root}' is not empty: 6 tables (a, b, c, d, e, …) and 1 namespace (raw); drop them first"
    )
    assert given(tables, root, "owner") == {"owner": "sales"}
    assert len(tables.list_tables(root)) == 6


@pytest.mark.parametrize("catalog", WITHOUT_SEAWEEDFS, indirect=True, scope="session")  # it has no views
def test_a_view_of_spark_keeps_its_namespace(catalog: Lake, root: Namespace) -> None:
    catalog.tables.create_namespace(root)
    catalog.spark.sql(f"CREATE VIEW lake.{root}.seen AS SELECT 1 AS one")
    with pytest.raises(NamespaceNotEmptyError, match=r"1 view \(seen\)"):
        catalog.tables.drop_namespace(root)
    catalog.spark.sql(f"DROP VIEW lake.{root}.seen")
    catalog.tables.drop_namespace(root)


def filled_by_a_table(tables: IcebergTableManager, root: Namespace) -> None:
    tables.create_table(table_in(root, "arrived"), SCHEMA)


def filled_by_a_namespace(tables: IcebergTableManager, root: Namespace) -> None:
    tables.create_namespace(under(root, "arrived"), {"owner": "them"})


@pytest.mark.parametrize("fill", [filled_by_a_table, filled_by_a_namespace])
@pytest.mark.parametrize("when", ["before the drop", "after the drop"])
def test_what_arrives_at_the_moment_of_the_drop_is_not_lost(
    tables: IcebergTableManager,
    root: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    fill: Callable[[IcebergTableManager, Namespace], None],
    when: str,
) -> None:
    """Somebody else fills the namespace when it has been found empty: on either side of the catalog's own action."""
    tables.create_namespace(root, {"owner": "sales"})
    delete = tables.catalog_plugin.delete_namespace

    def delete_and_fill(namespace: str) -> None:
        if when == "before the drop":
            fill(tables, root)
        delete(namespace)
        if when == "after the drop":
            fill(tables, root)

    with monkeypatch.context() as patch:
        patch.setattr(tables.catalog_plugin, "delete_namespace", delete_and_fill)
        with pytest.raises(NamespaceNotEmptyError, match=rf"'{root}' is not empty: 1 \w+ \(arrived\); drop them first"):
            tables.drop_namespace(root)
    assert root in tables.list_namespaces()
    assert given(tables, root, "owner") == {"owner": "sales"}
    if fill is filled_by_a_table:
        assert tables.load_table(table_in(root, "arrived")).scan().to_arrow().num_rows == 0
    else:
        assert given(tables, under(root, "arrived"), "owner") == {"owner": "them"}


def test_one_that_was_dropped_by_somebody_else_meanwhile_is_told(
    tables: IcebergTableManager, root: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.create_namespace(root)
    delete = tables.catalog_plugin.delete_namespace

    def delete_twice(namespace: str) -> None:
        delete(namespace)
        delete(namespace)

    with monkeypatch.context() as patch:
        patch.setattr(tables.catalog_plugin, "delete_namespace", delete_twice)
        with pytest.raises(NamespaceNotFoundError):
            tables.drop_namespace(root)


def test_names_of_other_tools_that_floe_does_not_take_are_left_out_and_told(
    lake: Lake, root: Namespace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("floe"), "propagate", True)
    assert isinstance(lake.tables.catalog_plugin, SqlCatalogPlugin)
    lake.tables.create_namespace(under(root, "good"))
    odd = (*root.levels, "not so good")
    lake.tables._catalog.create_namespace(odd)
    place = f"{lake.tables.storage_plugin.get_warehouse_uri(str(root))}/odd"
    lake.tables._catalog.create_table((*root.levels, "odd table"), SCHEMA, place)
    assert lake.tables.list_namespaces(root) == [under(root, "good")]
    assert lake.tables.list_tables(root) == []
    assert "not so good" in caplog.text
    assert "'odd table' in" in caplog.text
    with pytest.raises(NamespaceNotEmptyError, match=r"1 table \(odd table\) and 2 namespaces \(good, not so good\)"):
        lake.tables.drop_namespace(root)


def test_a_database_of_an_older_layout_has_no_views_and_drops_as_well(tmp_path: Path, root: Namespace) -> None:
    open_manager(tmp_path).create_namespace(root)
    with sqlite3.connect(tmp_path / ".floe" / "catalog.db") as database:
        database.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    database.close()
    tables = open_manager(tmp_path)
    tables.drop_namespace(root)
    assert not tables.namespace_exists(root)


def test_views_that_may_not_be_listed_do_not_keep_an_empty_namespace(
    tables: IcebergTableManager, root: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(_levels: object) -> list[object]:
        raise PermissionDeniedError("no VIEW_LIST")

    tables.create_namespace(root)
    monkeypatch.setattr(tables._catalog, "list_views", forbidden)
    tables.drop_namespace(root)
    assert not tables.namespace_exists(root)


# Both engines -----------------------------------------------------------------------------------------------------


def seen_by_spark(lake: Lake, namespace: Namespace) -> tuple[set[str], set[str]]:
    """The namespaces below one, and the tables in all of them, as Spark lists them."""
    place = ".".join(f"`{level}`" for level in ("lake", *namespace.levels))
    names = {str(namespace)}
    found = {str(row[0]) for row in lake.spark.sql(f"SHOW NAMESPACES IN {place}").collect()}
    tables = {f"{row.namespace}.{row.tableName}" for row in lake.spark.sql(f"SHOW TABLES IN {place}").collect()}
    for name in found:
        below, inside = seen_by_spark(lake, Namespace.from_string(name))
        names |= below
        tables |= inside
    return names, tables


def test_spark_sees_exactly_the_namespaces_and_tables_that_pyiceberg_sees(catalog: Lake, root: Namespace) -> None:
    tables = catalog.tables
    empty, raw, deep, wide = (under(root, *one) for one in (("empty",), ("raw",), ("raw", "in", "deep"), ("raw", "b")))
    for namespace in (empty, deep, wide):
        tables.create_namespace(namespace, {"owner": "sales"})
    for place, name in ((root, "top"), (raw, "one"), (raw, "two"), (deep, "one"), (wide, "one")):
        tables.create_table(table_in(place, name), SCHEMA)
    catalog.spark.sql(f"CREATE NAMESPACE lake.`{root}`.sparks")
    catalog.spark.sql(f"CREATE TABLE lake.`{root}`.sparks.own (id BIGINT) USING iceberg")
    tables.create_namespace(under(root, "gone"))
    tables.drop_namespace(under(root, "gone"))

    namespaces = {root, *tables.list_namespaces(root, recursive=True)}
    ours = {str(one) for namespace in namespaces for one in tables.list_tables(namespace)}
    assert seen_by_spark(catalog, root) == ({str(one) for one in namespaces}, ours)
    assert ours == {
        f"{root}.{name}" for name in ("top", "raw.one", "raw.two", "raw.in.deep.one", "raw.b.one", "sparks.own")
    }
    assert {str(one) for one in namespaces} == {
        str(root),
        *(f"{root}.{name}" for name in ("empty", "raw", "raw.in", "raw.in.deep", "raw.b", "sparks")),
    }
