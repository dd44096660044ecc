"""Files: which exist, which a table references, which belong to it and may be deleted."""

from floe_iceberg.files.containment import canonical, canonical_set, file_keys, is_inside
from floe_iceberg.files.known_files import sends_files_elsewhere
from floe_iceberg.files.listing import Listed, list_files, location_of
from floe_iceberg.files.other_tables import Neighbours
from floe_iceberg.files.ownership import Belongings, is_metadata_file
from floe_iceberg.files.purge import Purge, finish_purge, refuse_shared
from floe_iceberg.files.reachable import FileKind, present_files, reached_files

__all__ = [
    "Belongings",
    "FileKind",
    "Listed",
    "Neighbours",
    "Purge",
    "canonical",
    "canonical_set",
    "file_keys",
    "finish_purge",
    "is_inside",
    "is_metadata_file",
    "list_files",
    "location_of",
    "present_files",
    "reached_files",
    "refuse_shared",
    "sends_files_elsewhere",
]
