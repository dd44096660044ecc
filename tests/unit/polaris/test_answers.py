"""Every answer that a catalog was seen to give: the error it becomes, what that says to do, and what is asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from tests.faults.proxy import Answer, Request
from tests.refusals import brief, check_discreet, refused
from tests.servers.scripted import TOKEN_TEXT, ScriptedServer, as_json, page

from floe_core.errors import (
    CatalogAuthenticationError,
    CatalogConnectionError,
    ConfigurationError,
    FloeError,
    FloeStorageError,
)
from floe_polaris import PolarisCatalog
from floe_polaris.transport_errors import corrected_uri

Connect = Callable[..., PolarisCatalog]

TOKENS, CONFIG = "POST /v1/oauth/tokens", "GET /v1/config"
NAMESPACES, SALES = "/v1/lake/namespaces", "/v1/lake/namespaces/sales"
TABLES, ORDERS = f"{SALES}/tables", f"{SALES}/tables/orders"
SCHEMA = Schema(NestedField(1, "id", LongType()))


# Authentication --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (as_json({"error": "unauthorized_client", "error_description": "The client is not authorized"}, 401), "secret"),
        (as_json({"error": "invalid_client", "error_description": "Invalid client credentials"}, 400), "client secret"),
        (as_json({"error": "invalid_client"}, 401), r"client secret is wrong.*reported invalid_client\)$"),
        (as_json({"error": "invalid_scope", "error_description": "bad scope"}, 400), r"'PRINCIPAL_ROLE:ALL' is not"),
        (as_json({"error": "unsupported_grant_type"}, 400), "does not accept client credentials; check catalog"),
        (as_json({"error": {"message": "who?", "type": "NotAuthorizedException", "code": 401}}, 401), r"who\?"),
        (Answer.error(400, "BadRequestException", "no grant"), "no grant"),
        (Answer(401), "401"),
        (Answer(403), "403"),
        (page(401), "401"),
    ],
    ids=brief,
)
def test_refused_credentials_are_told_once_and_not_tried_again(
    server: ScriptedServer, connect: Connect, answer: Answer, words: str
) -> None:
    server.answers[TOKENS] = answer
    with refused(CatalogAuthenticationError, words):
        connect()
    assert server.routes == [TOKENS]


def test_the_detail_of_a_refused_login_has_the_reason_of_the_server(server: ScriptedServer, connect: Connect) -> None:
    server.answers[TOKENS] = as_json({"error": "invalid_client", "error_description": "rotated"}, 401)
    with pytest.raises(CatalogAuthenticationError) as caught:
        connect()
    assert caught.value.detail is not None
    assert caught.value.detail.message == "invalid_client: rotated"
    assert caught.value.detail.operation == TOKENS


def test_an_absent_scope_is_named(server: ScriptedServer, connect: Connect) -> None:
    server.answers[TOKENS] = as_json({"error": "invalid_scope"}, 400)
    with refused(CatalogAuthenticationError, r"The scope '' is not accepted.*catalog\.scope"):
        connect(scope="")


def test_a_token_that_is_refused_at_once_means_a_role_that_is_lacking(server: ScriptedServer, connect: Connect) -> None:
    server.answers[CONFIG] = Answer(401)
    words = r"issued for 'floe' and then refused.*'PRINCIPAL_ROLE:admin' is not assigned.*principal-roles grant"
    with refused(CatalogAuthenticationError, words):
        connect(scope="PRINCIPAL_ROLE:admin")
    assert server.routes == [TOKENS, CONFIG]


@pytest.mark.parametrize("status", [401, 419])
def test_a_session_that_was_let_in_renews_its_token_exactly_once(
    server: ScriptedServer, connect: Connect, status: int
) -> None:
    catalog = connect()
    server.requests.clear()
    server.answers[f"GET {NAMESPACES}"] = Answer(status)
    server.answers[TOKENS] = as_json({"access_token": "token-of-another-call"})
    with refused(CatalogAuthenticationError, "and then refused"):
        catalog.list_namespaces()
    assert server.routes == [f"GET {NAMESPACES}", TOKENS, f"GET {NAMESPACES}"]


def test_a_catalog_that_wants_a_token_says_so(server: ScriptedServer, connect: Connect) -> None:
    server.answers[CONFIG] = Answer(401)
    with refused(CatalogAuthenticationError, r"requires a token.*instead of auth: none"):
        connect(auth="none", credentials=None)
    assert server.routes == [CONFIG]
    assert "authorization" not in server.requests[0].headers


def test_a_given_token_that_is_refused_is_not_shown(server: ScriptedServer, connect: Connect) -> None:
    server.answers[CONFIG] = Answer(401)
    with refused(CatalogAuthenticationError, r"refused the token; it may have expired"):
        connect(credentials=None, token="${env:FLOE_TEST_SCRIPTED_TOKEN}")
    assert server.routes == [CONFIG]


# Token endpoints that are none -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(404), r"404 with nothing in it"),
        (page(404), r"404 with a web page"),
        (page(400), r"400 with a web page"),
        (page(), r"200 with a web page"),
        (Answer(200), r"200 with nothing in it"),
        (as_json({"hello": 1}), "200 with other JSON"),
        (as_json([1]), "200 with other JSON"),
        (as_json({"access_token": None}), "200 with other JSON"),
        (as_json({"access_token": 17}), "200 with other JSON"),
        (as_json({"access_token": ["x"]}), "200 with other JSON"),
        (Answer(200, (), b'{"access_token": "\xff\xfe"}'), "200 with no JSON"),
        (page(500), "failed with 500 for a token request; check its log"),
        (Answer.error(501, "Unsupported", "tokens"), "failed with 501"),
    ],
    ids=brief,
)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["catalog", "provider"])
def test_what_is_no_token_endpoint_is_said_with_the_setting_that_names_it(
    server: ScriptedServer, connect: Connect, answer: Answer, words: str, elsewhere: bool
) -> None:
    place = "/realms/lake/token" if elsewhere else "/v1/oauth/tokens"
    setting = r"catalog\.oauth2_server_uri" if elsewhere else r"catalog\.uri"
    server.answers[f"POST {place}"] = answer
    with refused(CatalogConnectionError, rf"{words}.*heck {setting}"):
        connect(oauth2_server_uri=f"{server.uri}{place}" if elsewhere else None)
    assert server.routes == [f"POST {place}"]


@pytest.mark.parametrize("token", ["", "  ", "two words", "line\r\nX-Injected: 1", "tökén"])
def test_a_token_that_cannot_be_sent_is_refused_without_being_shown(
    server: ScriptedServer, connect: Connect, token: str
) -> None:
    server.answers[TOKENS] = as_json({"access_token": token})
    with refused(CatalogAuthenticationError, "The answer of the token endpoint is (empty|not a token)"):
        connect()
    assert server.routes == [TOKENS]


@pytest.mark.parametrize("life", ["3600", "soon", "", -5, 0, 1e300, 10**400, None, [], {"a": 1}, True])
def test_a_token_is_used_whatever_is_said_about_its_end(server: ScriptedServer, connect: Connect, life: Any) -> None:
    server.answers[TOKENS] = as_json({"access_token": TOKEN_TEXT, "expires_in": life})
    server.answers[f"GET {NAMESPACES}"] = as_json({"namespaces": []})
    catalog = connect()
    catalog.list_namespaces()
    assert server.routes == [TOKENS, CONFIG, f"GET {NAMESPACES}"]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_token_endpoint_that_is_away_is_asked_as_often_as_configured(
    server: ScriptedServer, connect: Connect, status: int
) -> None:
    server.answers[TOKENS] = Answer(status, (("Retry-After", "0"),))
    with pytest.raises(CatalogConnectionError, match=r"\(2 attempts\)") as caught:
        connect(retry={"max_attempts": 2, "jitter_seconds": 0})
    check_discreet(caught.value)
    assert server.routes == [TOKENS] * 2


# Not a catalog ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (page(), "200 with a web page"),
        (page(404), "404 with a web page"),
        (page(400), "400 with a web page"),  # a TLS port that was asked without
        (Answer(404), "404 with nothing in it"),
        (Answer(405), "405 with nothing in it"),
        (Answer(200), "200 with nothing in it"),
        (as_json({"hello": 1}), "200 with other JSON"),
        (as_json([]), "200 with other JSON"),
        (as_json([{"defaults": {}}]), "200 with other JSON"),
        (as_json("text"), "200 with other JSON"),
        (as_json({"status": 404, "error": "Not Found"}, 404), "404 with other JSON"),
        (Answer(200, (), b"\xff\xfe\x00"), "200 with no JSON"),
        (Answer(200, (), b"[" * 100), "200 with no JSON"),
    ],
    ids=brief,
)
def test_what_is_no_catalog_is_told_with_where_a_catalog_is_found(
    server: ScriptedServer, connect: Connect, answer: Answer, words: str
) -> None:
    server.answers[CONFIG] = answer
    with refused(CatalogConnectionError, rf"{server.uri} is not an Iceberg REST.*{words}.*/api/catalog"):
        connect()
    assert server.routes == [TOKENS, CONFIG]


@pytest.mark.parametrize("path", ["/v1", "/v1/"])
def test_an_address_that_ends_in_v1_is_told(server: ScriptedServer, connect: Connect, path: str) -> None:
    """Even if the server answers unknown paths as it answers unknown warehouses."""
    with refused(CatalogConnectionError, rf"is not an Iceberg.*: set uri: {server.uri}$"):
        connect(uri=f"{server.uri}{path}", auth="none", credentials=None)


@pytest.mark.parametrize(
    ("given", "corrected"),
    [
        ("https://h/api/catalog/v1/", "https://h/api/catalog"),
        ("https://h/api/catalog/v1/oauth/tokens", "https://h/api/catalog"),
        ("https://h:8181", "https://h:8181/api/catalog"),
        ("https://h/api", "https://h/api/catalog"),
        ("https://h/api/management/v1", "https://h/api/catalog"),
        ("https://user:pw@h/polaris/v1", "https://h/polaris/api/catalog"),
        ("https://h/api/catalog/", None),
    ],
)
def test_the_address_of_a_polaris_is_corrected(given: str, corrected: str | None) -> None:
    assert corrected_uri(given, polaris=True) == corrected


@pytest.mark.parametrize(
    ("given", "corrected"),
    [
        ("https://h/rest/v1", "https://h/rest"),
        ("https://h/rest/v1/config", "https://h/rest"),
        ("https://h", None),
        ("https://h/v1x", None),
        ("https://h/iceberg/v1/restcatalog", None),
    ],
)
def test_the_address_of_another_catalog_only_loses_its_version(given: str, corrected: str | None) -> None:
    assert corrected_uri(given, polaris=False) == corrected


def test_a_gateway_with_a_version_in_its_address_is_not_corrected() -> None:
    assert corrected_uri("https://gateway/v1/lake/api/catalog", polaris=True) is None


def test_an_address_without_the_path_of_the_catalog_is_told(server: ScriptedServer, connect: Connect) -> None:
    server.answers["*"] = Answer(404)
    server.answers[TOKENS] = Answer(404)
    with refused(CatalogConnectionError, r"did not answer with a token.*catalog\.uri"):
        connect()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("route", [TOKENS, CONFIG])
def test_nothing_is_sent_on_to_another_address(
    server: ScriptedServer, connect: Connect, status: int, route: str
) -> None:
    onward = "https://user:pw@other.invalid:8443/api/catalog/v1/config?warehouse=x"
    server.answers[route] = Answer(status, (("Location", onward),))
    words = r"redirects to https://other\.invalid:8443/api/catalog; set catalog\.uri"
    with refused(ConfigurationError, words):
        connect()
    assert server.routes[-1] == route
    assert server.routes.count(route) == 1


@pytest.mark.parametrize("onward", ["/login", "http://h:99999/", "//[::1", "?", "http://h:x/"])
def test_a_redirect_to_anywhere_is_told(server: ScriptedServer, connect: Connect, onward: str) -> None:
    server.answers[CONFIG] = Answer(302, (("Location", onward),))
    with refused(ConfigurationError, "redirects to"):
        connect()


def test_an_answer_outside_of_the_protocol_is_told_without_what_is_in_it(
    server: ScriptedServer, connect: Connect
) -> None:
    server.answers[f"GET {ORDERS}"] = as_json({"key": TOKEN_TEXT})
    server.answers[f"GET {NAMESPACES}"] = as_json({"namespaces": "all"})
    server.answers[f"GET {TABLES}"] = Answer(200)
    catalog = connect()
    asked: list[tuple[Callable[[], Any], str]] = [
        (lambda: catalog.load_table(("sales", "orders")), "metadata"),
        (lambda: catalog.list_namespaces(), "namespaces"),
        (lambda: catalog.list_tables(("sales",)), "JSON"),
    ]
    for ask, words in asked:
        with refused(FloeStorageError, rf"not valid in the Iceberg REST protocol \(.*{words}"):
            ask()


def test_a_page_in_the_place_of_a_later_answer_is_not_taken_for_an_answer(
    server: ScriptedServer, connect: Connect
) -> None:
    catalog = connect()
    for answer in (page(), page(404)):
        server.answers["*"] = answer
        with refused(CatalogConnectionError, "with a web page"):
            catalog.load_table(("sales", "orders"))
        with refused(CatalogConnectionError, "with a web page"):
            catalog.drop_table(("sales", "orders"))


def test_a_body_that_ends_in_the_middle_is_asked_for_again(server: ScriptedServer, connect: Connect) -> None:
    server.answers[CONFIG] = Answer(200, (), b'{"defaults": {}, "overrides": {}}', is_cut=True)
    with refused(CatalogConnectionError, r"connection to .* broke \(3 attempts\)"):
        connect()
    assert server.routes.count(CONFIG) == 3


def test_what_a_catalog_does_not_offer_is_told(server: ScriptedServer, connect: Connect) -> None:
    server.answers[f"GET {NAMESPACES}"] = Answer.error(501, "UnsupportedOperationException", "no namespaces here")
    with pytest.raises(FloeStorageError, match=r"does not support this: .*no namespaces here.*newer") as caught:
        connect().list_namespaces()
    check_discreet(caught.value)
    server.answers[CONFIG] = as_json({"defaults": {}, "overrides": {}, "endpoints": ["GET /v1/{prefix}/namespaces"]})
    with pytest.raises(FloeStorageError, match="does not support this"):
        connect().load_table(("sales", "orders"))


# The warehouse ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            Answer.error(404, "NotFoundException", "Unable to find warehouse sales"),
            FloeStorageError,
            r"has no warehouse 'sales' \(Unable to find warehouse sales\); check catalog\.warehouse in floe\.yaml",
        ),
        (
            Answer.error(400, "BadRequestException", "Please specify a warehouse"),
            FloeStorageError,
            r"does not accept the warehouse 'sales' \(Please specify.*catalog\.warehouse",
        ),
        (Answer.error(500, "RuntimeException", "boom"), CatalogConnectionError, "failed with 500: boom; check its log"),
        (page(500), CatalogConnectionError, "failed with 500; check its log"),
        (page(407), CatalogConnectionError, r"proxy .* requires a login \(407\).*HTTPS_PROXY"),
    ],
    ids=brief,
)
def test_a_warehouse_that_is_refused_is_named(
    server: ScriptedServer,
    connect: Connect,
    answer: Answer,
    kind: type[FloeError],
    words: str,
) -> None:
    server.answers[CONFIG] = answer
    with refused(kind, words):
        connect()
    assert server.routes == [TOKENS, CONFIG]


# Bodies that nobody wants to read --------------------------------------------------------------------------------


def echo(status: int, filler: str = "") -> Callable[[Request], Answer]:
    """A server that repeats what it was sent."""

    def answer(request: Request) -> Answer:
        sent = f"{request.body.decode()} {request.headers.get('authorization', '')}"
        told = f"{filler}{sent}{filler}"
        return as_json({"error": {"message": told, "type": told, "code": status}}, status)

    return answer


@pytest.mark.parametrize(
    ("status", "filler"),
    [
        *((status, "") for status in (400, 401, 403, 404, 409, 422, 500, 503)),
        pytest.param(400, "x" * 500_000, id="400-long"),
        pytest.param(503, "x" * 500_000, id="503-long"),
    ],
)
def test_what_a_server_repeats_is_shortened_and_without_secrets(
    server: ScriptedServer, connect: Connect, status: int, filler: str
) -> None:
    catalog = connect(retry={"max_attempts": 1})
    server.answers["*"] = echo(status, filler)
    with pytest.raises(Exception) as caught:
        catalog.list_namespaces()
    check_discreet(caught.value)
    with pytest.raises(Exception) as caught:
        catalog.create_table(("sales", "orders"), SCHEMA)
    check_discreet(caught.value)


@pytest.mark.parametrize("status", [400, 401, 403, 500])
def test_a_token_endpoint_that_repeats_the_secret_is_not_believed_to_be_discreet(
    server: ScriptedServer, connect: Connect, status: int
) -> None:
    server.answers[TOKENS] = echo(status)
    with pytest.raises(FloeStorageError) as caught:
        connect()
    check_discreet(caught.value)
    server.answers[TOKENS] = lambda request: as_json(
        {"error": request.body.decode(), "error_description": request.body.decode() * 5000}, status
    )
    with pytest.raises(FloeStorageError) as caught:
        connect()
    check_discreet(caught.value)


@pytest.mark.parametrize(
    "body", [b"\xff\xfe" * 1000, b"x" * 1_000_000, b'{"error": ' * 100_000, b'{"error": null}'], ids=brief
)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
def test_a_body_that_is_no_error_of_a_catalog_does_not_break_the_message(
    server: ScriptedServer, connect: Connect, status: int, body: bytes
) -> None:
    server.answers[CONFIG] = Answer(status, (("Content-Type", "application/json"),), body)
    with pytest.raises(FloeStorageError) as caught:
        connect()
    check_discreet(caught.value)
    assert server.routes == [TOKENS, CONFIG]
