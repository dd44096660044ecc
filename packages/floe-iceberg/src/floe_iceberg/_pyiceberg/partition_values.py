"""Patches of PyIceberg's handling of partition values: files of a partition would not be found again.

The values in a manifest are compared with those that are written or searched for, and five kinds of values do not
survive that: a double (its fast Avro decoder reads 0.1 as a float, 0.10000000149), a NaN (which equals nothing), a UUID
(read as an object, searched for as bytes), NULL (which it compares with `<`, a TypeError) and -0.0 (which it leaves out
of a manifest's bounds, since it equals 0.0 in Python). A file that is not found is not replaced, so its rows would be
stored twice. A test fails when PyIceberg handles one of them correctly and the patch can be removed.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import pyiceberg.avro.reader as avro
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundTerm,
    EqualTo,
    IsNaN,
    IsNull,
    Or,
    visitors,
)
from pyiceberg.expressions.literals import FloatLiteral, Literal
from pyiceberg.manifest import PartitionFieldStats
from pyiceberg.table import Transaction
from pyiceberg.typedef import Record

from floe_iceberg.partition_values import plain

__all__ = ["REPLACEMENTS"]


_original_update = PartitionFieldStats.update


def _update_bounds(self: PartitionFieldStats, value: Any) -> None:
    """Extend the bounds to both zeros: other readers sort -0.0 before 0.0, and would skip the manifest."""
    _original_update(self, value)
    if isinstance(value, float) and value == 0:
        self._min = -0.0 if self._min == 0 else self._min
        self._max = 0.0 if self._max == 0 else self._max


def _read_float(self: avro.FloatReader, decoder: BinaryDecoder) -> float:
    del self
    return plain(decoder.read_float())  # type: ignore[no-any-return]


def _read_double(self: avro.DoubleReader, decoder: BinaryDecoder) -> float:
    del self
    return plain(struct.unpack("<d", decoder.read(8))[0])  # type: ignore[no-any-return]


def _read_uuid(self: avro.UUIDReader, decoder: BinaryDecoder) -> bytes:
    """As bytes, like PyIceberg's literals and partition keys."""
    del self
    return decoder.read(16)


class _NullSafeResidualEvaluator(visitors.ResidualEvaluator):
    """Finds the residual of a filter in a partition; NULL is neither less nor greater than any value."""

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> BooleanExpression:
        return self.visit_false() if self._is_null(term) else super().visit_less_than(term, literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> BooleanExpression:
        return self.visit_false() if self._is_null(term) else super().visit_less_than_or_equal(term, literal)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> BooleanExpression:
        return self.visit_false() if self._is_null(term) else super().visit_greater_than(term, literal)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> BooleanExpression:
        return self.visit_false() if self._is_null(term) else super().visit_greater_than_or_equal(term, literal)

    def _is_null(self, term: BoundTerm) -> bool:
        return term.eval(self.struct) is None


def _partition_predicate(
    self: Transaction, partition_records: set[Record], partition_fields: list[str]
) -> BooleanExpression:
    """True for these partitions, including partitions of NaN."""
    del self
    if not partition_fields:
        return AlwaysFalse()
    return Or(
        AlwaysFalse(),
        AlwaysFalse(),
        *(
            And(AlwaysTrue(), AlwaysTrue(), *(_equals(name, record[n]) for n, name in enumerate(partition_fields)))
            for record in partition_records
        ),
    )


def _equals(name: str, value: object) -> BooleanExpression:
    null: Any = IsNull
    nan: Any = IsNaN
    equal: Any = EqualTo
    if value is None:
        return null(name)  # type: ignore[no-any-return]
    if value is math.nan:
        return nan(name)  # type: ignore[no-any-return]
    if isinstance(value, float) and math.isinf(value):
        value = FloatLiteral(value)  # PyIceberg considers an infinite double out of range, equal to no value
    return equal(name, value)  # type: ignore[no-any-return]


REPLACEMENTS: dict[str, Any] = {
    "pyiceberg.avro.reader:FloatReader.read": _read_float,
    "pyiceberg.avro.reader:DoubleReader.read": _read_double,
    "pyiceberg.avro.reader:UUIDReader.read": _read_uuid,
    "pyiceberg.expressions.visitors:ResidualEvaluator": _NullSafeResidualEvaluator,
    "pyiceberg.manifest:PartitionFieldStats.update": _update_bounds,
    "pyiceberg.table:Transaction._build_partition_predicate": _partition_predicate,
}
