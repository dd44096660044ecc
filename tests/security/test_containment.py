"""Whether a file lies below a folder: certain, or nothing is deleted."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floe_iceberg.files.containment import file_key, is_inside, is_same, may_overlap, real_path

INSIDE = [
    ("/lake/t/data/a.parquet", "/lake/t"),
    ("/lake/t/data/a.parquet", "/lake/t/"),
    ("file:/lake/t/a", "/lake/t"),
    ("file:///lake/t/a", "file:/lake/t"),
    ("file://localhost/lake/t/a", "file:///lake/t/"),
    ("FILE:///lake/t/a", "file:///lake/t"),
    ("file:///lake//t/./a", "file:///lake/t"),
    ("s3://bucket/t/a", "s3a://bucket/t"),
    ("s3n://bucket/t/a", "s3://bucket/t/"),
    ("s3://bucket/t/a", "s3://bucket"),
    ("s3://bucket/t/city=a%2Fb/x.parquet", "s3://bucket/t"),
    # Values of partitions, as Iceberg encodes them.
    ("s3://bucket/t/data/url=https%3A%2F%2Fexample.com%2Fx/a.parquet", "s3://bucket/t"),
    ("s3://bucket/t/data/path=%2F/a.parquet", "s3://bucket/t"),
    ("s3://bucket/t/data/path=%2Fa%2F/a.parquet", "s3://bucket/t"),
    ("s3://bucket/t/data/win=C%3A%5Ctemp/a.parquet", "s3://bucket/t"),
    ("/lake/t/data/win=C%3A%5Ctemp/a.parquet", "/lake/t"),
    ("s3://bucket/t/data/one=a%2F.%2Fb/a.parquet", "s3://bucket/t"),
    ("file:///lake/a b%20c/x", "file:///lake/a b%20c"),
    ("file:///lake/t/left#1?.parquet", "file:///lake/t"),
    ("hdfs://name:8020/t/a", "hdfs://name:8020/t"),
    ("abfss://box@account/t/a", "abfs://box@account/t"),
]
OUTSIDE = [
    # Another folder whose name begins alike, the folder itself, its parent.
    ("/lake/ab", "/lake/a"),
    ("s3://bucket/ab/x", "s3://bucket/a"),
    ("s3://bucket-2/a/x", "s3://bucket/a"),
    ("/lake/a", "/lake/a"),
    ("s3://bucket", "s3://bucket"),
    ("/lake", "/lake/a"),
    # Out of the folder, in words or encoded.
    ("/lake/a/../b/x", "/lake/a"),
    ("/lake/a/%2e%2e/b/x", "/lake/a"),
    ("/lake/a/..%2Fb/x", "/lake/a"),
    ("s3://bucket/a/../b/x", "s3://bucket/a"),
    ("s3://bucket/a/./x", "s3://bucket/a"),
    ("s3://bucket/a//x", "s3://bucket/a"),
    ("s3://bucket//a/x", "s3://bucket/a"),
    ("s3://bucket/a/p=x%2F..%2F..%2Fb/x", "s3://bucket/a"),
    ("s3://bucket/a/p=x%00/x", "s3://bucket/a"),
    ("s3://bucket/%2Fa/x", "s3://bucket/a"),
    ("s3://bucket/a%2F%2Fb/x", "s3://bucket/a%2F%2Fb"),
    ("s3://bucket/a%5Cb/x", "s3://bucket/a%5Cb"),
    ("/lake/a/p=x%5C..%5C..%5Cb/x", "/lake/a"),
    # In again: a link on the way would lead elsewhere.
    ("/lake/b/../a/x", "/lake/a"),
    ("/lake/a/x", "/lake/b/../a"),
    # Only another reading has it inside.
    ("/lake/A/x", "/lake/a"),
    ("/lake/a b/x", "/lake/a%20b"),
    ("/lake/a%20b/x", "/lake/a b"),
    ("/lake/%61/x", "/lake/a"),
    # Other stores and hosts.
    ("s3://bucket/a/x", "gs://bucket/a"),
    ("s3://bucket/a/x", "/bucket/a"),
    ("bucket/a/x", "s3://bucket/a"),
    ("file://host/lake/a/x", "/lake/a"),
    ("hdfs://other/t/a", "hdfs://name/t"),
    # No folder, no absolute path, no store.
    ("/lake/a/x", "/"),
    ("lake/a/x", "lake/a"),
    ("file:lake/a/x", "file:lake/a"),
    ("s3:///a/x", "s3:///a"),
    ("/lake/a/x\x00y", "/lake/a"),
    ("/lake/a/x\\..\\y", "/lake/a"),
    ("", "/lake/a"),
    ("/lake/a/x", ""),
]


@pytest.mark.parametrize(("path", "folder"), INSIDE)
def test_a_file_below_a_folder_is_inside(path: str, folder: str) -> None:
    assert is_inside(path, folder)
    assert may_overlap(path, folder)


@pytest.mark.parametrize(("path", "folder"), OUTSIDE)
def test_a_file_that_is_not_certainly_below_a_folder_is_outside(path: str, folder: str) -> None:
    assert not is_inside(path, folder)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/lake/A/x", "/lake/a"),
        ("/lake/a b/x", "/lake/a%20b"),
        ("/lake/b/../a/x", "/lake/a"),
        ("s3a://bucket/a//x", "s3://bucket/a/x"),
        ("s3://bucket/a/./x", "s3://bucket/a"),
        ("/lake/caf\u00e9", "/lake/cafe\u0301/x"),
        ("/lake", "file:/lake/t"),
    ],
)
def test_places_that_one_reading_has_overlap_may_overlap(one: str, other: str) -> None:
    assert may_overlap(one, other)
    assert may_overlap(other, one)


@pytest.mark.parametrize(
    ("one", "other"), [("/lake/a", "/lake/ab"), ("s3://b/x", "s3://c/x"), ("/lake/a/x", "/lake/a/y")]
)
def test_places_apart_in_every_reading_do_not_overlap(one: str, other: str) -> None:
    assert not may_overlap(one, other)


def test_names_in_an_object_store_that_differ_in_case_are_two() -> None:
    assert not may_overlap("s3://bucket/Sales/x", "s3://bucket/sales")
    assert file_key("s3://bucket/Sales") != file_key("s3a://bucket/sales")


def test_folders_that_differ_in_case_are_two_if_the_disk_says_so(tmp_path: Path) -> None:
    upper, lower = tmp_path / "Sales", tmp_path / "sales"
    assert may_overlap(f"{upper}/data/x", str(lower))  # not there yet: the disk may take them for one
    upper.mkdir()
    lower.mkdir(exist_ok=True)
    one = upper.samefile(lower)
    assert may_overlap(f"{upper}/data/x", str(lower)) is one
    assert may_overlap(str(lower), f"{upper}/data/x") is one
    assert may_overlap(upper.as_uri(), lower.as_uri()) is one


def test_a_link_is_the_file_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "file").touch()
    (tmp_path / "alias").symlink_to(tmp_path / "real" / "file")
    keys = {file_key(str(one)) for one in (tmp_path / "real/file", tmp_path / "link/file", tmp_path / "alias")}
    assert len(keys) == 1


def test_the_same_place_is_the_same_however_it_is_written() -> None:
    assert is_same("s3a://bucket/t/", "s3://bucket/t")
    assert is_same("file:/lake/t", "/lake/t/")
    assert not is_same("/lake/T", "/lake/t")
    assert not is_same("/lake/b/../t", "/lake/t")


NAMES = st.text(st.characters(exclude_characters="/\\\x00", exclude_categories=["Cs"]), min_size=1, max_size=6)
PARTS = st.lists(st.one_of(NAMES, st.sampled_from(["..", ".", "", "%2e%2e", "%2F", "a", "A", "a%20b"])), max_size=5)
STORES = st.sampled_from(["", "file:", "file://", "file://localhost", "s3://b", "s3a://b", "gs://b", "hdfs://n"])


@given(STORES, PARTS, STORES, PARTS)
def test_what_is_inside_is_inside_in_every_reading(first: str, path: list[str], second: str, folder: list[str]) -> None:
    one, other = f"{first}/{'/'.join(path)}", f"{second}/{'/'.join(folder)}"
    if is_inside(one, other):
        assert ".." not in [piece for part in path for piece in part.split("/")]
        assert may_overlap(one, other)
        assert not is_inside(other, one)
        assert not is_same(one, other)
        assert file_key(one).startswith(file_key(other))


@given(STORES, st.lists(st.from_regex(r"[a-z=0-9_-]{1,6}", fullmatch=True), min_size=1, max_size=4), NAMES)
def test_a_plain_child_is_inside_however_its_name_is_spelt(store: str, folder: list[str], name: str) -> None:
    place = f"{store}/{'/'.join(folder)}"
    child = quote(name, safe="")
    assert is_inside(f"{place}/{child}", place) is (name not in (".", ".."))
    assert not is_inside(place, f"{place}/{child}")
    assert not is_inside(f"{place}{child}/x", place)


@pytest.mark.parametrize(
    "path",
    [
        "a/b/f",
        "link/f",
        "a/to-b/f",
        "a/../link/f",
        "a/./b/f",
        "a//b/f",
        "link/../f",
        "missing/x/f",
        "a/loop/f",
        "a/b/file-link",
    ],
)
def test_links_are_followed_as_the_operating_system_does(tmp_path: Path, path: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    (tmp_path / "a" / "to-b").symlink_to("b")
    (tmp_path / "a" / "loop").symlink_to("loop")
    (tmp_path / "a" / "b" / "file-link").symlink_to(tmp_path / "target")
    shared: dict[str, str] = {}
    for address in (f"{tmp_path}/a/b/g", f"{tmp_path}/{path}", f"{tmp_path}/{path}"):
        assert os.path.normpath(real_path(address, shared)) == os.path.realpath(address)
