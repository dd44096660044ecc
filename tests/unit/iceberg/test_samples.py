"""Rows that are kept to be shown: a few, and never much of the memory they came in."""

from __future__ import annotations

import pyarrow as pa

from floe_iceberg.writing.arrow_source import Sample


def test_the_first_rows_are_kept_over_batches_and_no_more() -> None:
    sample = Sample(3)
    for start in (0, 2, 4):
        batch = pa.record_batch({"id": [start, start + 1]})
        assert sample.of(batch) is batch
    taken = sample.taken()
    assert taken is not None
    assert taken["id"].to_pylist() == [0, 1, 2]


def test_nothing_is_kept_where_nothing_is_wanted_or_came() -> None:
    none = Sample(0)
    none.of(pa.record_batch({"id": [1]}))
    assert none.taken() is None
    assert Sample(5).taken() is None


def test_wide_rows_are_few() -> None:
    sample = Sample(100)
    for _ in range(3):
        sample.of(pa.record_batch({"blob": [b"x" * 2**20] * 20}))
    taken = sample.taken()
    assert taken is not None
    assert taken.num_rows == 1
    assert taken.nbytes < 2 * 2**20
