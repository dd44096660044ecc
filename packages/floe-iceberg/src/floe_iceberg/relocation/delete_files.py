"""Delete files that name data files: position deletes in Parquet, deletion vectors in Puffin."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from floe_core.errors import FloeStorageError

__all__ = ["FILE_PATH", "FORMATS", "RewrittenDeletes", "moved_deletes"]

# The reserved field ids of the columns of a position delete file.
FILE_PATH, POSITION = 2147483546, 2147483545
_FIELD_ID = b"PARQUET:field_id"
_PUFFIN_END = 12  # the length of the footer's payload, its flags, and the magic bytes
_REFERENCED = "referenced-data-file"


_Rewritten = tuple[bytes, "RewrittenDeletes"]


@dataclass(frozen=True)
class RewrittenDeletes:
    """What manifests record of a delete file that was written again; a Puffin file has no columns."""

    size: int
    first: str | None = None  # the least and the greatest path in it
    last: str | None = None
    column_sizes: dict[int, int] | None = None
    split_offsets: list[int] | None = None


def moved_deletes(content: bytes, file_format: str, new: Callable[[str], str]) -> _Rewritten | None:
    """The file with new paths; None if all its paths stay as they are."""
    return FORMATS[file_format](content, new)


def _parquet(content: bytes, new: Callable[[str], str]) -> _Rewritten | None:
    schema = pq.read_schema(pa.BufferReader(content))
    names = {int((field.metadata or {}).get(_FIELD_ID, b"-1")): field.name for field in schema}
    path, position = names.get(FILE_PATH, "file_path"), names.get(POSITION, "pos")
    with pq.ParquetFile(pa.BufferReader(content), read_dictionary=[path]) as file:
        table, codec = file.read(), file.metadata.row_group(0).column(0).compression if file.num_row_groups else "ZSTD"
    place = table.schema.get_field_index(path)
    moved = {old: new(old) for chunk in table.column(place).chunks for old in chunk.dictionary.to_pylist()}
    if all(old == path_now for old, path_now in moved.items()):
        return None
    chunks = [
        pa.DictionaryArray.from_arrays(
            chunk.indices, pa.array([moved[old] for old in chunk.dictionary.to_pylist()], chunk.dictionary.type)
        )
        for chunk in table.column(place).chunks
    ]
    table = table.set_column(place, table.schema.field(place), pa.chunked_array(chunks, table.schema.field(place).type))
    if [moved[old] for old in sorted(moved)] != sorted(moved.values()):  # the rows of one file must stay sorted
        field = table.schema.field(place)
        texts = table.column(place).cast(pa.string())  # Arrow does not sort by a dictionary
        table = table.set_column(place, field.with_type(pa.string()), texts)
        table = table.sort_by([(path, "ascending"), (position, "ascending")])
    sink = io.BytesIO()
    # Without Arrow's own schema, which would make the paths a dictionary for every reader.
    pq.write_table(table, sink, compression="none" if codec == "UNCOMPRESSED" else codec, store_schema=False)
    rewritten = sink.getvalue()
    return rewritten, _described(rewritten, {path: FILE_PATH, position: POSITION}, sorted(moved.values()))


def _described(content: bytes, columns: dict[str, int], paths: list[str]) -> RewrittenDeletes:
    metadata = pq.read_metadata(pa.BufferReader(content))
    sizes: dict[int, int] = {}
    offsets = []
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        chunks = [group.column(number) for number in range(group.num_columns)]
        for chunk in chunks:
            if chunk.path_in_schema in columns:
                field = columns[chunk.path_in_schema]
                sizes[field] = sizes.get(field, 0) + chunk.total_compressed_size
        offsets.append(min(chunks[0].dictionary_page_offset or chunks[0].data_page_offset, chunks[0].data_page_offset))
    return RewrittenDeletes(len(content), paths[0], paths[-1], sizes, offsets)


def _puffin(content: bytes, new: Callable[[str], str]) -> _Rewritten | None:
    """Only the footer names files, and it is at the end: all vectors keep their offsets."""
    if content[-8] & 1:
        raise FloeStorageError("a deletion vector file has a compressed footer, which Floe does not rewrite")
    start = len(content) - _PUFFIN_END - int.from_bytes(content[-12:-8], "little")
    footer = json.loads(content[start:-_PUFFIN_END])
    changed = False
    for blob in footer["blobs"]:
        old = blob.get("properties", {}).get(_REFERENCED)
        if old is not None and new(old) != old:
            blob["properties"][_REFERENCED], changed = new(old), True
    if not changed:
        return None
    payload = json.dumps(footer).encode()
    rewritten = content[:start] + payload + len(payload).to_bytes(4, "little") + content[-8:]
    return rewritten, RewrittenDeletes(len(rewritten))


FORMATS: dict[str, Callable[[bytes, Callable[[str], str]], _Rewritten | None]] = {
    "PARQUET": _parquet,
    "PUFFIN": _puffin,
}
