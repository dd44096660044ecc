"""Changes to the records of an Avro file. Its header, with the schema and all properties, stays byte by byte."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader, construct_writer
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import StructType

__all__ = ["Fields", "changed_records"]


class Fields:
    """The positions of the fields of a record, by field id."""

    def __init__(self, struct: StructType | Schema) -> None:
        self._places = {field.field_id: place for place, field in enumerate(struct.fields)}
        self._structs = {
            field.field_id: field.field_type for field in struct.fields if isinstance(field.field_type, StructType)
        }

    def __contains__(self, field_id: int) -> bool:
        return field_id in self._places

    def get(self, record: Record, field_id: int) -> Any:
        """The value of a field; None if the schema lacks it."""
        return record[self._places[field_id]] if field_id in self._places else None

    def set(self, record: Record, field_id: int, value: object) -> None:
        record[self._places[field_id]] = value

    def of(self, field_id: int) -> Fields:
        """The fields of a nested record."""
        return Fields(self._structs[field_id])


def changed_records(content: bytes, changer: Callable[[Fields], Callable[[Record], bool]]) -> bytes | None:
    """The file with changed records; None if none was changed.

    PyIceberg's writers of manifests write data manifests of format 2 only, and drop fields that they do not know.

    Args:
        content: The file.
        changer: Called with the fields of the file's schema; returns the function that changes one record, and that
            returns whether it did.
    """
    decoder = new_decoder(content)
    header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    schema, codec = header.get_schema(), header.compression_codec()
    reader, writer = construct_reader(schema), construct_writer(schema)
    change = changer(Fields(schema))
    output = io.BytesIO()
    output.write(content[: decoder.tell()])
    encoder, changed = BinaryEncoder(output), False
    while decoder.tell() < len(content):
        count, block = decoder.read_int(), decoder.read_bytes()
        source = new_decoder(codec.decompress(block) if codec else block)
        records = io.BytesIO()
        record_encoder = BinaryEncoder(records)
        for _ in range(count):
            record = reader.read(source)
            changed = change(record) or changed
            writer.write(record_encoder, record)
        packed = codec.compress(records.getvalue())[0] if codec else records.getvalue()
        encoder.write_int(count)
        encoder.write_int(len(packed))
        encoder.write(packed)
        encoder.write(decoder.read(SYNC_SIZE))
    return output.getvalue() if changed else None
