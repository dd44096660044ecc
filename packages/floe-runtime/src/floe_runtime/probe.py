"""A temporary table on a catalog server, to test the privileges there with both engines."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.table import Table

from floe_core.errors import FloeError, FloeStorageError, PermissionDeniedError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.models import WriteMode
from floe_iceberg import Lake
from floe_iceberg.files import Belongings, finish_purge, reached_files

__all__ = ["Probe"]

_ROWS = 3
_ENDS = "s3.session-token-expires-at-ms"


class Probe:
    """One table in a namespace of its own."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.namespace = Namespace(levels=(f"floe_doctor_{uuid.uuid4().hex[:8]}",))
        self.table = TableIdentifier(namespace=self.namespace.levels, name="probe")
        self.was_there = False
        self._reached = False
        self._properties: dict[str, str] = {}

    def create(self) -> str:
        """Create the namespace and the table; the catalog itself writes the first metadata file."""
        self.was_there = True  # not after a refusal, but possibly after any other failure
        try:
            with _needing("NAMESPACE_CREATE", "create a namespace"):
                self.lake.tables.create_namespace(self.namespace)
        except PermissionDeniedError:
            self.was_there = False
            raise
        with _needing("TABLE_CREATE and TABLE_WRITE_DATA", "create a table"):
            table = self.lake.tables.create_table(self.table, pa.schema([("id", pa.int64())]))
        with _needing("TABLE_LIST", "list tables"):
            self.lake.tables.list_tables(self.namespace)
        return f"a namespace and a table were created, at {table.location()}"

    def write(self) -> str:
        """Write and read with PyIceberg, with the credentials that the catalog vends or those of `storage`."""
        tables = self.lake.tables
        vended = tables.catalog_plugin.vend_credentials(str(self.table))
        self._properties = {**tables.storage_plugin.get_pyiceberg_properties(), **vended}
        self._refuse_other_storage()
        with _needing("TABLE_WRITE_DATA", "write"), self._storing():
            self.lake.tables.write_data(self.table, pa.table({"id": list(range(_ROWS))}), mode=WriteMode.APPEND)
        self._reached = True
        with _needing("TABLE_READ_DATA", "read"), self._storing():
            seen = self.lake.tables.scan(self.table).to_arrow().num_rows
        if seen != _ROWS:
            raise FloeError(f"PyIceberg wrote {_ROWS} rows and read {seen}")
        return f"PyIceberg wrote and read {_ROWS} rows at {self._store}, {self._credentials}"

    def exchange(self) -> str:
        """Spark reads what PyIceberg wrote, and vice versa."""
        seen = self.lake.read(self.table).count()
        if seen != _ROWS:
            raise FloeError(f"PyIceberg wrote {_ROWS} rows and Spark read {seen}; they do not see the same table")
        self.lake.write(self.lake.spark.range(_ROWS), self.table, mode=WriteMode.APPEND)
        seen = self.lake.tables.scan(self.table).to_arrow().num_rows
        if seen != 2 * _ROWS:
            raise FloeError(f"Spark added {_ROWS} rows, and PyIceberg read {seen} in all; they see different tables")
        return "Spark read what PyIceberg wrote, and PyIceberg read what Spark wrote"

    def remove(self) -> str:
        """Remove what was created: table, files, namespace."""
        if not self.was_there:
            return "nothing was created"
        try:
            table = self.lake.tables.find_table(self.table)
            if table is not None:
                self._drop(table)
            if self.lake.tables.namespace_exists(self.namespace):
                with _needing("NAMESPACE_DROP", "drop a namespace"):
                    self.lake.tables.catalog_plugin.delete_namespace(str(self.namespace))
        except (FloeError, OSError) as exc:
            raise FloeError(
                f"the probe could not be removed: {exc}. Drop the table '{self.table}' by hand if it is there, then: "
                f"floe namespaces drop {self.namespace}"
            ) from exc
        return f"the probe table{', its files' if self._reached else ''} and its namespace are gone"

    def _drop(self, table: Table) -> None:
        # If this machine cannot reach the store, only the catalog can delete the files.
        files = reached_files(table) if self._reached else set()
        # A hostile server can name any file of this machine in the table's metadata.
        files -= {file.path for file in Belongings(table, self.lake.tables.homes()).kept(files)}
        plugin = self.lake.tables.catalog_plugin
        with _needing("TABLE_DROP", "drop a table"):
            try:
                plugin.drop_table(str(self.table), purge=True)
            except FloeError:  # some catalogs delete no files
                plugin.drop_table(str(self.table))
        finish_purge(table.io, files, self.table)

    def _refuse_other_storage(self) -> None:
        location = self.lake.tables.load_table(self.table).location()
        place, kind = urlsplit(location), self.lake.artifacts.storage.type
        if place.scheme not in ("s3", "s3a") or kind == "s3":
            return
        endpoint = self._properties.get("s3.endpoint")
        more = f", endpoint: '{endpoint}', path_style_access: true" if endpoint else ""
        raise FloeError(
            f"the catalog keeps its tables in {place.scheme}://{place.netloc}, and storage in floe.yaml is {kind}, so "
            f"Spark could not read them. Write storage: {{type: s3, bucket: {place.netloc}{more}}}"
        )

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except (FloeStorageError, OSError) as exc:
            if isinstance(exc, FloeStorageError) and type(exc) is not FloeStorageError:
                raise  # its message is specific already
            reason = str(exc.__cause__ or exc).splitlines()[0]
            raise FloeError(
                f"the catalog agreed, and the object store at {self._store} did not ({self._credentials}): {reason}. "
                f"See that the store can be reached from this machine under that address (storage.endpoint)"
            ) from exc

    @property
    def _store(self) -> str:
        return self._properties.get("s3.endpoint", "Amazon S3")

    @property
    def _credentials(self) -> str:
        if "s3.session-token" in self._properties:
            ends = self._properties.get(_ENDS, "")
            left = f" for {(int(ends) / 1000 - time.time()) / 60:.0f} min" if ends.isdecimal() else ""
            return f"with credentials that the catalog vends{left}"
        if "s3.access-key-id" in self._properties:
            return "with the keys in storage"
        return "with this machine's own credentials: the catalog vends none, and storage names none"


@contextmanager
def _needing(privilege: str, action: str) -> Iterator[None]:
    """Name the missing privilege in a refusal, unless the catalog's own message does."""
    try:
        yield
    except PermissionDeniedError as exc:
        if any(name in str(exc) for name in privilege.split(" and ")):
            raise
        raise PermissionDeniedError(f"{exc}. To {action}, Polaris requires {privilege}", detail=exc.detail) from exc
