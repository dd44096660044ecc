"""PolarisCatalog: PyIceberg's REST catalog, with retries that first resolve the outcome of a failed change."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urljoin

import pyarrow as pa
import requests
from pydantic import ValidationError
from pyiceberg.catalog import PropertiesUpdateSummary
from pyiceberg.catalog.rest import (
    DEFAULT_ENDPOINTS,
    VIEW_ENDPOINTS,
    ConfigResponse,
    Endpoints,
    RestCatalog,
    TableResponse,
)
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
)
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from floe_core.config import CATALOG_NAME, PolarisCatalogConfig, RestCatalogConfig, header_properties, resolve_model
from floe_core.errors import (
    ConfigurationError,
    FloeError,
    FloeStorageError,
    NamespaceNotFoundError,
    PermissionDeniedError,
)
from floe_core.observability import operation
from floe_core.retry import Retry
from floe_core.security import OwnSettings, is_credential_key
from floe_iceberg._pyiceberg.rest_catalog import AdaptedRestCatalog, raise_for_response
from floe_iceberg._pyiceberg.tables import table_of
from floe_iceberg.catalogs import ServedTable, TableChange
from floe_iceberg.errors import translated
from floe_iceberg.maintenance import of_ms
from floe_iceberg.snapshots import latest_ms, stamped
from floe_polaris.files import VendedFileIO, vended_by
from floe_polaris.http import USER_AGENT, Clock, create_session
from floe_polaris.limits import LimitExceededError, Listing
from floe_polaris.responses import Asked
from floe_polaris.sent_settings import SentSettings
from floe_polaris.tokens import BearerAuth, ClientCredentials, GivenToken, NoToken, TokenSource
from floe_polaris.transport_errors import (
    Server,
    address,
    corrected_uri,
    is_transient,
    retry_after,
    shown,
    status_of,
    was_not_sent,
)

__all__ = ["CREATE_ID", "PolarisCatalog", "create_catalog", "extra_headers", "token_source"]

# A property of every table created here: it identifies the request that created the table.
CREATE_ID = "floe.create-id"
_DELEGATION = "X-Iceberg-Access-Delegation"
# Messages of Polaris and SeaweedFS for a change with an earlier timestamp than the last one.
_REFUSED_TIMESTAMP = re.compile(r"(?i)invalid (update|snapshot) timestamp|expected sorted \w+ log")

# Raised by PyIceberg for a response that has the right shape and invalid content.
_UNREADABLE = (
    IcebergValidationError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)

Result = TypeVar("Result")


def create_catalog(
    config: RestCatalogConfig,
    *,
    root: Path | None = None,
    name: str = CATALOG_NAME,
    file_properties: Mapping[str, str] | None = None,
    file_io: FileIO | None = None,
) -> PolarisCatalog:
    """Connect to a Polaris or another Iceberg REST catalog.

    Args:
        config: The settings, as in floe.yaml. References in them are resolved here.
        root: The folder that `${file:…}` and `ca_bundle` are relative to. By default the current one.
        name: The name of the catalog in PyIceberg and in Spark SQL.
        file_properties: Settings of PyIceberg's FileIO, for a catalog that does not vend credentials.
        file_io: The FileIO of all tables. Credentials that the catalog vends are then ignored.

    Example:
        >>> from floe_core.config import RestCatalogConfig
        >>> from floe_polaris import create_catalog
        >>> credentials = {"client_id": client_id, "client_secret": "${env:CATALOG_SECRET}"}
        >>> catalog = create_catalog(RestCatalogConfig(uri=uri, warehouse=warehouse, credentials=credentials))
        >>> catalog.create_namespace("shop")
        >>> ("shop",) in catalog.list_namespaces()
        True
        >>> catalog.drop_namespace("shop")
    """
    root = root or Path.cwd()
    settings = resolve_model(config, root=root)
    session = create_session(
        timeout_seconds=settings.timeout_seconds,
        ca_bundle=root / settings.ca_bundle if settings.ca_bundle else None,
        limits=settings.limits,
    )
    server = f"the catalog at {address(settings.uri)}"
    retry = Retry(settings.retry, server, is_transient=is_transient, retry_after=retry_after)
    with operation("polaris.connect", uri=settings.uri, warehouse=settings.warehouse):
        tokens = token_source(config, settings, session, retry, root)
        return PolarisCatalog(name, settings, session, tokens, retry, file_properties or {}, file_io)


def token_source(
    config: RestCatalogConfig, settings: RestCatalogConfig, session: requests.Session, retry: Retry, root: Path
) -> TokenSource:
    """The token source of these settings; `config` still has its references, so that a file can be read again."""
    if settings.credentials is not None:
        elsewhere = settings.oauth2_server_uri
        server = Server(
            _token_uri(settings),
            "catalog.oauth2_server_uri" if elsewhere else "catalog.uri",
            settings.timeout_seconds,
            None if elsewhere else _corrected(settings),
        )
        return ClientCredentials(
            session,
            server,
            client_id=settings.credentials.client_id,
            client_secret=settings.credentials.client_secret,
            scope=settings.scope,
            retry=retry,
            refresh=settings.token_refresh_enabled,
        )
    if config.token is not None:

        def read() -> str:
            token = resolve_model(config, root=root).token
            return token.get_secret_value() if token else ""

        return GivenToken(read)
    return NoToken()


def _token_uri(settings: RestCatalogConfig) -> str:
    return settings.oauth2_server_uri or f"{settings.uri.rstrip('/')}/v1/oauth/tokens"


def _corrected(settings: RestCatalogConfig) -> str | None:
    return corrected_uri(settings.uri, polaris=isinstance(settings, PolarisCatalogConfig))


def _with_retries(name: str) -> Any:
    """A read-only method of PyIceberg's catalog, with retries."""
    method = getattr(RestCatalog, name)

    @wraps(method)
    def ask(self: PolarisCatalog, *arguments: Any, **named: Any) -> Any:
        return self._ask(lambda: method(self, *arguments, **named))

    return ask


