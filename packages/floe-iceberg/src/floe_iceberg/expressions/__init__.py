"""Row filters and slices as PyIceberg expressions and as conditions on Arrow data."""

from floe_iceberg.expressions.filters import condition_of, is_negative
from floe_iceberg.expressions.slices import bounds, slice_filter

__all__ = ["bounds", "condition_of", "is_negative", "slice_filter"]
