"""Two snapshots compared by their rows, on a real embedded lake, without Spark."""

from __future__ import annotations

import html
import json
import math
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table

from floe_core import compile_project
from floe_core.errors import ConfigurationError, DamagedFileError, FloeStorageError, IncompatibleLibraryError
from floe_core.models import PartitionTransform
from floe_iceberg import AddColumn, DropColumn, Lake, RenameColumn, WidenColumn
from floe_iceberg.comparison import FileChanges, TableComparison, ValueChange
from floe_iceberg.comparison import row_difference as by_rows
from floe_iceberg.query.session import Session

T = "bronze.orders"
NAN = math.nan


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
    with Lake(compile_project(tmp_path).artifacts) as opened:
        yield opened


def by(column: str, transform: str = "identity") -> list[PartitionTransform]:
    return [PartitionTransform(source_column=column, transform_type=transform)]


def append(lake: Lake, rows: pa.Table, name: str = T, **options: Any) -> int:
    return lake.tables.write_data(name, rows, mode="append", **options).snapshot_id


def replace(lake: Lake, rows: pa.Table, name: str = T, **options: Any) -> int:
    return lake.tables.write_data(name, rows, mode="overwrite", allow_empty=True, **options).snapshot_id


def counts(found: TableComparison) -> tuple[int, int, int | None]:
    return found.rows_added, found.rows_removed, found.rows_changed


def remove(lake: Lake, pattern: str) -> None:
    for path in (lake.artifacts.root / ".floe" / "warehouse").rglob(pattern):
        path.unlink()


def test_rows_are_added_and_removed_without_keys_and_changed_with_them(lake: Lake) -> None:
    before = append(lake, pa.table({"id": [1, 2, 3], "amount": [10, 20, 30]}))
    after = replace(lake, pa.table({"id": [2, 3, 4], "amount": [20, 31, 40]}))
    plain = lake.compare(T, before=before)
    assert counts(plain) == (2, 2, None)
    assert plain.examples.added == ({"id": 3, "amount": 31}, {"id": 4, "amount": 40})
    assert plain.examples.removed == ({"id": 1, "amount": 10}, {"id": 3, "amount": 30})
    assert "without keys, a changed row counts as one removed and one added" in plain.notes
    keyed = lake.compare(T, before=before, after=after, keys=["id"])
    assert counts(keyed) == (1, 1, 1)
    (changed,) = keyed.examples.changed
    assert (changed.key, changed.values) == ({"id": 3}, {"amount": ValueChange(30, 31)})
    assert keyed.examples.added == ({"id": 4, "amount": 40},)
    assert (keyed.sampled, keyed.rows_compared, keyed.scope) == (False, 6, "all 6 rows of the files that differ")
    assert (keyed.rows_before, keyed.rows_after, keyed.notes) == (3, 3, ())
    assert json.loads(json.dumps(asdict(keyed)))["examples"]["changed"][0]["values"]["amount"] == {
        "before": 30,
        "after": 31,
    }


def test_rows_carried_over_to_other_files_are_no_difference(lake: Lake) -> None:
    """As after a compaction, or an update that rewrites the rows beside it."""
    for start in (0, 10, 20):
        before = append(lake, pa.table({"id": list(range(start, start + 10))}))
    replace(lake, pa.table({"id": list(range(29, -1, -1))}))
    found = lake.compare(T, before=before)
    assert (counts(found), found.differs) == ((0, 0, None), False)
    assert (found.files, found.partitions) == (FileChanges(1, 3), ())


def test_equal_rows_are_counted_as_often_as_they_occur(lake: Lake) -> None:
    before = append(lake, pa.table({"id": [1, 1, 1, 2]}))
    replace(lake, pa.table({"id": [1, 2, 2, 2]}))
    assert counts(lake.compare(T, before=before)) == (2, 2, None)