class PolarisCatalog(AdaptedRestCatalog):
    """A PyIceberg catalog on an Iceberg REST server, with retries. `create_catalog` connects it; threads may share it.

    Args:
        name: The name of the catalog.
        settings: The settings, with their references resolved.
        session: The HTTP session of all requests.
        tokens: The source of the bearer token.
        retry: The retries and the circuit breaker.
        file_properties: Settings of PyIceberg's FileIO, for a catalog that does not vend credentials.
        file_io: The FileIO of all tables. Credentials that the catalog vends are then ignored.

    Example:
        >>> from floe_core.config import RestCatalogConfig
        >>> from floe_polaris import create_catalog
        >>> credentials = {"client_id": client_id, "client_secret": "${env:CATALOG_SECRET}"}
        >>> catalog = create_catalog(RestCatalogConfig(uri=uri, warehouse=warehouse, credentials=credentials))
        >>> catalog.namespace_exists("no_such_namespace")
        False
        >>> catalog.breaker_state
        'closed'
    """

    def __init__(
        self,
        name: str,
        settings: RestCatalogConfig,
        session: requests.Session,
        tokens: TokenSource,
        retry: Retry,
        file_properties: Mapping[str, str],
        file_io: FileIO | None = None,
    ) -> None:
        self._settings = settings
        self._server = Server(settings.uri, "catalog.uri", settings.timeout_seconds)
        self._http = session
        self._tokens = tokens
        self._retry = retry
        self._file_io = file_io
        self._file_properties = dict(file_properties)
        self.sent_settings = SentSettings(
            OwnSettings(settings.uri, _token_uri(settings), {**self._file_properties, **_headers(settings)}),
            delegates=settings.access_delegation != "none",
            allow_insecure=settings.allow_insecure,
            server=address(settings.uri),
        )
        self._inside = threading.local()
        self._clock = Clock()
        credentials = settings.credentials
        asked = Asked(
            warehouse=settings.warehouse,
            client_id=credentials.client_id if credentials else None,
            scope=settings.scope,
            with_token=settings.token is not None,
            renews=settings.token_refresh_enabled,
            corrected=_corrected(settings),
        )
        session.headers.update(extra_headers(settings))  # for token requests too
        session.auth = BearerAuth(tokens)
        session.hooks["response"] = [self._answered, self._clock.look, asked.check]
        headers = {f"header.{key}": value for key, value in extra_headers(settings).items()}
        given = {**file_properties, **settings.properties, **headers}
        super().__init__(name, **{**given, "uri": settings.uri, "warehouse": settings.warehouse})

    def _answered(self, response: requests.Response, **_options: Any) -> None:
        self._inside.answered = True
        listing: Listing | None = getattr(self._inside, "listing", None)
        if response.request.method == "GET" and listing is not None:
            listing.add(response)

    @property
    def clock_skew(self) -> float:
        """How many seconds this machine's clock is behind the catalog's."""
        return self._clock.skew

    @property
    def breaker_state(self) -> str:
        """`closed` while the catalog answers, else `open` or `half_open`."""
        return self._retry.breaker.state

    # Hooks of AdaptedRestCatalog ------------------------------------------------------------------------------------

    def open_session(self) -> requests.Session:
        self.set_headers(self._http)
        return self._http

    def set_headers(self, session: requests.Session) -> None:
        super().set_headers(session)
        session.headers["User-Agent"] = USER_AGENT
        if self._settings.access_delegation == "none":
            session.headers.pop(_DELEGATION, None)

    def fetch_config(self) -> None:
        self._ask(self._take_config)

    def _take_config(self) -> None:
        """Like PyIceberg's own, but applies only the settings that a server may send."""
        place = self.url(Endpoints.get_config, prefixed=False)
        response = self.open_session().get(place, params={"warehouse": self._settings.warehouse})
        try:
            response.raise_for_status()
        except requests.HTTPError as exc:
            raise_for_response(exc)
        answer = ConfigResponse.model_validate_json(response.text)
        defaults, overrides = self.sent_settings.of_catalog(answer)
        self.properties = {**defaults, **self.properties, **overrides}
        self.uri = urljoin(self._settings.uri, self.properties["uri"])
        views = VIEW_ENDPOINTS if self.properties.get("view-endpoints-supported", "").lower() == "true" else ()
        separator = unquote(self.properties.get("namespace-separator", "%1F"))
        self.use_endpoints(answer.endpoints or {*DEFAULT_ENDPOINTS, *views}, namespace_separator=separator)

    def file_io(self) -> FileIO:
        """The FileIO of this project; a server's settings never choose it."""
        return self._file_io or VendedFileIO(self._file_properties, {}, None, lambda: self._clock.skew)

    def served_table(self, identifier: tuple[str, ...], answer: TableResponse) -> Table:
        return ServedTable(
            identifier,
            answer.metadata,
            answer.metadata_location or "",
            self._files(answer, lambda: self.vended(identifier)),
            self,
            refused_for_spark=self.sent_settings.refused_with(answer),
        )

    def staged_table(self, identifier: tuple[str, ...], answer: TableResponse) -> StagedTable:
        location = answer.metadata_location or ""
        return StagedTable(identifier, answer.metadata, location, self._files(answer, None), self)

    def _files(self, answer: TableResponse, renew: Callable[[], Properties] | None) -> FileIO:
        if self._file_io is not None:
            return self._file_io
        place = answer.metadata_location or answer.metadata.location  # a table that is being created has no file yet
        credentials = self.credentials_for(answer, place)
        vended = self.sent_settings.of_files(answer.config, credentials)
        own = self._file_properties
        if any(is_credential_key(key) for key in vended):  # never mix the project's credentials with the server's
            own = {key: value for key, value in own.items() if not is_credential_key(key)}
        return VendedFileIO(own, vended, renew, lambda: self._clock.skew)

    def vended(self, identifier: tuple[str, ...]) -> dict[str, Any]:
        """New credentials for the files of a table; loading it brings them from every server that vends any."""
        return vended_by(self.load_table(identifier).io)

    # Requests -------------------------------------------------------------------------------------------------------

    def _ask(self, act: Callable[[], Result], settle: Callable[[Exception], Result | None] | None = None) -> Result:
        """The result of a request, retried as catalog.retry sets; failures are raised as Floe's errors."""
        if getattr(self._inside, "call", False):  # nested in a call that retries already
            return act()
        attempts = 0

        def attempt() -> Result:
            nonlocal attempts
            attempts += 1
            return self._entered(act)

        settled = None if settle is None else lambda failure: self._entered(lambda: settle(failure))
        try:
            return self._retry.call(attempt, settle=settled)
        except FloeError:
            raise
        except ValidationError as exc:
            if not self._inside.answered:
                raise _not_sent(exc) from None
            raise self._unreadable(_problems(exc)) from None
        except NotImplementedError as exc:
            raise FloeStorageError(
                f"{address(self._settings.uri)} does not support this: {exc}; check whether a newer version does"
            ) from exc
        except Exception as exc:
            if isinstance(exc, requests.RequestException) or is_transient(exc):
                raise self._server.unreachable(exc, attempts=attempts, changes=settle is not None) from exc
            if isinstance(exc, _UNREADABLE) and self._inside.answered:
                raise self._unreadable(type(exc).__name__) from None
            raise

    def _unreadable(self, why: str) -> FloeStorageError:
        """Raised without its cause, whose text holds the response, which may contain credentials for the files."""
        return FloeStorageError(
            f"the response of {address(self._settings.uri)} is not valid in the Iceberg REST protocol ({why}); check "
            f"catalog.uri in floe.yaml, and that the server is an Iceberg REST catalog"
        )

    def _entered(self, act: Callable[[], Result]) -> Result:
        self._inside.call, self._inside.answered = True, False
        self._inside.listing = Listing(self._settings.limits)
        try:
            return act()
        except FloeError:
            raise
        except Exception as exc:
            # PyIceberg's messages contain the server's whole response.
            exc.args = tuple(shown(argument) if isinstance(argument, str) else argument for argument in exc.args)
            raise
        finally:
            self._inside.call = False

    list_tables = _with_retries("list_tables")
    list_namespaces = _with_retries("list_namespaces")
    list_views = _with_retries("list_views")
    load_namespace_properties = _with_retries("load_namespace_properties")
    load_table = _with_retries("load_table")
    load_view = _with_retries("load_view")
    namespace_exists = _with_retries("namespace_exists")
    table_exists = _with_retries("table_exists")
    view_exists = _with_retries("view_exists")

    # Changes --------------------------------------------------------------------------------------------------------

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Sent once, without retries: the caller resolves the outcome."""
        send: Callable[..., CommitTableResponse] = super().commit_table
        latest = latest_ms(table.metadata)
        updates = stamped(updates, table.metadata, after=latest)
        try:
            return self._send_commit(lambda: send(table, requirements, updates))
        except RESTError as exc:
            if _REFUSED_TIMESTAMP.search(str(exc)):
                made = [update.snapshot.timestamp_ms for update in updates if isinstance(update, AddSnapshotUpdate)]
                raise _refused_timestamp(exc, ".".join(table.name()), latest, made) from exc
            raise
        finally:
            self._http.headers.pop("Authorization", None)  # PyIceberg leaves a table's own token on the shared session

    @property
    def refuses_many_tables(self) -> str | None:
        if self.has_transactions:
            return None
        return (
            f"{address(self._settings.uri)} does not offer commits of several tables (its /v1/config does not list "
            f"POST /v1/{{prefix}}/transactions/commit)"
        )

    @property
    def is_atomic(self) -> bool:
        return False  # a server may advertise the endpoint and apply the changes one by one

    def commit_tables(self, changes: Sequence[TableChange]) -> None:
        """Every change, or none, as far as the server keeps that; sent once, without retries."""
        sent = [
            (
                change.table.name(),
                change.requirements,
                stamped(change.updates, change.table.metadata, after=latest_ms(change.table.metadata)),
            )
            for change in changes
        ]
        try:
            self._send_commit(lambda: self.send_transaction(sent))
        except NoSuchTableError as exc:
            raise CommitFailedException(str(exc)) from exc

    def _send_commit(self, send: Callable[[], Result]) -> Result:
        """Send a commit once, and tell a refusal from an unknown outcome."""
        try:
            return self._retry.once(lambda: self._entered(send))
        except ValidationError as exc:
            if not self._inside.answered:
                raise _not_sent(exc) from None
            raise CommitStateUnknownException(f"the answer to the commit cannot be read: {_problems(exc)}") from None
        except _UNREADABLE as exc:
            if not self._inside.answered:
                raise
            reason = f"the answer to the commit cannot be read: {type(exc).__name__}"
            raise CommitStateUnknownException(reason) from None
        except LimitExceededError as exc:
            raise CommitStateUnknownException(str(exc)) from exc
        except (requests.RequestException, ServiceUnavailableError) as exc:
            if was_not_sent(exc):
                raise self._server.unreachable(exc, attempts=1) from exc
            raise CommitStateUnknownException(f"no answer to the commit: {shown(str(exc))}") from exc
        except RESTError as exc:
            # Polaris answers 400 for several outcomes of a commit; the name of the exception tells them apart.
            kind = str(exc).partition(":")[0]
            if kind in ("CommitStateUnknownException", "TimeoutException") or status_of(exc) == 408:
                raise CommitStateUnknownException(str(exc)) from exc
            conflict = kind in ("CommitFailedException", "CommitConflictException", "ConflictException")
            if conflict or "sequence number" in str(exc):  # the latter: a commit to another branch
                raise CommitFailedException(str(exc)) from exc
            raise

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        create = super().create_namespace

        def act() -> bool:
            try:
                create(namespace, properties)
            except RESTError as exc:
                *parent, _ = levels = self.identifier_to_tuple(namespace)
                if status_of(exc) == 404 and parent:
                    raise NamespaceNotFoundError(
                        f"namespace '{'.'.join(parent)}' not found in catalog; create it before '{'.'.join(levels)}'"
                    ) from exc
                raise
            return True

        def settle(_failure: Exception) -> bool | None:
            try:
                present = self.load_namespace_properties(namespace)
            except NoSuchNamespaceError:
                return None
            if any(present.get(key) != value for key, value in properties.items()):
                raise NamespaceAlreadyExistsError(f"Namespace {namespace} already exists")
            return True

        self._ask(act, settle)

    def drop_namespace(self, namespace: str | Identifier) -> None:
        drop = super().drop_namespace
        self._ask(lambda: _done(drop(namespace)), lambda _failure: None if self.namespace_exists(namespace) else True)

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        """Updates, then removals, in two requests: Polaris applies both to one stale state, and refuses the second."""
        update: Callable[..., PropertiesUpdateSummary] = super().update_namespace_properties

        def send(gone: set[str] | None, new: Properties) -> PropertiesUpdateSummary:
            return self._ask(lambda: update(namespace, gone, new))  # idempotent, so it may be repeated

        if not removals or not updates:
            return send(removals, updates)
        done = send(None, updates)
        name = ".".join(self.identifier_to_tuple(namespace))
        try:
            with translated("update_namespace", name, namespace=True):
                rest = send(removals, EMPTY_DICT)
        except NamespaceNotFoundError:  # dropped with the properties just set
            raise
        except FloeStorageError as exc:
            raise _only_set(exc, name, updates, removals) from exc
        return PropertiesUpdateSummary(removed=rest.removed, updated=done.updated, missing=rest.missing)

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Create a table. An existing one, which some servers return as if it were new, is an error."""
        create: Callable[..., Table] = super().create_table
        mark = uuid.uuid4().hex
        marked = {**properties, CREATE_ID: mark}

        def own(table: Table) -> Table:
            if table.properties.get(CREATE_ID) != mark:
                raise TableAlreadyExistsError(f"Table {identifier} already exists")
            return table

        def settle(_failure: Exception) -> Table | None:
            table = self._find_table(identifier)
            return None if table is None else own(table)

        try:
            return own(
                self._ask(lambda: create(identifier, schema, location, partition_spec, sort_order, marked), settle)
            )
        except TableAlreadyExistsError:
            # This call may have created it: a gateway may have sent the request twice.
            existing = self._find_table(identifier)
            if existing is None:
                raise
            return own(existing)
        except (FloeStorageError, RESTError):
            self._take_back(identifier, mark)
            raise

    def _take_back(self, identifier: str | Identifier, mark: str) -> None:
        """Drop the empty table that is left behind when Polaris creates a table, then refuses to vend credentials."""
        with suppress(Exception):  # the caller must see the original error
            metadata = self._metadata(identifier)
            if metadata is not None and metadata["properties"].get(CREATE_ID) == mark and not metadata.get("snapshots"):
                self.drop_table(identifier)

    def _metadata(self, identifier: str | Identifier) -> dict[str, Any] | None:
        """A table's metadata, or None if there is no table; requests no credentials, which may be refused."""
        place = self.url(Endpoints.load_table, prefixed=True, **self.path_of(identifier))
        answer = self._http.get(place, headers={_DELEGATION: None})
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        metadata: dict[str, Any] = answer.json()["metadata"]
        return metadata

    def create_table_transaction(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> CreateTableTransaction:
        """Stage a table. Nothing exists before its commit, so staging it again is safe and renews its credentials."""
        stage: Callable[..., CreateTableTransaction] = super().create_table_transaction

        def staged(place: str | None) -> CreateTableTransaction:
            return self._ask(lambda: stage(identifier, schema, place, partition_spec, sort_order, properties))

        made = staged(location)
        files = table_of(made).io

        def renew() -> Properties:
            try:
                return self.vended(self.identifier_to_tuple(identifier))
            except NoSuchTableError:
                return vended_by(table_of(staged(table_of(made).metadata.location)).io)

        if isinstance(files, VendedFileIO):
            files.renew_by(renew)
        return made

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        register: Callable[..., Table] = super().register_table

        def settle(_failure: Exception) -> Table | None:
            table = self._find_table(identifier)
            if table is None:
                return None
            # Another writer may have committed since.
            locations = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
            return table if metadata_location in locations else None

        return self._ask(lambda: register(identifier, metadata_location, overwrite), settle)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        rename: Callable[..., Table] = super().rename_table
        before = self.load_table(from_identifier).metadata.table_uuid

        def settle(_failure: Exception) -> Table | None:
            target, source = self._find_table(to_identifier), self._find_table(from_identifier)
            moved = target is not None and target.metadata.table_uuid == before
            gone = source is None or source.metadata.table_uuid != before  # a new table may have its name by now
            return target if moved and gone else None

        return self._ask(lambda: rename(from_identifier, to_identifier), settle)

    def drop_table(self, identifier: str | Identifier, purge_requested: bool = False) -> None:
        """Drop a table; a retry never drops another table that was created under the same name since."""
        drop = super().drop_table
        try:
            before = self._ask(lambda: self._metadata(identifier))
        except PermissionDeniedError:  # the privilege to drop a table does not include loading it: no retry then
            self._ask(lambda: _done(drop(identifier, purge_requested)), _not_again)
            return
        if before is None:
            raise NoSuchTableError(f"Table does not exist: {identifier}")

        def settle(_failure: Exception) -> bool | None:
            now = self._metadata(identifier)
            return True if now is None or now.get("table-uuid") != before.get("table-uuid") else None

        self._ask(lambda: _done(drop(identifier, purge_requested)), settle)

    def purge_table(self, identifier: str | Identifier) -> None:
        self.drop_table(identifier, purge_requested=True)

    def _find_table(self, identifier: str | Identifier) -> Table | None:
        try:
            table: Table = self.load_table(identifier)
        except NoSuchTableError:
            return None
        return table


def _headers(settings: RestCatalogConfig) -> dict[str, str]:
    """The headers of every request, as engine settings."""
    headers = {**extra_headers(settings), _DELEGATION: settings.access_delegation}
    return {f"header.{key}": value for key, value in headers.items()}


def extra_headers(settings: RestCatalogConfig) -> dict[str, str]:
    """The headers of every request to this catalog, besides its token."""
    realm = settings.realm if isinstance(settings, PolarisCatalogConfig) else None
    return {**header_properties(settings.properties), **({} if realm is None else {"Polaris-Realm": realm})}


def _refused_timestamp(exc: Exception, name: str, latest: int, made: list[int]) -> Exception:
    """The error for a change whose timestamp the server refuses; `made` has the timestamps of its new snapshots."""
    ahead = next((stamp for stamp in made if f"log entry at {stamp}" in str(exc)), None)
    if ahead is not None:
        return FloeStorageError(
            f"the new snapshot of '{name}' is stamped {of_ms(ahead):%Y-%m-%d %H:%M:%S} UTC, ahead of the catalog "
            f"server's clock; the catalog refuses snapshots from the future. Nothing was committed: set this machine's "
            f"clock (NTP), then run it again"
        )
    if made:  # stamped after the table as it was loaded: another writer changed it since
        return CommitFailedException(str(exc))
    return FloeStorageError(
        f"the last change of '{name}' is stamped {of_ms(latest):%Y-%m-%d %H:%M:%S} UTC, ahead of the catalog server's "
        f"clock; until then the server refuses changes of its refs, schema and properties, and all commits from "
        f"Spark. Nothing was committed. Arrow writes still work. Check the clocks of the server and of the writers, or "
        f"wait"
    )


def _not_sent(exc: ValidationError) -> ConfigurationError:
    """The error for an argument that does not fit into a request."""
    return ConfigurationError(f"an argument was not sent to the catalog, because it is not valid: {_problems(exc)}")


def _not_again(failure: Exception) -> bool | None:
    """Used when the table cannot be inspected: never retry."""
    raise failure


def _only_set(
    exc: FloeStorageError, namespace: str, updates: Iterable[str], removals: Iterable[str]
) -> FloeStorageError:
    """The error for a namespace update that set its properties and then failed to remove others."""
    return type(exc)(
        f"namespace '{namespace}': {', '.join(sorted(updates))} set, but removing {', '.join(sorted(removals))} "
        f"failed: {str(exc).rstrip('.')}. Run the same update again",
        detail=exc.detail,
    )


def _done(_nothing: None) -> bool:
    return True


def _problems(exc: ValidationError) -> str:
    """The invalid fields and their problems, without the values."""
    problems = (f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors(include_input=False))
    return shown("; ".join(problems))
