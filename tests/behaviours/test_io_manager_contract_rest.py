"""Floe's IO manager keeps the contract on a catalog server with object storage."""

import pytest
from tests.behaviours.test_io_manager_contract import FloeContract

from floe_iceberg import Lake


class TestOnAServer(FloeContract):
    engines = ("spark",)
    kinds = ("arrow",)
    with_engine = ("daily", "time-static")
    with_kind = ("daily",)

    @pytest.fixture
    def on(self, rest_lake: Lake) -> Lake:
        return rest_lake
