"""What a catalog refuses to do: privileges, names, commits and credentials, each as the error that it means."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField
from tests.faults.proxy import Answer, Request
from tests.refusals import brief, check_discreet, refused
from tests.servers.scripted import ScriptedServer, as_json, page

from floe_core import errors as floe
from floe_core.config.spec import RestCatalogConfig
from floe_core.errors import FloeStorageError, NamespaceNotFoundError, PermissionDeniedError
from floe_iceberg.errors import translated
from floe_polaris import PolarisCatalog
from floe_polaris.catalog import CREATE_ID
from floe_polaris.plugin import RestCatalogPlugin

Connect = Callable[..., PolarisCatalog]

NAMESPACES, SALES = "/v1/lake/namespaces", "/v1/lake/namespaces/sales"
TABLES, ORDERS = f"{SALES}/tables", f"{SALES}/tables/orders"
SCHEMA = Schema(NestedField(1, "id", LongType()))


def table_answer(**properties: str) -> Answer:
    metadata = new_table_metadata(
        SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///nowhere/orders", properties
    )
    body = {"metadata-location": "file:///nowhere/1.json", "metadata": json.loads(metadata.model_dump_json())}
    return as_json({**body, "config": {}})


# Privileges ------------------------------------------------------------------------------------------------------

OPERATIONS = {
    "LIST_NAMESPACES": "NAMESPACE_LIST",
    "CREATE_NAMESPACE": "NAMESPACE_CREATE",
    "NAMESPACE_EXISTS": "NAMESPACE_LIST",
    "LOAD_NAMESPACE_METADATA": "NAMESPACE_READ_PROPERTIES",
    "UPDATE_NAMESPACE_PROPERTIES": "NAMESPACE_WRITE_PROPERTIES",
    "DROP_NAMESPACE": "NAMESPACE_DROP",
    "LIST_TABLES": "TABLE_LIST",
    "TABLE_EXISTS": "TABLE_LIST",
    "CREATE_TABLE_DIRECT": "TABLE_CREATE",
    "CREATE_TABLE_DIRECT_WITH_WRITE_DELEGATION": "TABLE_CREATE and TABLE_WRITE_DATA",
    "CREATE_TABLE_STAGED": "TABLE_CREATE",
    "CREATE_TABLE_STAGED_WITH_WRITE_DELEGATION": "TABLE_CREATE and TABLE_WRITE_DATA",
    "REGISTER_TABLE": "TABLE_CREATE",
    "LOAD_TABLE": "TABLE_READ_PROPERTIES",
    "LOAD_TABLE_WITH_READ_DELEGATION": "TABLE_READ_DATA (to write: TABLE_WRITE_DATA)",
    "LOAD_TABLE_WITH_WRITE_DELEGATION": "TABLE_WRITE_DATA",
    "UPDATE_TABLE": "TABLE_WRITE_DATA",
    "UPDATE_TABLE_FOR_STAGED_CREATE": "TABLE_CREATE",
    "ADD_TABLE_SNAPSHOT": "TABLE_WRITE_DATA",
    "SET_TABLE_SNAPSHOT_REF": "TABLE_WRITE_DATA",
    "REMOVE_TABLE_SNAPSHOTS": "TABLE_WRITE_DATA",
    "SET_TABLE_PROPERTIES": "TABLE_WRITE_DATA",
    "ASSIGN_TABLE_UUID": "TABLE_WRITE_DATA",
    "UPGRADE_TABLE_FORMAT_VERSION": "TABLE_WRITE_DATA",
    "DROP_TABLE_WITHOUT_PURGE": "TABLE_DROP",
    "DROP_TABLE_WITH_PURGE": "TABLE_DROP and TABLE_WRITE_DATA",
    "RENAME_TABLE": "TABLE_DROP and TABLE_LIST and TABLE_CREATE",
    "COMMIT_TRANSACTION": "TABLE_WRITE_PROPERTIES and TABLE_CREATE",
}


def not_authorized(operation: str, roles: str = "[floe_writer, floe]") -> Answer:
    told = f"Principal 'floe' with activated PrincipalRoles '[floe]' and activated grants via '{roles}'"
    return Answer.error(403, "ForbiddenException", f"{told} is not authorized for op {operation}")


@pytest.mark.parametrize(("operation", "privilege"), OPERATIONS.items())
def test_a_missing_privilege_is_named_with_whoever_lacks_it(
    server: ScriptedServer, connect: Connect, operation: str, privilege: str
) -> None:
    catalog = connect()
    server.requests.clear()
    server.answers["*"] = not_authorized(operation)
    words = rf"knows 'floe' and does not allow {operation}: .* It needs {re.escape(privilege)}: grant that"
    with refused(PermissionDeniedError, words):
        catalog.list_namespaces()
    assert len(server.routes) == 1


def test_a_missing_privilege_is_named_after_a_hundred_roles(server: ScriptedServer, connect: Connect) -> None:
    catalog = connect()
    server.answers["*"] = not_authorized("DROP_NAMESPACE", ", ".join(f"role_number_{number}" for number in range(100)))
    with refused(PermissionDeniedError, "does not allow DROP_NAMESPACE: .*needs NAMESPACE_DROP"):
        catalog.drop_namespace(("sales",))


PURGE = (
    "Unable to purge entity: t. To enable this feature, set the Polaris configuration DROP_WITH_PURGE_ENABLED or the "
    "catalog configuration polaris.config.drop-with-purge.enabled"
)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (not_authorized("DANCE"), r"does not allow DANCE: .*Ask whoever runs the catalog to grant it$"),
        (
            Answer.error(403, "ForbiddenException", PURGE),
            r"Unable to purge entity: t\..*Drop it without purge, or have",
        ),
        (
            Answer.error(403, "ForbiddenException", "Invalid locations '[s3://other/x]' for identifier 'a.t': outside"),
            r"Invalid locations .*leave the location to the catalog",
        ),
        (
            Answer.error(403, "ForbiddenException", "Principal 'floe' must rotate credentials first"),
            r"knows 'floe'.*polaris principals rotate-credentials",
        ),
        (Answer(403), "it gave no reason. Ask whoever"),
        (page(403), r"without a reason, which a catalog would give: a proxy .*HTTPS_PROXY"),
    ],
    ids=brief,
)
def test_what_is_forbidden_for_another_reason_says_what_to_do(
    server: ScriptedServer, connect: Connect, answer: Answer, words: str
) -> None:
    catalog = connect()
    server.requests.clear()
    server.answers["*"] = answer
    with refused(PermissionDeniedError, words):
        catalog.drop_table(("sales", "orders"), purge_requested=True)
    assert server.routes == [f"GET {ORDERS}", f"DELETE {ORDERS}"]


# As Polaris 1.7 answered them.
OVERLAP = (
    "Unable to create entity at location 's3://lake/lake/sales/orders' because it conflicts with existing table or "
    "namespace at location 's3://lake/lake/sales/orders/'"
)
S3_REFUSED_POLARIS = "Access Denied. (Service: S3, Status Code: 403, Request ID: 18E885A2) (SDK Attempt Count: 1)"
STS_REFUSED_POLARIS = (
    "user polaris is not authorized to assume role arn:aws:iam::000000000000:role/none (Service: Sts, Status Code: "
    "403, Request ID: 18E885A3) (SDK Attempt Count: 1)"
)


def test_a_location_that_another_table_has_is_refused_with_a_way_out(server: ScriptedServer, connect: Connect) -> None:
    catalog = connect()
    server.answers[f"POST {TABLES}"] = Answer.error(403, "ForbiddenException", OVERLAP)
    words = r"s3://lake/lake/sales/orders: it holds the files of another table.*rename.*orders-2'\)"
    with refused(FloeStorageError, words):
        catalog.create_table(("sales", "orders"), SCHEMA)


@pytest.mark.parametrize("delegation", ["vended-credentials", "none"])
@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [(403, "AccessDeniedException", S3_REFUSED_POLARIS), (500, "StsException", STS_REFUSED_POLARIS)],
    ids=["S3", "STS"],
)
def test_a_store_that_refuses_the_server_does_not_blame_the_principal(
    server: ScriptedServer, connect: Connect, delegation: str, status: int, kind: str, message: str
) -> None:
    catalog = connect(access_delegation=delegation)
    server.answers[f"POST {TABLES}"] = Answer.error(status, kind, message)
    words = r"refused the catalog server's own key: .*privileges of 'floe' are not the reason.*Ask whoever runs"
    with refused(floe.StorageAuthenticationError, words):
        catalog.create_table(("sales", "orders"), SCHEMA)


def test_a_look_without_a_body_is_refused_too(server: ScriptedServer, connect: Connect) -> None:
    catalog = connect()
    server.answers["*"] = Answer(403)
    with refused(PermissionDeniedError, "knows 'floe'.*Ask whoever"):
        catalog.table_exists(("sales", "orders"))


def test_an_argument_that_cannot_be_sent_is_the_callers_and_not_the_servers(
    server: ScriptedServer, connect: Connect
) -> None:
    catalog = connect()
    server.answers[f"GET {ORDERS}"] = table_answer()
    table = catalog.load_table(("sales", "orders"))
    server.requests.clear()
    wrong: dict[str, Any] = {"x": None}
    for act in (
        lambda: catalog.create_table(("sales", "other"), SCHEMA, properties=wrong),
        lambda: catalog.create_table_transaction(("sales", "other"), SCHEMA, properties=wrong),
        lambda: catalog.register_table(("sales", "other"), 5),  # type: ignore[arg-type] # what is refused here
        lambda: catalog.commit_table(table, ("x",), ()),  # type: ignore[arg-type] # what is refused here
    ):
        with pytest.raises(floe.ConfigurationError, match="was not sent to the catalog") as no:
            act()
        assert "protocol" not in str(no.value)
    assert server.routes == []


# Namespaces and tables -------------------------------------------------------------------------------------------


@pytest.fixture
def plugin(settings: Callable[..., RestCatalogConfig], tmp_path: Path) -> RestCatalogPlugin:
    return RestCatalogPlugin(settings(), root=tmp_path)


def test_a_namespace_without_its_parent_names_the_parent(server: ScriptedServer, plugin: RestCatalogPlugin) -> None:
    server.answers[f"POST {NAMESPACES}"] = Answer.error(
        404, "NoSuchNamespaceException", "Cannot create namespace raw.web. Parent namespace does not exist."
    )
    words = r"^namespace 'raw' not found in catalog; create it before 'raw\.web'$"
    with pytest.raises(NamespaceNotFoundError, match=words) as caught:
        plugin.create_namespace("raw.web")
    check_discreet(caught.value)
    assert server.routes.count(f"POST {NAMESPACES}") == 1


def test_a_table_without_its_namespace_names_the_namespace(server: ScriptedServer, plugin: RestCatalogPlugin) -> None:
    server.answers[f"POST {TABLES}"] = Answer.error(404, "NoSuchNamespaceException", "Namespace does not exist: sales")
    with pytest.raises(NamespaceNotFoundError, match=r"^namespace 'sales' not found .*before 'sales\.orders'$"):
        plugin.create_table("sales.orders", SCHEMA)


@pytest.mark.parametrize(
    ("route", "answer", "act", "kind"),
    [
        (
            f"DELETE {SALES}",
            Answer.error(409, "NamespaceNotEmptyException", "Namespace sales is not empty"),
            lambda plugin: plugin.delete_namespace("sales"),
            floe.NamespaceNotEmptyError,
        ),
        (
            f"DELETE {SALES}",
            Answer.error(404, "NoSuchNamespaceException", "Namespace does not exist: sales"),
            lambda plugin: plugin.delete_namespace("sales"),
            floe.NamespaceNotFoundError,
        ),
        (
            f"POST {NAMESPACES}",
            Answer.error(409, "AlreadyExistsException", "Cannot create namespace sales. Namespace already exists"),
            lambda plugin: plugin.create_namespace("sales"),
            floe.NamespaceAlreadyExistsError,
        ),
        (
            f"POST {TABLES}",
            Answer.error(409, "AlreadyExistsException", "Table already exists: sales.orders"),
            lambda plugin: plugin.create_table("sales.orders", SCHEMA),
            floe.TableAlreadyExistsError,
        ),
        (
            f"DELETE {ORDERS}",
            Answer.error(404, "NoSuchTableException", "Table does not exist: sales.orders"),
            lambda plugin: plugin.drop_table("sales.orders"),
            floe.TableNotFoundError,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_there_or_is_not_becomes_the_error_of_that_name(
    server: ScriptedServer,
    plugin: RestCatalogPlugin,
    route: str,
    answer: Answer,
    act: Callable[[RestCatalogPlugin], None],
    kind: type[FloeStorageError],
) -> None:
    server.answers[route] = answer
    if route.startswith("DELETE"):  # somebody else was quicker
        server.answers[f"GET {ORDERS}"] = table_answer()
    with pytest.raises(kind, match="sales") as caught:
        act(plugin)
    check_discreet(caught.value)
    assert server.routes.count(route) == 1


# Commits ---------------------------------------------------------------------------------------------------------

CONFLICT, DOUBT = floe.ConcurrencyConflictError, floe.CommitStateUnknownError


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer.error(409, "CommitFailedException", "Requirement failed"), CONFLICT),
        (Answer.error(409, "CommitConflictException", "Failed to commit"), CONFLICT),
        (Answer.error(400, "CommitFailedException", "Requirement failed"), CONFLICT),
        (Answer.error(400, "CommitConflictException", "of credential vending in table vendors"), CONFLICT),
        (Answer.error(400, "CommitStateUnknownException", "of subscoped credentials"), DOUBT),
        (Answer.error(400, "TimeoutException", "too late"), DOUBT),
        (Answer.error(500, "CommitStateUnknownException", "service: sts"), DOUBT),
        (Answer.error(504, "GatewayTimeout", "no answer"), DOUBT),
        (Answer(502), DOUBT),
        (page(), DOUBT),
        (Answer(200), DOUBT),
        (as_json({"hello": 1}), DOUBT),
    ],
    ids=brief,
)
def test_a_commit_is_sent_once_and_its_answer_is_a_conflict_or_a_doubt(
    server: ScriptedServer, connect: Connect, answer: Answer, kind: type[FloeStorageError]
) -> None:
    server.answers[f"GET {ORDERS}"] = table_answer()
    server.answers[f"POST {ORDERS}"] = answer
    catalog = connect()
    table = catalog.load_table(("sales", "orders"))
    raw = CommitFailedException if kind is CONFLICT else CommitStateUnknownException
    with pytest.raises(kind) as caught, translated("commit", "sales.orders"):
        catalog.commit_table(table, (), (SetPropertiesUpdate(updates={"a": "b"}),))
    assert isinstance(caught.value.__cause__, raw)
    check_discreet(caught.value)
    assert server.routes.count(f"POST {ORDERS}") == 1


def test_a_commit_without_the_privilege_is_neither(server: ScriptedServer, connect: Connect) -> None:
    server.answers[f"GET {ORDERS}"] = table_answer()
    server.answers[f"POST {ORDERS}"] = not_authorized("ADD_TABLE_SNAPSHOT")
    catalog = connect()
    table = catalog.load_table(("sales", "orders"))
    with refused(PermissionDeniedError, "needs TABLE_WRITE_DATA"):
        catalog.commit_table(table, (), (SetPropertiesUpdate(updates={"a": "b"}),))


def test_the_detail_of_a_refusal_is_for_whoever_looks_into_it(server: ScriptedServer, connect: Connect) -> None:
    catalog = connect()
    server.answers["*"] = not_authorized("LIST_NAMESPACES")
    with pytest.raises(PermissionDeniedError) as caught:
        catalog.list_namespaces()
    detail = caught.value.detail
    assert detail is not None
    assert (detail.error_type, detail.operation) == ("ForbiddenException", f"GET {NAMESPACES}")
    assert detail.message.endswith("is not authorized for op LIST_NAMESPACES")


# Credentials for the files ---------------------------------------------------------------------------------------

NO_STS = [
    Answer.error(
        400,
        "IllegalArgumentException",
        "Credential vending was requested for table sales.orders, but no credentials are available",
    ),
    Answer.error(
        400,
        "IllegalArgumentException",
        "This catalog cannot vend credentials or sign requests; request without X-Iceberg-Access-Delegation",
    ),
    Answer.error(403, "ForbiddenException", "Failed to get subscoped credentials: invalid token (Service: Sts, ...)"),
    Answer.error(422, "UnprocessableEntityException", "Failed to get subscoped credentials: no role"),
]


class CreatesAndRefuses:
    """A table that is created by a request that is refused; `mark` is put in the place of its create id."""

    def __init__(self, server: ScriptedServer, refusal: Answer, mark: str | None = None) -> None:
        self.refusal, self.mark = refusal, mark
        self.table: Answer | None = None
        server.answers |= {f"POST {TABLES}": self.create, f"GET {ORDERS}": self.load, f"DELETE {ORDERS}": self.drop}

    def create(self, request: Request) -> Answer:
        own = json.loads(request.body)["properties"][CREATE_ID]
        self.table = table_answer(**{CREATE_ID: self.mark or own})
        return self.refusal

    def load(self, request: Request) -> Answer:
        if self.table is None:
            return Answer.error(404, "NoSuchTableException", "no table")
        # To look at the table with credentials is refused for the same reason.
        return self.refusal if "x-iceberg-access-delegation" in request.headers else self.table

    def drop(self, _request: Request) -> Answer:
        self.table = None
        return Answer(204)


@pytest.mark.parametrize("refusal", NO_STS, ids=["no STS", "remote signing", "refused by STS", "no role"])
def test_a_table_that_was_made_and_then_refused_is_taken_back(
    server: ScriptedServer, connect: Connect, refusal: Answer
) -> None:
    made = CreatesAndRefuses(server, refusal)
    words = r"cannot vend credentials for the files of 'sales'.*access_delegation: none .*access_key_id"
    with refused(FloeStorageError, words):
        connect().create_table(("sales", "orders"), SCHEMA)
    assert made.table is None
    assert server.routes.count(f"POST {TABLES}") == 1


def test_a_table_of_somebody_else_is_not_taken_back(server: ScriptedServer, connect: Connect) -> None:
    made = CreatesAndRefuses(server, NO_STS[0], mark="somebody else's")
    with refused(FloeStorageError, "cannot vend"):
        connect().create_table(("sales", "orders"), SCHEMA)
    assert made.table is not None
    assert f"DELETE {ORDERS}" not in server.routes


def test_a_table_that_cannot_be_taken_back_does_not_hide_why(server: ScriptedServer, connect: Connect) -> None:
    CreatesAndRefuses(server, NO_STS[0])
    server.answers[f"DELETE {ORDERS}"] = not_authorized("DROP_TABLE_WITHOUT_PURGE")
    with refused(FloeStorageError, "cannot vend"):
        connect().create_table(("sales", "orders"), SCHEMA)


def test_credentials_are_not_asked_for_where_there_are_none(server: ScriptedServer, connect: Connect) -> None:
    server.answers[f"GET {ORDERS}"] = table_answer()
    connect(access_delegation="none").load_table(("sales", "orders"))
    assert all("x-iceberg-access-delegation" not in one.headers for one in server.requests)
    connect().load_table(("sales", "orders"))
    assert server.requests[-1].headers["x-iceberg-access-delegation"] == "vended-credentials"


@pytest.mark.parametrize("name", ["vendors", "credentials", "sts", "delegates"])
def test_the_name_of_a_table_is_not_taken_for_a_refusal_to_vend(
    server: ScriptedServer, plugin: RestCatalogPlugin, name: str
) -> None:
    told = f"Invalid metadata of table sales.{name}: column 3 is missing"
    server.answers[f"POST {TABLES}"] = Answer.error(400, "BadRequestException", told)
    with pytest.raises(FloeStorageError, match=rf"sales\.{name}: column 3") as caught:
        plugin.create_table(f"sales.{name}", SCHEMA)
    assert "access_delegation" not in str(caught.value)
