"""The only place that uses private names of Dagster. Importing it refuses an unsupported release.

`names.py` is for definitions and runs, `storage.py` for what Dagster stores, `services.py` for `floe dev`.
"""

import dagster  # noqa: F401 - its version may be known only from the module

from floe_core.engines import check_version

check_version("dagster")
