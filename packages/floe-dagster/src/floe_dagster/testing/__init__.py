"""Contract tests for Dagster IO managers that store tables: subclass `IOManagerContract` for pytest to collect.

It uses only Dagster's API, so it works for any IO manager. Install it with: pip install floe-dagster[testing]
"""

import pytest

# Before the modules are imported, or failed assertions would not show the compared values.
pytest.register_assert_rewrite("floe_dagster.testing.contract", "floe_dagster.testing.life")

from floe_dagster.testing.contract import IOManagerContract  # noqa: E402
from floe_dagster.testing.kinds import ODD_PARTITIONS, PARTITIONS  # noqa: E402
from floe_dagster.testing.partitions import Dimension, Partitions, by_both, by_one, labels, windows  # noqa: E402
from floe_dagster.testing.values import VALUES, Values, spark_values  # noqa: E402
from floe_dagster.testing.workbench import Workbench  # noqa: E402

__all__ = [
    "ODD_PARTITIONS",
    "PARTITIONS",
    "VALUES",
    "Dimension",
    "IOManagerContract",
    "Partitions",
    "Values",
    "Workbench",
    "by_both",
    "by_one",
    "labels",
    "spark_values",
    "windows",
]
