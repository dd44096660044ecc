"""Floe's IO manager keeps the contract: on the embedded catalog here, on others in the files beside this one.

Each kind of values meets each kind of partitions on one of two catalogs, by turns, and all of them meet on Polaris.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.catalogs import SideLake

from floe_dagster import IcebergIOManager
from floe_dagster.testing import (
    ODD_PARTITIONS,
    PARTITIONS,
    VALUES,
    IOManagerContract,
    Partitions,
    Values,
    Workbench,
    spark_values,
)
from floe_spark import Lake

_OPEN: list[Lake] = []  # the lake of the test that runs: the kinds of values are listed before there is one


def _spark() -> Values:
    values = spark_values(lambda: _OPEN[0].spark)

    def make(rows: pa.Table) -> Any:
        frame = values.make(rows)
        if isinstance(_OPEN[0], SideLake):
            _OPEN[0].step_aside()
        return frame

    return replace(values, make=make)


class FloeContract(IOManagerContract):
    """The contract on one catalog: the fixture `on` is its lake."""

    values = (_spark(), *(make() for make in VALUES.values()))
    metadata = {"write_mode": "overwrite", "allow_empty": True}  # noqa: RUF012
    turn = 0
    elsewhere: tuple[Partitions, ...] = tuple(PARTITIONS.values())  # those whose other half another catalog has

    @pytest.fixture
    def on(self, lake: Lake) -> Lake:
        return lake

    @pytest.fixture
    def io_manager(self, on: Lake) -> Iterator[IcebergIOManager]:
        _OPEN[:] = [on]
        yield IcebergIOManager(lake=on)
        _OPEN.clear()

    @pytest.fixture
    def prefix(self, namespace: str) -> str:
        return namespace

    def each(self) -> Iterable[Any]:
        for place, values in enumerate(self.values):
            if self.is_turn(place) or not self.elsewhere:
                yield pytest.param(values, id=values.name, marks=self.marks(place))

    def pairs(self) -> Iterable[Any]:
        for row, values in enumerate(self.values):
            for column, by in enumerate(self.partitions):
                if self.is_turn(row + column) or by not in self.elsewhere:
                    yield pytest.param(values, by, id=f"{values.name}-{by.name}", marks=self.marks(row + column))

    def is_turn(self, number: int) -> bool:
        return number % 2 == self.turn

    def marks(self, number: int) -> Any:
        return () if self.is_turn(number) else pytest.mark.full

    def test_a_retry_appends_once_and_another_run_appends_again(self, bench: Workbench, kind: Values) -> None:
        made = self.retried(bench, kind, {"write_mode": "append"})
        counts = []
        for _ in range(2):
            bench.run([made])
            counts.append((bench.load([made], "one", kind).num_rows, bench.load([made], "two", kind).num_rows))
        assert counts == [(4, 4), (8, 8)]


class TestOnTheEmbeddedCatalog(FloeContract):
    partitions: tuple[Partitions, ...] = (*PARTITIONS.values(), *ODD_PARTITIONS.values())
