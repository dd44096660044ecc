"""PyIceberg's reading of nested columns, mended: it makes an empty list of a NULL one if its elements are structs.

The same code serves its writes, so that the NULL would be gone for good, and Floe rewrites files with what it reads:
rows that nobody touched would change. It is the open issue #3833 of apache/iceberg-python; the test of this module
fails when PyIceberg does it right and this can go.
"""

from __future__ import annotations

import pyarrow as pa
import pyiceberg.io.pyarrow as library
from pyiceberg.types import ListType, MapType

__all__ = ["mend"]


class _Faithful(library.ArrowProjectionVisitor):
    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        made = super().list(list_type, list_array, value_array)
        if not isinstance(made, pa.ListArray | pa.LargeListArray) or list_array is None or not list_array.null_count:
            return made
        return type(made).from_arrays(made.offsets, made.values, made.type, mask=list_array.is_null())

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        made = super().map(map_type, map_array, key_result, value_result)
        if not isinstance(made, pa.MapArray) or map_array is None or not map_array.null_count:
            return made
        return pa.MapArray.from_arrays(made.offsets, made.keys, made.items, made.type, mask=map_array.is_null())


def mend() -> None:
    """Let PyIceberg project with this from now on, whoever calls it in this process."""
    library.ArrowProjectionVisitor = _Faithful  # type: ignore[misc]
