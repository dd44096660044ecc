"""The only place that uses private names of Dagster. Importing it rejects an unsupported release.

`names.py` is for definitions and runs, `storage.py` for Dagster's storage, `services.py` for `floe dev`.
"""

import dagster  # noqa: F401 - its version may be available only from the module

from floe_core.engines import check_version

check_version("dagster")