def test_only_files_that_differ_are_read(lake: Lake) -> None:
    rows = pa.table({"city": ["Oslo", "Rome"], "n": [1, 2]})
    before = append(lake, rows, partition_by=by("city"))
    (shared,) = (one.path for one in lake.tables.list_files(T).files if one.partition == {"city": "Oslo"})
    replace(lake, pa.table({"city": ["Rome", "Rome"], "n": [2, 3]}), overwrite_filter="city = 'Rome'")
    Path(shared.removeprefix("file://")).unlink()
    found = lake.compare(T, before=before)
    assert (counts(found), found.rows_compared, found.rows_before, found.rows_after) == ((1, 0, None), 3, 2, 3)
    assert [(one.partition, one.rows_added) for one in found.partitions] == [({"city": "Rome"}, 1)]


def test_metadata_decides_where_it_can(lake: Lake) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    before = append(lake, rows)
    lake.tables.create_branch(T, "trial")
    after = append(lake, rows)
    remove(lake, "*.parquet")
    added = lake.compare(T, before=before, after=after, examples=0)
    assert (counts(added), added.rows_compared, added.rows_after) == ((3, 0, None), 0, 6)
    assert "all 3 rows in them differ, and none had to be compared" in added.scope
    gone = lake.compare(T, before=after, after=before, examples=0)
    assert (counts(gone), gone.files) == ((0, 3, None), FileChanges(0, 1))
    remove(lake, "*-m[0-9]*.avro")  # manifests; their lists show that both snapshots have the same
    same = lake.compare(T, before=before, after="trial", keys=["id"])
    assert (counts(same), same.scope) == ((0, 0, 0), "no data file differs; no file was read")
    assert (same.rows_before, same.rows_after, same.differs) == (3, 3, False)


def test_all_rows_of_a_new_table_are_added(lake: Lake) -> None:
    after = append(lake, pa.table({"id": list(range(50)), "day": ["a"] * 25 + ["b"] * 25}), partition_by=by("day"))
    found = lake.compare(T, before=None, after=after, keys=["id"], examples=3, max_rows=1)
    assert (counts(found), found.before, found.after, found.sampled) == ((50, 0, 0), None, after, False)
    assert (found.rows_before, found.rows_after, found.columns, found.key_problems) == (0, 50, (), None)
    assert found.examples.added == tuple({"id": number, "day": "a"} for number in range(3))
    assert [(one.partition, one.rows_added) for one in found.partitions] == [({"day": "a"}, 25), ({"day": "b"}, 25)]


