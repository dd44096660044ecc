"""A patch of PyIceberg's projection, which turns a NULL list into an empty one if its elements are structs.

Writes use the same code, so that the NULL would be lost for good, and Floe rewrites files with what it reads: rows
outside of the write would change. It is issue #3833 of apache/iceberg-python. A test fails when PyIceberg handles it
correctly and the patch can be removed.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyiceberg.io.pyarrow as library
from pyiceberg.types import ListType, MapType

__all__ = ["REPLACEMENTS"]


class _NullPreservingProjection(library.ArrowProjectionVisitor):
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


REPLACEMENTS: dict[str, Any] = {"pyiceberg.io.pyarrow:ArrowProjectionVisitor": _NullPreservingProjection}
