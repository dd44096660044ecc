"""Injected faults: catalogs that lose answers, proxies, writers that are killed, disks that are full."""

import pytest

# So that what fails in there is shown as it is in a test.
pytest.register_assert_rewrite("tests.faults.doubt")