NESTED = pa.struct([("lat", pa.float64()), ("tags", pa.map_(pa.string(), pa.list_(pa.float64())))])
VALUES: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    # the type, values that are equal to one another, and values that differ from these and from one another
    "null": (pa.int64(), [None], [0]),
    "nan": (pa.float64(), [NAN], [None, 0.0]),
    "zero": (pa.float64(), [0.0, -0.0], [1e-300, NAN]),
    "float": (pa.float32(), [0.1], [0.2, NAN]),
    "decimal": (pa.decimal128(38, 10), [Decimal("1.5")], [Decimal("1.5000000001"), None]),
    "text": (pa.string(), [""], [None, " ", "a\0", "Å", "A\u030a"]),
    "binary": (pa.binary(), [b"\xff\0"], [b"\xff", b"", None]),
    "fixed": (pa.binary(2), [b"\0\1"], [b"\1\0"]),
    "uuid": (pa.uuid(), [UUID(int=1).bytes], [UUID(int=2).bytes, None]),
    "time": (pa.time64("us"), [time(1, 2, 3, 4)], [time(1, 2, 3, 5)]),
    "zoned": (
        pa.timestamp("us", "UTC"),
        [datetime(2026, 1, 1, tzinfo=timezone.utc)],
        [datetime(2026, 1, 1, microsecond=1, tzinfo=timezone.utc), None],
    ),
    "list": (pa.list_(pa.float64()), [[1.0, None, NAN]], [[1.0, NAN, None], [1.0], [], None]),
    "struct": (
        NESTED,
        [{"lat": NAN, "tags": [("a", [NAN]), ("b", None)]}, {"lat": NAN, "tags": [("b", None), ("a", [NAN])]}],
        [{"lat": NAN, "tags": [("a", None), ("b", [NAN])]}, {"lat": None, "tags": None}, None],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], [[("a", 1)], [], None]),
    "maps": (
        pa.list_(pa.map_(pa.int32(), pa.struct([("x", pa.int32())]))),
        [[[(1, {"x": 1}), (2, None)]], [[(2, None), (1, {"x": 1})]]],
        [[[(1, {"x": None}), (2, None)]], [None], None],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_equal_as_iceberg_has_them(lake: Lake, name: str) -> None:
    kind, equal, others = VALUES[name]
    for number, value in enumerate([*equal[1:], *others]):
        table = f"bronze.t{number}"
        before = append(lake, pa.table({"k": [1, 2], "v": pa.array([equal[0]] * 2, kind)}), table)
        replace(lake, pa.table({"k": [1, 2], "v": pa.array([equal[0], value], kind)}), table)
        differs = int(number >= len(equal) - 1)
        assert counts(lake.compare(table, before=before, keys=["k"])) == (0, 0, differs), value
        assert counts(lake.compare(table, before=before)) == (differs, differs, None), value
        other = lake.compare(table, before=before, keys=["v"])  # as a key
        assert other.rows_added + other.rows_removed + 2 * (other.rows_changed or 0) == 2 * differs, value


def test_columns_are_compared_by_their_field_ids(lake: Lake) -> None:
    first = pa.table({"id": pa.array([1, 2], pa.int32()), "was": ["a", "b"], "gone": [7, 8], "x": [1.5, 2.5]})
    before = append(lake, first)
    lake.tables.evolve_schema(T, DropColumn("gone"), allow_incompatible_changes=True)
    lake.tables.evolve_schema(
        T,
        RenameColumn("was", "gone"),
        AddColumn("new", pa.string()),
        WidenColumn("id", pa.int64()),
        allow_incompatible_changes=True,
    )
    after = replace(lake, pa.table({"id": [1, 2], "gone": ["a", "c"], "x": [1.5, 2.5], "new": [None, "n"]}))
    found = lake.compare(T, before=before, keys=["id"])
    assert counts(found) == (0, 0, 1)
    (changed,) = found.examples.changed
    assert changed.values == {"gone": ValueChange("b", "c"), "new": ValueChange(None, "n")}
    assert [(one.change, one.column) for one in found.columns] == [
        ("type", "id"),
        ("renamed", "gone"),
        ("added", "new"),
        ("dropped", "gone"),
    ]
    assert "dropped columns are not compared: gone" in found.notes
    back = lake.compare(T, before=after, after=before, keys=["id"])
    assert counts(back) == (0, 0, 2)  # the column that was dropped is one of theirs
    assert back.examples.changed[1].values == {"was": ValueChange("c", "b"), "gone": ValueChange(None, 8)}


def test_columns_whose_names_differ_in_case_only_are_compared(lake: Lake) -> None:
    """Floe writes no such table, other tools do; and names that the comparison uses itself."""
    rows = pa.table({"a": [1], "A": [2], "floe_partition": [3], "side": [4], "number": [5]})
    append(lake, pa.table({"other": [1]}))
    catalog: Any = lake.tables.catalog_plugin.connect()
    catalog.create_table("bronze.twice", rows.schema).append(rows)
    lake.tables.load_table("bronze.twice").overwrite(rows.set_column(1, "A", pa.array([3])))
    first = lake.tables.list_snapshots("bronze.twice")[0].snapshot_id
    (changed,) = lake.compare("bronze.twice", before=first, keys=["a"]).examples.changed
    assert changed.values == {"A": ValueChange(2, 3)}


def test_the_identifier_fields_of_a_table_are_its_keys(lake: Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64())])
    lake.tables.create_table(T, schema)
    with lake.tables.load_table(T).update_schema() as update:
        update.set_identifier_fields("id")
    before = append(lake, pa.table({"id": [1, 2], "n": [1, 2]}, schema=schema))
    replace(lake, pa.table({"id": [1, 2], "n": [1, 3]}, schema=schema))
    assert counts(lake.compare(T, before=before)) == (0, 0, 1)
    assert counts(lake.compare(T, before=before, keys=[])) == (1, 1, None)


