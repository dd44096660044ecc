"""One text for one file, however its address is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from floe_iceberg.files.containment import canonical


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:/a/b", "/a/b"),
        ("file:///a/b/", "/a/b"),
        ("file://localhost/a/b", "/a/b"),
        ("file:///a//b/../c", "/a/c"),
        ("//a/b", "/a/b"),
        ("/a/b:c", "/a/b:c"),
        ("file:///a/left#1.parquet", "/a/left#1.parquet"),
        ("file:///a/que?.parquet", "/a/que?.parquet"),
        ("file:///a/%20 é", "/a/%20 é"),
        ("s3://bucket/a/b", "bucket/a/b"),
        ("s3a://bucket/a/b/", "bucket/a/b"),
        # Two names of two objects.
        ("s3://bucket/a//b", "bucket/a//b"),
        ("s3://bucket/a/../b#1", "bucket/a/../b#1"),
        ("hdfs://name:8020/a/b", "/a/b"),
    ],
)
def test_one_file_has_one_text(address: str, path: str) -> None:
    assert canonical(address) == path


def test_a_relative_path_is_below_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert canonical("a/../b") == str(tmp_path / "b")
