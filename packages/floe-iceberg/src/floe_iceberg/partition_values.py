"""PyIceberg's handling of partition values, mended where files of a partition would not be found again.

What a manifest holds is compared with what is being written or looked for, and five kinds of values were not the same
afterwards as before: a double (its fast Avro decoder reads 0.1 as a float, 0.10000000149), a NaN (which equals
nothing), a UUID (read as an object, looked for as bytes), NULL (which it compares with `<`, a TypeError) and -0.0
(which it leaves out of a manifest's bounds, since Python calls it equal to 0.0). A file that is not found is not
replaced, so its rows would stand twice. The tests of this module fail when PyIceberg does one of them right and it can
go.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
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

__all__ = ["mend", "partition_key", "plain"]


def plain(value: Any) -> Any:
    """A partition's value so that equal ones are one: the same NaN, which Python then finds in a set."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def partition_key(values: Sequence[Any] | Record) -> tuple[object, ...]:
    """Equal for the same partition of a table, and only then: 0.0 and -0.0 are two, though equal in Python."""
    return tuple(_NEGATIVE_ZERO if _is_negative_zero(values[at]) else values[at] for at in range(len(values)))


_NEGATIVE_ZERO = "-0.0"  # no value of a field of floats


def _is_negative_zero(value: object) -> bool:
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0


def _summarise(self: PartitionFieldStats, value: Any) -> None:
    """Bounds that hold both zeros: other readers put -0.0 before 0.0, and would not look into the manifest for it."""
    _summarise_theirs(self, value)
    if isinstance(value, float) and value == 0:
        self._min = -0.0 if self._min == 0 else self._min
        self._max = 0.0 if self._max == 0 else self._max


_summarise_theirs = PartitionFieldStats.update


def _read_float(self: avro.FloatReader, decoder: BinaryDecoder) -> float:
    del self
    return plain(decoder.read_float())  # type: ignore[no-any-return]


def _read_double(self: avro.DoubleReader, decoder: BinaryDecoder) -> float:
    del self
    return plain(struct.unpack("<d", decoder.read(8))[0])  # type: ignore[no-any-return]


def _read_uuid(self: avro.UUIDReader, decoder: BinaryDecoder) -> bytes:
    """As the library's own literals and partition keys hold it."""
    del self
    return decoder.read(16)


class _NullIsNothing(visitors.ResidualEvaluator):
    """Finds what is left to check of a filter in a partition; a partition of NULL is less or more than nothing."""

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
    """True for these partitions, that of NaN among them."""
    del self
    if not partition_fields:
        return AlwaysFalse()
    return Or(
        AlwaysFalse(),
        AlwaysFalse(),
        *(
            And(AlwaysTrue(), AlwaysTrue(), *(_has(name, one[place]) for place, name in enumerate(partition_fields)))
            for one in partition_records
        ),
    )


def _has(name: str, value: object) -> BooleanExpression:
    null: Any = IsNull
    nan: Any = IsNaN
    equal: Any = EqualTo
    if value is None:
        return null(name)  # type: ignore[no-any-return]
    if value is math.nan:
        return nan(name)  # type: ignore[no-any-return]
    if isinstance(value, float) and math.isinf(value):
        value = FloatLiteral(value)  # an infinite double is to PyIceberg more than a float can hold, and equal to none
    return equal(name, value)  # type: ignore[no-any-return]


def mend() -> None:
    """Let PyIceberg do it this way from now on, whoever calls it in this process."""
    avro.FloatReader.read = _read_float  # type: ignore[method-assign]
    avro.DoubleReader.read = _read_double  # type: ignore[method-assign]
    avro.UUIDReader.read = _read_uuid  # type: ignore[assignment, method-assign]
    visitors.ResidualEvaluator = _NullIsNothing  # type: ignore[misc]
    PartitionFieldStats.update = _summarise  # type: ignore[method-assign]
    Transaction._build_partition_predicate = _partition_predicate  # type: ignore[method-assign]