def test_rows_without_a_key_of_their_own_are_added_and_removed(lake: Lake) -> None:
    before = append(lake, pa.table({"id": [1, 1, 2, None, 5], "n": [1, 2, 3, 4, 5]}))
    replace(lake, pa.table({"id": [1, 2, 2, None, None], "n": [3, 4, 3, 5, 4]}))
    found = lake.compare(T, before=before, keys=["id"])
    # Key 1 is on two rows before, key 2 on two rows after, of which one is equal to a row before.
    assert counts(found) == (3, 3, 0)
    assert found.key_problems is not None
    assert asdict(found.key_problems) == {
        "null_before": 1,
        "null_after": 2,
        "repeated_before": 1,
        "repeated_after": 1,
    }
    as_what = "these rows count as added and removed, never as changed"
    assert found.notes == (
        f"before: 1 row with NULL in the key and 1 key on more than one row; {as_what}",
        f"after: 2 rows with NULL in the key and 1 key on more than one row; {as_what}",
    )


def test_partitions_have_the_rows_that_differ_in_them(lake: Lake) -> None:
    def table(days: Sequence[str | None], numbers: Sequence[int]) -> pa.Table:
        return pa.table({"day": list(days), "id": list(range(len(days))), "n": list(numbers)})

    before = append(lake, table(["a", "b", "c", None, "e"], [1, 2, 3, 4, 5]), partition_by=by("day"))
    replace(lake, table(["a", "a", "c", None, "f"], [1, 2, 9, 5, 5]))
    found = lake.compare(T, before=before, keys=["id"])
    # Row 1 has moved from b to a, row 4 from e to f: their partition is one of their columns.
    assert counts(found) == (0, 0, 4)
    assert [(one.partition, one.rows_changed) for one in found.partitions] == [
        ({"day": None}, 1),
        ({"day": "a"}, 1),
        ({"day": "c"}, 1),
        ({"day": "f"}, 1),
    ]
    plain = lake.compare(T, before=before)
    assert [(one.partition["day"], one.rows_added, one.rows_removed) for one in plain.partitions] == [
        (None, 1, 1),
        ("a", 1, 0),
        ("b", 0, 1),
        ("c", 1, 1),
        ("e", 0, 1),
        ("f", 1, 0),
    ]


def test_rows_in_partitions_of_another_kind_are_no_difference(lake: Lake) -> None:
    rows = pa.table({"day": ["a", "a", "b"], "n": [1, 2, 3]})
    before = append(lake, rows, partition_by=by("day"))
    lake.tables.evolve_partitions(T, by("n"))
    replace(lake, pa.table({"day": ["a", "a", "b"], "n": [1, 2, 4]}))
    found = lake.compare(T, before=before)
    assert [(one.partition, one.rows_added, one.rows_removed) for one in found.partitions] == [
        ({"day": "b"}, 0, 1),
        ({"n": "4"}, 1, 0),
    ]


def test_the_list_of_partitions_is_bounded_and_says_how_many_there_are(lake: Lake) -> None:
    before = append(lake, pa.table({"p": list(range(120)), "n": [0] * 120}), partition_by=by("p"))
    replace(lake, pa.table({"p": list(range(120)), "n": [1] * 120}))
    found = lake.compare(T, before=before)
    assert (len(found.partitions), found.partitions_total, found.rows_added) == (100, 120, 120)
    assert [one.partition["p"] for one in found.partitions[:3]] == ["0", "1", "2"]


