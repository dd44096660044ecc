"""A catalog that is away for a moment: asked again as often as configured, and never told the same thing twice."""

from __future__ import annotations

import itertools
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from tests.faults.proxy import Answer, FaultProxy, Forward, Request, cut, dropped, fault_proxy
from tests.servers.catalogs import QUICK, open_catalog
from tests.servers.seaweedfs import SeaweedFS

from floe_core.errors import CatalogConnectionError, FloeError
from floe_polaris import PolarisCatalog
from floe_polaris.catalog import CREATE_ID

SCHEMA = pa.schema([("id", pa.int64())])
AWAY = {
    "503": Answer.error(503, "ServiceUnavailableException", "later"),
    "502": Answer(502, (("Content-Type", "text/html"),), b"<html>bad gateway</html>"),
    "504": Answer(504),
    "429": Answer(429, (("Retry-After", "0"),)),
    "no answer": None,
}


@pytest.fixture(scope="module")
def proxy(server: SeaweedFS) -> Iterator[FaultProxy]:
    with fault_proxy(server.catalog_uri) as running:
        yield running


@pytest.fixture(scope="module")
def catalog(server: SeaweedFS, proxy: FaultProxy) -> PolarisCatalog:
    return open_catalog(server, proxy.uri, retry={**QUICK, "circuit_breaker_threshold": 0})


@pytest.fixture
def name(catalog: PolarisCatalog, namespace: str) -> tuple[str, str]:
    """A table that does not exist, in a namespace that does."""
    catalog.create_namespace((namespace,))
    return namespace, "events"


class First:
    """The first requests of a kind meet a fault, all others pass."""

    def __init__(self, fault: Callable[[Forward], Answer | None], method: str, times: int = 1) -> None:
        self.fault, self.method, self.times = fault, method, times

    def __call__(self, request: Request, forward: Forward) -> Answer | None:
        if request.method == self.method and self.times and not request.path.endswith("/oauth/tokens"):
            self.times -= 1
            return self.fault(forward)
        return forward()


def says(answer: Answer | None) -> Callable[[Forward], Answer | None]:
    return lambda _forward: answer


# Looking ---------------------------------------------------------------------------------------------------------

LOOKS: dict[str, Callable[[PolarisCatalog, tuple[str, str]], Any]] = {
    "list_namespaces": lambda catalog, _name: catalog.list_namespaces(),
    "list_tables": lambda catalog, name: catalog.list_tables(name[:1]),
    "load_namespace_properties": lambda catalog, name: catalog.load_namespace_properties(name[:1]),
    "namespace_exists": lambda catalog, name: catalog.namespace_exists(name[:1]),
    "table_exists": lambda catalog, name: catalog.table_exists(name),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("kind", AWAY)
def test_a_look_is_repeated_until_it_is_answered(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str], kind: str, look: str
) -> None:
    expected = LOOKS[look](catalog, name)
    with proxy.intercepted(First(says(AWAY[kind]), "GET", times=2)):
        assert LOOKS[look](catalog, name) == expected
    assert len(proxy.requests) == 3


