"""A few rows as JSON has them, under the names of their columns, without those that are not shown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from floe_iceberg.comparison.columns import ComparedColumns
from floe_iceberg.comparison.result import ChangedRow, ValueChange
from floe_iceberg.reading import json_values

__all__ = ["changed_rows", "first_rows", "shown_rows"]


def shown_rows(rows: pa.Table, columns: ComparedColumns) -> tuple[dict[str, Any], ...]:
    """The rows of a table whose columns have the names of the comparison."""
    names = [name for name in columns.shown if name in rows.column_names]
    values = [json_values(rows[name].combine_chunks()) for name in names]
    keys = [columns.shown[name] for name in names]
    return tuple(dict(zip(keys, row, strict=True)) for row in zip(*values, strict=True)) if names else ()


def changed_rows(pairs: pa.Table, columns: ComparedColumns, keys: Sequence[str]) -> tuple[ChangedRow, ...]:
    """The changed rows; the table has each of them twice, first as it was before."""
    values = {name: json_values(pairs[name].combine_chunks()) for name in columns.names}
    return tuple(_changed(values, place, columns, keys) for place in range(0, pairs.num_rows, 2))


def _changed(values: dict[str, list[Any]], place: int, columns: ComparedColumns, keys: Sequence[str]) -> ChangedRow:
    differing = [name for name, column in values.items() if name not in keys and column[place] != column[place + 1]]
    return ChangedRow(
        key={columns.shown[name]: values[name][place] for name in keys if name in columns.shown},
        values={
            columns.shown[name]: ValueChange(values[name][place], values[name][place + 1])
            for name in differing
            if name in columns.shown
        },
        hidden=tuple(columns.hidden[name] for name in differing if name in columns.hidden),
    )


def first_rows(reader: pa.RecordBatchReader, columns: ComparedColumns, limit: int) -> tuple[dict[str, Any], ...]:
    """The first rows of a stream; the rest is not read."""
    batches: list[pa.RecordBatch] = []
    missing = limit
    for batch in islice(reader, limit):
        batches.append(batch.slice(0, missing))
        missing -= batches[-1].num_rows
        if not missing:
            break
    return shown_rows(pa.Table.from_batches(batches, schema=reader.schema), columns)