def test_files_that_duckdb_does_not_read_itself_are_compared_too(lake: Lake, tmp_path: Path) -> None:
    """Files without field ids, which another tool wrote, and columns with floats inside."""
    rows = pa.table({"id": [1, 2, 3], "place": [{"lat": 1.0}, {"lat": NAN}, None]})
    before = append(lake, rows, partition_by=by("id"))
    table: Table = lake.tables.load_table(T)
    table.delete(AlwaysTrue())
    table.append(rows.slice(0, 2))
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"place": [{"lat": 3.0}], "id": [3]}), foreign)
    lake.tables.load_table(T).add_files([foreign.as_uri()])
    found = lake.compare(T, before=before, keys=["id"])
    assert counts(found) == (0, 0, 1)
    assert [(one.partition, one.rows_changed) for one in found.partitions] == [({"id": "3"}, 1)]


def test_a_sample_has_the_same_rows_on_both_sides_and_says_so(lake: Lake) -> None:
    ids = list(range(4000))
    before = append(lake, pa.table({"id": ids, "n": ids}))
    replace(lake, pa.table({"id": ids[::-1], "n": [one + (one % 4 == 0) for one in ids[::-1]]}))
    found = lake.compare(T, before=before, keys=["id"], max_rows=1000)
    assert found.sampled
    assert 600 < found.rows_compared < 1400
    assert (found.rows_added, found.rows_removed) == (0, 0)
    assert 0.15 < (found.rows_changed or 0) / (found.rows_compared / 2) < 0.35
    assert found.scope == (
        f"a sample: {found.rows_compared:,} of the 8,000 rows in the files that differ, one of 8 by a hash of the key "
        f"(id); all counts are those of the sample"
    )
    whole = lake.compare(T, before=before, max_rows=1000)
    assert "a hash of the whole row" in whole.scope
    assert whole.sampled
    assert 0 < whole.rows_added < 250
    again = lake.compare(T, before=before, keys=["id"], max_rows=8000)
    assert (again.sampled, again.rows_changed) == (False, 1000)
    assert not lake.compare(T, before=before, after=before, max_rows=1).sampled


def test_values_of_hidden_columns_are_nowhere_in_the_result(lake: Lake) -> None:
    def table(*rows: tuple[int, str, str]) -> pa.Table:
        return pa.table(dict(zip(("id", "Email", "city"), map(list, zip(*rows, strict=True)), strict=True)))

    before = append(lake, table((1, "ann@secret", "Oslo"), (2, "bob@secret", "Rome")), partition_by=by("Email"))
    after = replace(lake, table((1, "eve@secret", "Oslo"), (3, "cyd@secret", "Rome")))
    for start, keys in ((before, ["id"]), (before, ["Email"]), (before, []), (None, ["id"])):
        found = lake.compare(T, before=start, after=after, keys=keys, hidden=["EMAIL"])
        assert "secret" not in json.dumps(asdict(found))
        assert "values not shown: Email" in found.notes
    (changed,) = lake.compare(T, before=before, keys=["id"], hidden=["email"]).examples.changed
    assert (changed.key, changed.values, changed.hidden) == ({"id": 1}, {}, ("Email",))


def test_a_hidden_column_is_hidden_under_its_former_name_too(lake: Lake) -> None:
    first = append(lake, pa.table({"id": [1], "mail": ["ann@secret"]}), partition_by=by("mail"))
    second = replace(lake, pa.table({"id": [1], "mail": ["bob@secret"]}))
    lake.tables.evolve_schema(T, RenameColumn("mail", "email"), allow_incompatible_changes=True)
    replace(lake, pa.table({"id": [1], "email": ["bob@secret"]}))
    found = lake.compare(T, before=first, after=second, keys=["id"], hidden=["email"])
    assert found.examples.changed[0].hidden == ("mail",)
    assert "secret" not in json.dumps(asdict(found))


