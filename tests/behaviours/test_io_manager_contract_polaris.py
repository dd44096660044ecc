"""Floe's IO manager keeps the contract on Polaris, if one is given."""

import pytest
from tests.behaviours.test_io_manager_contract import FloeContract

from floe_dagster.testing import ODD_PARTITIONS, PARTITIONS, Partitions
from floe_iceberg import Lake


class TestOnPolaris(FloeContract):
    partitions: tuple[Partitions, ...] = (*PARTITIONS.values(), *ODD_PARTITIONS.values())
    engines = ("spark",)
    kinds = ("arrow",)
    with_engine = ("daily", "time-static")
    with_kind = ("daily",)

    @pytest.fixture
    def on(self, polaris: Lake) -> Lake:
        return polaris
