"""The only place that patches PyIceberg or uses its private names. Importing it refuses an unsupported release.

`patches.py` verifies and applies the patches when floe_iceberg is imported. The other modules offer what Floe needs
under public names: small functions, and base classes whose public methods stand for private ones of PyIceberg.
"""

import pyiceberg  # noqa: F401 - its version may be known only from the module

from floe_core.engines import check_version

check_version("pyiceberg")