def test_a_notebook_shows_it_escaped(lake: Lake) -> None:
    before = append(lake, pa.table({"id": [1, 2, 3], "v": ["<i>", None, "gone"]}), partition_by=by("id"))
    lake.tables.evolve_schema(T, AddColumn("new", pa.string()))
    replace(lake, pa.table({"id": [1, 2, 4], "v": ["<b>", "x", "<u>"]}))
    shown = lake.compare(T, before=before, keys=["id"], hidden=["new"])._repr_html_()
    text = html.unescape(re.sub("<[^>]*>", " ", shown))
    for part in ("rows changed 2", "values not shown: new", "added new", "id=4", "4 <u>", "3 gone", "1 <i> → <b>"):
        assert part in " ".join(text.split()), part
    assert "&lt;b&gt;" in shown
    assert not re.search("<(i|u)>", shown)


def test_examples_are_few_and_the_first_in_order(lake: Lake) -> None:
    ids = list(range(6000))
    Random(1).shuffle(ids)
    before = append(lake, pa.table({"id": [one for one in ids if one < 4000]}))
    replace(lake, pa.table({"id": [one for one in ids if one >= 2000]}))
    found = lake.compare(T, before=before, examples=2)
    assert found.examples.added == ({"id": 4000}, {"id": 4001})
    assert found.examples.removed == ({"id": 0}, {"id": 1})
    assert lake.compare(T, before=before, examples=0).examples.added == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": ["idd"]}, r"table 'bronze.orders' has no column 'idd'; did you mean 'id'\? \(there: id, s\)"),
        ({"keys": ["s.x"]}, r"'s.x' is inside of a column; name whole columns: id, s"),
        ({"before": 12}, "has no snapshot 12; it may have expired"),
        ({"before": "v1"}, "has no tag, branch or snapshot 'v1'"),
        ({"examples": -1}, "examples is -1; it must be a whole number from 0"),
        ({"max_rows": 0}, "max_rows is 0; it must be a whole number from 1"),
    ],
)
def test_mistakes_are_refused_with_what_to_write_instead(lake: Lake, options: dict[str, Any], message: str) -> None:
    head = append(lake, pa.table({"id": [1], "s": [{"x": 1}]}))
    with pytest.raises(ConfigurationError, match=message):
        lake.compare(T, **{"before": head, **options})