def test_a_look_whose_answer_is_cut_in_the_middle_is_repeated(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    catalog.create_table(name, SCHEMA)
    with proxy.intercepted(First(cut, "GET")):
        assert catalog.load_table(name).name() == name
    assert len(proxy.requests) == 2


@pytest.mark.parametrize("attempts", [1, 2, 4])
def test_the_configured_attempts_are_made(server: SeaweedFS, proxy: FaultProxy, attempts: int) -> None:
    catalog = open_catalog(server, proxy.uri, retry={**QUICK, "max_attempts": attempts, "circuit_breaker_threshold": 0})
    with proxy.intercepted(First(says(AWAY["503"]), "GET", times=99)):
        with pytest.raises(CatalogConnectionError, match="answered 503") as caught:
            catalog.list_namespaces()
        assert len(proxy.requests) == attempts
    assert isinstance(caught.value.__cause__, ServiceUnavailableError)
    assert caught.value.detail is not None
    assert caught.value.detail.retry_count == attempts - 1
    assert (f"{attempts} attempts" in str(caught.value)) == (attempts > 1)


def test_the_configured_waits_are_made(server: SeaweedFS, proxy: FaultProxy) -> None:
    waiting = {"initial_wait_seconds": 0.3, "max_wait_seconds": 1, "jitter_seconds": 0, "max_attempts": 4}
    catalog = open_catalog(server, proxy.uri, retry={**waiting, "circuit_breaker_threshold": 0})
    with proxy.intercepted(First(says(AWAY["503"]), "GET", times=3)):
        catalog.list_namespaces()
    moments = [one.at for one in proxy.requests]
    waits = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert all(wait >= least for wait, least in zip(waits, [0.3, 0.6, 1.0], strict=True))


def test_the_server_is_asked_again_when_it_says(catalog: PolarisCatalog, proxy: FaultProxy) -> None:
    with proxy.intercepted(First(says(Answer(429, (("Retry-After", "1"),))), "GET")):
        catalog.list_namespaces()
    assert proxy.requests[1].at - proxy.requests[0].at >= 1
    with (
        proxy.intercepted(First(says(Answer(429, (("Retry-After", "60"),))), "GET")),
        pytest.raises(CatalogConnectionError, match=r"asks to wait 60 s, longer than retry\.max_wait_seconds"),
    ):
        catalog.list_namespaces()
    assert len(proxy.requests) == 1


@pytest.mark.parametrize("status", [400, 403, 404, 405, 406, 409, 422, 500, 501])
def test_a_refusal_is_not_repeated(catalog: PolarisCatalog, proxy: FaultProxy, status: int) -> None:
    refusal = Answer.error(status, "SomeException", "no")
    with proxy.intercepted(First(says(refusal), "GET", times=9)), pytest.raises(Exception, match=r"no|not"):
        catalog.list_namespaces()
    assert len(proxy.requests) == 1


def test_a_server_that_takes_too_long_is_given_up_on(server: SeaweedFS, proxy: FaultProxy) -> None:
    catalog = open_catalog(server, proxy.uri, timeout_seconds=0.3, retry={**QUICK, "max_attempts": 2})
    held = threading.Event()

    def late(forward: Forward) -> Answer | None:
        held.wait(5)
        return None

    with proxy.intercepted(First(late, "GET", times=2)):
        with pytest.raises(CatalogConnectionError, match=r"did not answer within 0\.3 s \(2 attempts\)"):
            catalog.list_namespaces()
        held.set()
    assert len(proxy.routes("GET")) == 2


# Changing --------------------------------------------------------------------------------------------------------


def test_a_namespace_whose_answer_is_lost_is_created_once(
    catalog: PolarisCatalog, proxy: FaultProxy, namespace: str
) -> None:
    with proxy.intercepted(First(dropped, "POST")):
        catalog.create_namespace((namespace,), {"owner": "us"})
    assert len(proxy.routes("POST.*/namespaces$")) == 1
    assert catalog.load_namespace_properties((namespace,))["owner"] == "us"


def test_a_namespace_of_somebody_else_is_not_taken_for_ours(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    with (
        proxy.intercepted(First(says(None), "POST")),
        pytest.raises(NamespaceAlreadyExistsError),
    ):
        catalog.create_namespace(name[:1], {"owner": "us"})


@pytest.mark.parametrize("kind", AWAY)
def test_a_table_is_created_once_whatever_happens_to_the_first_request(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str], kind: str
) -> None:
    def acted(forward: Forward) -> Answer | None:
        forward()
        return AWAY[kind]

    with proxy.intercepted(First(acted, "POST")):
        made = catalog.create_table(name, SCHEMA)
    assert catalog.load_table(name).metadata.table_uuid == made.metadata.table_uuid
    assert len(proxy.routes("POST.*/tables$")) == 1


def test_a_table_whose_request_never_arrived_is_created(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    with proxy.intercepted(First(says(None), "POST")):
        catalog.create_table(name, SCHEMA)
    assert len(proxy.routes("POST.*/tables$")) == 2


def test_a_table_that_is_there_is_never_taken_for_the_one_asked_for(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    """SeaweedFS answers the creation of a table that exists with that table."""
    first = catalog.create_table(name, SCHEMA)
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(name, pa.schema([("other", pa.string())]))
    with proxy.intercepted(First(says(None), "POST")), pytest.raises(TableAlreadyExistsError):
        catalog.create_table(name, SCHEMA)
    assert catalog.load_table(name).properties[CREATE_ID] == first.properties[CREATE_ID]


def test_a_table_whose_drop_was_not_answered_is_gone(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    catalog.create_table(name, SCHEMA)
    with proxy.intercepted(First(dropped, "DELETE")):
        catalog.drop_table(name)
    assert not catalog.table_exists(name)
    assert len(proxy.routes("DELETE")) == 1
    with pytest.raises(NoSuchTableError):
        catalog.drop_table(name)


def test_a_table_that_somebody_made_after_our_drop_is_left_alone(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    catalog.create_table(name, SCHEMA)
    theirs: list[Table] = []

    def acted(forward: Forward) -> Answer | None:
        forward()
        theirs.append(catalog_beside.create_table(name, SCHEMA))
        return AWAY["503"]

    catalog_beside = catalog
    with proxy.intercepted(First(acted, "DELETE")):
        catalog.drop_table(name)
    assert catalog.load_table(name).metadata.table_uuid == theirs[0].metadata.table_uuid


def test_a_late_first_drop_does_not_make_the_second_a_failure(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    catalog.create_table(name, SCHEMA)
    held: list[Forward] = []

    def late(forward: Forward) -> Answer | None:
        if not held:
            held.append(forward)
            return None
        held[0]()
        return forward()

    with proxy.intercepted(First(late, "DELETE", times=2)):
        catalog.drop_table(name)
    assert not catalog.table_exists(name)


def test_what_only_the_last_attempt_did_is_seen(
    server: SeaweedFS, proxy: FaultProxy, name: tuple[str, str], namespace: str
) -> None:
    once = open_catalog(server, proxy.uri, retry={**QUICK, "max_attempts": 1, "circuit_breaker_threshold": 0})
    for act, method in (
        (lambda: once.create_table(name, SCHEMA), "POST"),
        (lambda: once.rename_table(name, (namespace, "renamed")), "POST"),
        (lambda: once.drop_table((namespace, "renamed")), "DELETE"),
        (lambda: once.create_namespace((namespace, "child")), "POST"),
        (lambda: once.drop_namespace((namespace, "child")), "DELETE"),
    ):
        with proxy.intercepted(First(dropped, method)):
            act()
    assert once.list_tables((namespace,)) == []


def test_what_may_have_been_done_is_said_when_nobody_can_look(
    server: SeaweedFS, proxy: FaultProxy, namespace: str
) -> None:
    catalog = open_catalog(server, proxy.uri, retry={**QUICK, "max_attempts": 2, "circuit_breaker_threshold": 0})
    with (
        proxy.intercepted(lambda _request, _forward: AWAY["503"]),
        pytest.raises(CatalogConnectionError, match=r"answered 503.*may still have been made: check before"),
    ):
        catalog.create_namespace((namespace,))


def test_an_answer_that_leads_nowhere_is_no_success(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    catalog.create_table(name, SCHEMA)
    with proxy.intercepted(First(says(Answer(302)), "DELETE")), pytest.raises(FloeError, match=r"catalog\.uri"):
        catalog.drop_table(name)
    assert catalog.table_exists(name)


def test_a_registration_that_others_went_on_from_is_not_repeated(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    """Registered anew, the catalog would point to the file from before their commit."""
    location = catalog.create_table(name, SCHEMA).metadata_location

    def acted(forward: Forward) -> Answer | None:
        catalog.load_table(name).append(pa.table({"id": [1]}))
        return AWAY["503"]

    with proxy.intercepted(First(acted, "POST")):
        catalog.register_table(name, location, overwrite=True)
    assert len(proxy.routes("POST.*/register$")) == 1
    assert catalog.load_table(name).scan().to_arrow().num_rows == 1


def test_children_of_a_process_have_connections_of_their_own(catalog: PolarisCatalog, name: tuple[str, str]) -> None:
    for number in range(4):
        catalog.create_table((name[0], f"t{number}"), SCHEMA)

    def look(number: int) -> int:
        for _ in range(15):
            found = catalog.load_table((name[0], f"t{number}")).location()
            if not found.endswith(f"t{number}"):
                os._exit(1)
        os._exit(0)

    children = [os.fork() or look(number) for number in range(4)]
    assert [os.waitstatus_to_exitcode(os.waitpid(int(child or 0), 0)[1]) for child in children] == [0] * 4


def test_a_namespace_whose_drop_was_not_answered_is_gone(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    with proxy.intercepted(First(dropped, "DELETE")):
        catalog.drop_namespace(name[:1])
    assert not catalog.namespace_exists(name[:1])


def test_a_rename_that_was_not_answered_has_happened(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    before = catalog.create_table(name, SCHEMA)
    with proxy.intercepted(First(dropped, "POST")):
        after = catalog.rename_table(name, (name[0], "renamed"))
    assert after.metadata.table_uuid == before.metadata.table_uuid
    assert len(proxy.routes("POST.*/rename$")) == 1


def test_a_registration_that_was_not_answered_has_happened(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    table = catalog.create_table(name, SCHEMA)
    again = (name[0], "again")
    with proxy.intercepted(First(dropped, "POST")):
        registered = catalog.register_table(again, table.metadata_location)
    assert registered.metadata_location == table.metadata_location
    assert len(proxy.routes("POST.*/register$")) == 1


def test_properties_are_set_again_until_they_are_set(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str]
) -> None:
    with proxy.intercepted(First(dropped, "POST")):
        catalog.update_namespace_properties(name[:1], updates={"colour": "blue"})
    assert catalog.load_namespace_properties(name[:1])["colour"] == "blue"


@pytest.mark.parametrize("kind", AWAY)
def test_a_commit_is_never_repeated_by_the_connection(
    catalog: PolarisCatalog, proxy: FaultProxy, name: tuple[str, str], kind: str
) -> None:
    table = catalog.create_table(name, SCHEMA)
    with proxy.intercepted(First(says(AWAY[kind]), "POST", times=9)):
        with pytest.raises((requests.RequestException, Exception)), table.transaction() as transaction:
            transaction.set_properties(mark=uuid.uuid4().hex)
        assert len(proxy.routes(r"POST.*/tables/events$")) == 1


# The breaker -----------------------------------------------------------------------------------------------------


def test_after_the_threshold_the_server_is_left_alone_and_then_tried_by_one(
    server: SeaweedFS, proxy: FaultProxy
) -> None:
    catalog = open_catalog(
        server, proxy.uri, retry={**QUICK, "max_attempts": 1, "circuit_breaker_threshold": 4, "max_wait_seconds": 2}
    )
    with proxy.intercepted(First(says(AWAY["503"]), "GET", times=99)):
        for _ in range(4):
            with pytest.raises(CatalogConnectionError, match="answered 503"):
                catalog.list_namespaces()
        assert catalog.breaker_state == "open"
        for _ in range(20):
            with pytest.raises(CatalogConnectionError, match="4 times in a row"):
                catalog.list_namespaces()
        assert len(proxy.requests) == 4
    threading.Event().wait(2.1)
    assert catalog.breaker_state == "half_open"
    catalog.list_namespaces()
    assert catalog.breaker_state == "closed"


def test_sixteen_threads_share_one_catalog(server: SeaweedFS, proxy: FaultProxy, namespace: str) -> None:
    catalog = open_catalog(server, proxy.uri)
    catalog.create_namespace((namespace,))

    def work(number: int) -> None:
        made = catalog.create_table((namespace, f"table_{number}"), SCHEMA)
        made.append(pa.table({"id": [number]}))
        assert catalog.load_table((namespace, f"table_{number}")).scan().to_arrow()["id"].to_pylist() == [number]

    with proxy.intercepted(lambda _request, forward: forward()), ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert len(catalog.list_tables((namespace,))) == 16
    assert len(proxy.routes("oauth/tokens")) == 0  # the token at hand was good


def test_sixteen_threads_meet_a_server_that_is_away(server: SeaweedFS, proxy: FaultProxy) -> None:
    catalog = open_catalog(server, proxy.uri, retry={**QUICK, "max_attempts": 2, "circuit_breaker_threshold": 5})
    failures: list[FloeError] = []

    def work(_number: int) -> None:
        try:
            catalog.list_namespaces()
        except FloeError as exc:
            failures.append(exc)

    with proxy.intercepted(First(says(AWAY["503"]), "GET", times=999)), ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(64)))
    assert len(failures) == 64
    assert all(isinstance(one, CatalogConnectionError) for one in failures)
    assert 5 * 2 <= len(proxy.requests) <= (5 + 16) * 2  # those under way when it opened were under way
