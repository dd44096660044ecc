"""Numbers as people say them."""

from __future__ import annotations

import pytest

from floe_core.formatting import counted, human_bytes


@pytest.mark.parametrize(
    ("number", "told"), [(0, "no tables"), (1, "1 table"), (2, "2 tables"), (1234, "1,234 tables")]
)
def test_things_are_counted(number: int, told: str) -> None:
    assert counted(number, "table") == told


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_960, "1.0 MB"),
        (1_234_567, "1.2 MB"),
        (5 * 10**12, "5000.0 GB"),
    ],
)
def test_bytes_are_told_in_the_unit_that_fits(count: int, told: str) -> None:
    assert human_bytes(count) == told