@pytest.mark.parametrize("fault", ["cut", "emptied", "removed"])
def test_a_file_that_cannot_be_read_is_named(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    before = append(lake, pa.table({"id": list(range(100)), "note": ["x"] * 100}))
    replace(lake, pa.table({"id": list(range(1, 101)), "note": ["x"] * 100}))
    (path,) = (Path(file.path.removeprefix("file://")) for file in lake.tables.list_files(T).files)
    content = path.read_bytes()
    if fault == "removed":
        path.unlink()
    else:
        footer = len(content) - int.from_bytes(content[-8:-4], "little") - 8
        path.write_bytes(content[:-9] if fault == "cut" else b"PAR1" + b"\xff" * (footer - 4) + content[footer:])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(FloeStorageError if fault == "removed" else DamagedFileError, match=T) as raised:
        lake.compare(T, before=before)
    assert fault == "removed" or path.name in str(raised.value)
    assert list(tmp_path.glob("floe-sql-*")) == []


@pytest.mark.parametrize("library", ["duckdb", "sqlglot"])
def test_a_missing_library_is_needed_only_where_rows_are_compared(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    before = append(lake, pa.table({"id": [1]}))
    appended = append(lake, pa.table({"id": [2]}))
    after = replace(lake, pa.table({"id": [3]}))
    monkeypatch.setitem(sys.modules, library, None)
    assert counts(lake.compare(T, before=before, after=appended)) == (1, 0, None)
    with pytest.raises(IncompatibleLibraryError, match=f"needs {library}, .*'floe-iceberg\\[sql\\]'.* without --rows"):
        lake.compare(T, before=before, after=after)


def test_a_comparison_leaves_nothing_behind_and_writes_nothing(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = append(lake, pa.table({"id": [1]}))
    replace(lake, pa.table({"id": [2]}))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def state() -> tuple[object, ...]:
        files = sorted((lake.artifacts.root / ".floe").rglob("*"))
        return lake.tables.load_table(T).metadata_location, files

    at_first = state()
    lake.compare(T, before=before)
    assert state() == at_first
    assert list(scratch.iterdir()) == []


def test_more_rows_than_memory_holds_are_compared_on_disk(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    spilled: list[int] = []

    class SmallSession(Session):
        def lock(self) -> None:
            self.connection.execute("SET memory_limit = '200MB'")
            super().lock()

        def close(self) -> None:
            (folder,) = self.connection.execute("SELECT current_setting('temp_directory')").fetchall()[0]
            spilled.append(sum(path.stat().st_size for path in Path(folder).iterdir()))
            super().close()

    monkeypatch.setattr(by_rows, "Session", SmallSession)
    random = Random(1)
    text = [f"{random.getrandbits(1024):0256x}" for _ in range(400_000)]  # nothing to compress
    ids = list(range(len(text)))
    before = append(lake, pa.table({"id": ids, "text": text}))
    replace(lake, pa.table({"id": ids, "text": ["other", *text[1:]]}))
    assert counts(lake.compare(T, before=before, keys=["id"])) == (0, 0, 1)
    assert spilled[0] > 20_000_000


def test_too_little_memory_is_an_error_that_says_what_to_do(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    class TinySession(Session):
        def lock(self) -> None:
            self.connection.execute("SET memory_limit = '5MB'")
            super().lock()

    monkeypatch.setattr(by_rows, "Session", TinySession)
    before = append(lake, pa.table({"id": list(range(1_000_000))}))
    replace(lake, pa.table({"id": list(range(1, 1_000_001))}))
    with pytest.raises(
        FloeStorageError, match=r"needs more memory or disk than there is; .* a smaller max_rows"
    ) as got:
        lake.compare(T, before=before)
    assert "SET " not in str(got.value)


# A model in plain Python

Row = tuple[int | None, int | None, str]
ROWS = st.lists(
    st.tuples(st.integers(0, 5) | st.none(), st.integers(0, 1) | st.none(), st.sampled_from(["a", "b"])), max_size=14
)


def expected(before: list[Row], after: list[Row], keys: Sequence[int]) -> tuple[int, int, int]:
    """Rows that differ as multisets; those of one key that is on one row of each side are one change."""
    added, removed = Counter(after) - Counter(before), Counter(before) - Counter(after)

    def key(row: Row) -> tuple[object, ...]:
        return tuple(row[place] for place in keys)

    alone = [
        {one for one, count in Counter(map(key, side)).items() if count == 1 and None not in one}
        for side in (before, after)
    ]
    changed = {key(row) for row in added} & {key(row) for row in removed} & alone[0] & alone[1] if keys else set()
    return added.total() - len(changed), removed.total() - len(changed), len(changed)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=ROWS, after=ROWS, keys=st.sampled_from([(), (0,), (0, 1), (2, 0)]))
def test_any_rows_are_compared_as_a_model_compares_them(
    lake: Lake, before: list[Row], after: list[Row], keys: tuple[int, ...]
) -> None:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("p", pa.string())])

    def table(rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)

    # Both sides have a file in each partition, so that metadata does not decide it.
    common: list[Row] = [(9, 9, "a"), (9, 9, "b")]
    if not lake.tables.table_exists(T):
        lake.tables.create_table(T, schema, partition_by=by("p"))
    first, second = (replace(lake, table([*rows, *common])) for rows in (before, after))
    names = [schema.names[place] for place in keys]
    found = lake.compare(T, before=first, after=second, keys=names)
    added, removed, changed = expected([*before, *common], [*after, *common], keys)
    assert counts(found) == (added, removed, changed if keys else None)
    parts = found.partitions
    assert sum(one.rows_added for one in parts) == added
    assert sum(one.rows_removed for one in parts) == removed
    assert sum(one.rows_changed for one in parts) == changed
