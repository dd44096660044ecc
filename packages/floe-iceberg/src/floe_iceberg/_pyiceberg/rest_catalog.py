"""PyIceberg's REST catalog with public methods in place of the private ones that Floe overrides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

import requests
from pydantic import Field
from pyiceberg.catalog.rest import Endpoint, HttpMethod, RestCatalog, TableResponse
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, RESTError
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableRequest, StagedTable, Table, TableIdentifier
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, IcebergBaseModel, Identifier, Properties

from floe_core.engines import private_names, require_members

_SERVER = "a catalog server decides neither which code is loaded nor which files are deleted"
with private_names("pyiceberg", "errors of a catalog server are distinguished"):
    from pyiceberg.catalog.rest.response import _handle_non_200_response

__all__ = ["AdaptedRestCatalog", "raise_for_response"]

require_members(
    "pyiceberg",
    RestCatalog,
    "_config_headers",
    "_create_session",
    "_delete_old_metadata",
    "_fetch_config",
    "_load_file_io",
    "_namespace_separator",
    "_refresh_token",
    "_resolve_storage_credentials",
    "_response_to_staged_table",
    "_response_to_table",
    "_split_identifier_for_path",
    "_supported_endpoints",
    promise=_SERVER,
)


# A commit that was not answered properly may have been applied.
_COMMIT_ERRORS: dict[int, type[Exception]] = {
    409: CommitFailedException,
    500: CommitStateUnknownException,
    501: RESTError,
    502: CommitStateUnknownException,
    504: CommitStateUnknownException,
}
_TRANSACTION = "transactions/commit"
_COMMIT_TRANSACTION = Endpoint(http_method=HttpMethod.POST, path=f"/v1/{{prefix}}/{_TRANSACTION}")


class _CommitTransactionRequest(IcebergBaseModel):
    table_changes: tuple[CommitTableRequest, ...] = Field(alias="table-changes")


def raise_for_response(exc: requests.HTTPError) -> None:
    """Raise PyIceberg's exception for a response with an error status."""
    _handle_non_200_response(exc, {})


class AdaptedRestCatalog(RestCatalog):
    """A catalog on a given session. A subclass decides what is accepted from the server."""

    @abstractmethod
    def open_session(self) -> requests.Session:
        """The session of all requests."""

    @abstractmethod
    def fetch_config(self) -> None:
        """Request the configuration of the server."""

    @abstractmethod
    def file_io(self) -> FileIO:
        """The FileIO of a table for which the server sent nothing."""

    @abstractmethod
    def served_table(self, identifier: tuple[str, ...], answer: TableResponse) -> Table:
        """A table as the server sent it."""

    @abstractmethod
    def staged_table(self, identifier: tuple[str, ...], answer: TableResponse) -> StagedTable:
        """A table that is being created."""

    def set_headers(self, session: requests.Session) -> None:
        """Set PyIceberg's headers for all requests."""
        super()._config_headers(session)

    def use_endpoints(self, endpoints: Iterable[Endpoint], *, namespace_separator: str) -> None:
        """Set the endpoints that the server supports, and its namespace separator."""
        self._supported_endpoints = set(endpoints)
        self._namespace_separator = namespace_separator

    def credentials_for(self, answer: TableResponse, location: str) -> Properties:
        """The storage credentials of a response that match a location best."""
        return self._resolve_storage_credentials(answer.storage_credentials, location)

    def path_of(self, identifier: str | Identifier) -> Properties:
        """The parts of an identifier as they appear in a URL."""
        return self._split_identifier_for_path(identifier)

    @property
    def has_transactions(self) -> bool:
        """Does the server advertise commits of several tables?"""
        return _COMMIT_TRANSACTION in self._supported_endpoints

    def send_transaction(
        self, changes: Sequence[tuple[Identifier, tuple[TableRequirement, ...], tuple[TableUpdate, ...]]]
    ) -> None:
        """Send one commit with the changes of several tables."""
        request = _CommitTransactionRequest(
            table_changes=tuple(
                CommitTableRequest(
                    identifier=TableIdentifier(namespace=name[:-1], name=name[-1]),
                    requirements=requirements,
                    updates=updates,
                )
                for name, requirements, updates in changes
            )
        )
        response = self.open_session().post(
            self.url(_TRANSACTION), data=request.model_dump_json(by_alias=True).encode()
        )
        try:
            response.raise_for_status()
        except requests.HTTPError as exc:
            _handle_non_200_response(exc, _COMMIT_ERRORS)

    def _create_session(self) -> requests.Session:
        return self.open_session()

    def _config_headers(self, session: requests.Session) -> None:
        self.set_headers(session)

    def _fetch_config(self) -> None:
        self.fetch_config()

    def _refresh_token(self) -> None:
        """Nothing to do: a token is renewed when a request is sent."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        del properties, location
        return self.file_io()

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        return self.served_table(identifier_tuple, table_response)

    def _response_to_staged_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> StagedTable:
        return self.staged_table(identifier_tuple, table_response)

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Leave earlier metadata files to the server and to the removal of orphans.

        Checking whether another table of the server references one would take a request for every table in each commit.
        """
        del io, base, metadata
