"""Floe's IO manager keeps the contract: on the embedded catalog here, on others in the files beside this one."""

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
from floe_iceberg import Lake

_FEW = ("daily", "static", "time-static")  # the partitions that Spark meets in `make test`
_OPEN: list[Lake] = []  # the lake of the test that runs: the kinds of values are listed before there is one


def _spark() -> Values:
    values = spark_values(lambda: _OPEN[0].spark)

    def make(rows: pa.Table) -> Any:
        frame = values.make(rows)
        if isinstance(_OPEN[0], SideLake):
            _OPEN[0].step_aside()
        return frame

    return replace(values, make=make)


def _wide(is_wide: bool) -> Any:
    return pytest.mark.wide if is_wide else ()


class FloeContract(IOManagerContract):
    """The contract on one catalog: the fixture `on` is its lake.

    A star, not the product, which is in `make test-wide`: each engine with each kind of partitions, each kind of
    values with two of them. Which kind a value has matters only where it becomes rows: the other tests take one of
    each engine.
    """

    values = (_spark(), *(make() for make in VALUES.values()))
    metadata = {"write_mode": "overwrite", "allow_empty": True}  # noqa: RUF012
    engines: tuple[str, ...] = ("spark", "arrow")
    kinds: tuple[str, ...] = tuple(VALUES)  # of values, in the tests about values
    with_engine: tuple[str, ...] = (*PARTITIONS, *ODD_PARTITIONS)  # the kinds of partitions for both engines
    with_kind: tuple[str, ...] = ("daily", "static")  # and for each kind of values

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

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if {"kind", "by"} <= set(metafunc.fixturenames):
            metafunc.parametrize(("kind", "by"), list(self.pairs()))
        elif "kind" in metafunc.fixturenames:
            about_values = "value" in metafunc.function.__name__
            chosen = {*self.engines, *(self.kinds if about_values else ())}
            metafunc.parametrize(
                "kind", [pytest.param(one, id=one.name, marks=_wide(one.name not in chosen)) for one in self.values]
            )

    def pairs(self) -> Iterable[Any]:
        for values in self.values:
            for by in self.partitions:
                chosen = (values.name in self.engines and by.name in self.with_engine) or (
                    values.name in self.kinds and by.name in self.with_kind
                )
                marks = pytest.mark.full if values.name == "spark" and by.name not in _FEW else _wide(not chosen)
                yield pytest.param(values, by, id=f"{values.name}-{by.name}", marks=marks if chosen else _wide(True))

    def test_a_retry_appends_once_and_another_run_appends_again(self, bench: Workbench, kind: Values) -> None:
        made = self.retried(bench, kind, {"write_mode": "append"})
        counts = []
        for _ in range(2):
            bench.run([made])
            counts.append((bench.load([made], "one", kind).num_rows, bench.load([made], "two", kind).num_rows))
        assert counts == [(4, 4), (8, 8)]


class TestOnTheEmbeddedCatalog(FloeContract):
    partitions: tuple[Partitions, ...] = (*PARTITIONS.values(), *ODD_PARTITIONS.values())
