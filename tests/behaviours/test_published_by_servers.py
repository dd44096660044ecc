"""Several tables of a catalog server are published together, whatever the server answers; readers see all or none."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from tests.catalogs import polaris_settings, polaris_uri, rest_settings, side_lake
from tests.faults.proxy import (
    Answer,
    FaultProxy,
    Forward,
    HeldRequest,
    Request,
    advertising,
    answered,
    dropped,
    fault_proxy,
)

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, FloeStorageError
from floe_iceberg import Lake

pytestmark = pytest.mark.every_catalog

BRANCH = "july"
SENT = r"POST .*/transactions/commit$"
DONE = Answer(204)


@dataclass(frozen=True)
class Server:
    """A catalog server: `lake` reaches it through the proxy, `others` do not."""

    lake: Lake
    others: Lake
    proxy: FaultProxy


@pytest.fixture(scope="module", params=["rest", "polaris"])
def served(request: pytest.FixtureRequest, lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("published")
    if request.param == "polaris":
        uri, others = polaris_uri(), request.getfixturevalue("polaris")
        with fault_proxy(uri) as proxy:
            yield Server(side_lake(lake, root, polaris_settings(f"{proxy.uri}{urlsplit(uri).path}")), others, proxy)
        return
    server, others = request.getfixturevalue("server"), request.getfixturevalue("rest_lake")
    with fault_proxy(server.catalog_uri) as proxy:
        made = Server(side_lake(lake, root, rest_settings(server, uri=proxy.uri)), others, proxy)
        with proxy.intercepted(advertising):
            made.lake.tables.list_namespaces()
        yield made


@pytest.fixture
def names(served: Server, namespace: str) -> Sequence[str]:
    """Three tables with a row each, and a staged row in their branch."""
    made = tuple(f"{namespace}.{name}" for name in ("orders", "stores", "revenue"))
    for name in made:
        served.others.tables.write_data(name, pa.table({"id": [1]}), mode="append")
        stage(served, name)
    return made


def stage(served: Server, *names: str, id: int = 2) -> None:  # noqa: A002 - the column
    for name in names:
        served.others.tables.create_branch(name, BRANCH)
        served.others.tables.write_data(name, pa.table({"id": [id]}), mode="append", branch=BRANCH)


def publish(served: Server, names: Sequence[str], **options: Any) -> None:
    served.lake.tables.publish(dict.fromkeys(names, BRANCH), **options)


def rows(served: Server, names: Sequence[str]) -> list[list[int]]:
    return [sorted(served.others.tables.scan(name).to_arrow()["id"].to_pylist()) for name in names]


def journal(served: Server) -> list[Any]:
    catalog: Any = served.others.tables.catalog_plugin.connect()
    return [name for name in catalog.list_namespaces() if name[0].startswith("floe_journal_")]


def changes_of(request: Request) -> Any:
    return json.loads(request.body)["table-changes"]


def sent_for(change: Any, names: Sequence[str]) -> bool:
    return ".".join((*change["identifier"]["namespace"], change["identifier"]["name"])) in names


def test_three_tables_are_published_by_one_request_and_the_journal_is_empty(
    served: Server, names: Sequence[str]
) -> None:
    served.proxy.requests.clear()
    publish(served, names)
    assert rows(served, names) == [[1, 2]] * 3
    assert len(served.proxy.routes(SENT)) == 1
    assert all(BRANCH not in served.others.tables.load_table(name).metadata.refs for name in names)
    assert journal(served) == []


def test_a_table_that_was_only_read_is_asserted_by_the_server(served: Server, names: Sequence[str]) -> None:
    """It moves between the last look of the client and the request; no commit of its own may change it."""
    orders, stores, revenue = names
    read = served.others.tables.current_snapshot(orders)
    assert read is not None

    def late(request: Request, forward: Forward) -> Answer | None:
        if request.path.endswith("/transactions/commit"):
            served.others.tables.write_data(orders, pa.table({"id": [9]}), mode="append")
            served.proxy.intercept = None
        return forward()

    with served.proxy.intercepted(late), pytest.raises(ConcurrencyConflictError, match="it was read at snapshot"):
        publish(served, (stores, revenue), reads={orders: read.snapshot_id})
    assert rows(served, names) == [[1, 9], [1], [1]]
    now = served.others.tables.current_snapshot(orders)
    assert now is not None
    publish(served, (stores, revenue), reads={orders: now.snapshot_id})
    assert rows(served, names) == [[1, 9], [1, 2], [1, 2]]
    assert len(served.others.tables.list_snapshots(orders)) == 3, "the read table has no commit of its own"


def test_one_table_that_conflicts_at_the_server_keeps_all_unpublished(served: Server, names: Sequence[str]) -> None:
    def late(request: Request, forward: Forward) -> Answer | None:
        if request.path.endswith("/transactions/commit"):
            served.others.tables.write_data(names[-1], pa.table({"id": [9]}), mode="append")
            served.proxy.intercept = None
        return forward()

    with (
        served.proxy.intercepted(late),
        pytest.raises(ConcurrencyConflictError, match=rf"'{names[-1]}': another writer moved main"),
    ):
        publish(served, names)
    assert rows(served, names) == [[1], [1], [1, 9]]
    assert journal(served) == []


@pytest.mark.parametrize("fault", [dropped, answered(409), answered(503), answered(504)])
def test_a_lost_response_is_resolved_by_the_tables(served: Server, names: Sequence[str], fault: Any) -> None:
    with served.proxy.faults(fault):
        publish(served, names)
    assert rows(served, names) == [[1, 2]] * 3
    assert [len(served.others.tables.list_snapshots(name)) for name in names] == [2, 2, 2]
    assert journal(served) == []


def test_a_late_request_and_its_repetition_publish_once(served: Server, names: Sequence[str]) -> None:
    held = HeldRequest()
    with served.proxy.faults(held.hold, held.arrives_last):
        publish(served, names)
    assert held.status != 204
    assert rows(served, names) == [[1, 2]] * 3


def _partly(count: int, told: Answer | None) -> Callable[[Request, Callable[..., Answer]], Answer | None]:
    """The server applies only the first changes of the commit."""

    def intercept(request: Request, forward: Callable[..., Answer]) -> Answer | None:
        if not request.path.endswith("/transactions/commit"):
            return forward()
        if count:
            part = json.dumps({"table-changes": changes_of(request)[:count]}).encode()
            assert forward(content=part).status in (200, 204)
        return told

    return intercept


@pytest.mark.parametrize("told", [DONE, None, Answer.error(504, "GatewayTimeout", "")])
def test_a_part_that_the_server_applied_is_completed(served: Server, names: Sequence[str], told: Answer | None) -> None:
    with served.proxy.intercepted(_partly(1, told)):
        publish(served, names)
    assert rows(served, names) == [[1, 2]] * 3
    assert journal(served) == []


def test_a_success_that_changed_nothing_is_no_success(served: Server, names: Sequence[str]) -> None:
    with (
        served.proxy.intercepted(_partly(0, DONE)),
        pytest.raises(FloeStorageError, match=r"acknowledged the publication of .* and applied none of it"),
    ):
        publish(served, names)
    assert rows(served, names) == [[1]] * 3
    assert journal(served) == []


def test_a_part_that_cannot_be_completed_is_taken_back(served: Server, names: Sequence[str]) -> None:
    def partly(request: Request, forward: Callable[..., Answer]) -> Answer | None:
        if request.path.endswith("/transactions/commit"):
            answer = _partly(2, None)(request, forward)
            served.others.tables.write_data(names[2], pa.table({"id": [9]}), mode="append")
            served.proxy.intercept = None
            return answer
        return forward()

    with (
        served.proxy.intercepted(partly),
        pytest.raises(ConcurrencyConflictError, match=rf"nothing is published: '{names[2]}'.* visible for a moment"),
    ):
        publish(served, names)
    assert rows(served, names) == [[1], [1], [1, 9]]
    assert [sorted(served.others.tables.scan(name, ref=BRANCH).to_arrow()["id"].to_pylist()) for name in names] == [
        [1, 2]
    ] * 3
    assert journal(served) == []


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_that_lost_its_support_is_named_and_nothing_is_published(
    served: Server, names: Sequence[str], status: int
) -> None:
    def gone(request: Request, forward: Forward) -> Answer | None:
        if request.path.endswith("/transactions/commit"):
            return Answer.error(status, "UnsupportedOperationException", "there is no such endpoint")
        return forward()

    with served.proxy.intercepted(gone), pytest.raises(FloeStorageError, match="there is no such endpoint"):
        publish(served, names)
    assert rows(served, names) == [[1]] * 3
    assert journal(served) == []


def test_a_server_without_support_is_refused_before_anything_or_published_one_by_one_on_request(
    served: Server, names: Sequence[str], lake: Lake, tmp_path: Path
) -> None:
    def without(request: Request, forward: Callable[..., Answer]) -> Answer | None:
        answer = forward(**{"accept-encoding": "identity"})
        if urlsplit(request.path).path.endswith("/v1/config"):
            told = json.loads(answer.body)
            told["endpoints"] = [one for one in told.get("endpoints", []) if not one.endswith("/transactions/commit")]
            return Answer(answer.status, answer.headers, json.dumps(told).encode())
        return answer

    text = (served.lake.artifacts.root / "floe.yaml").read_text().partition("\n")[2]
    with served.proxy.intercepted(without):
        older = side_lake(lake, tmp_path / "older", text)
        with pytest.raises(ConfigurationError, match="does not offer commits of several tables"):
            older.tables.publish(dict.fromkeys(names, BRANCH))
        assert rows(served, names) == [[1]] * 3
        assert not served.proxy.routes(r"POST .*/namespaces$"), "nothing was recorded"
        older.tables.publish(dict.fromkeys(names, BRANCH), one_by_one=True)
    assert rows(served, names) == [[1, 2]] * 3
    assert journal(served) == []


def test_readers_of_several_tables_see_a_publication_in_all_of_them_or_in_none(
    served: Server, names: Sequence[str]
) -> None:
    ended = threading.Event()
    mixed: list[Any] = []
    looks = 0

    def look() -> None:
        nonlocal looks
        while not ended.is_set():
            try:
                heads = served.lake.at_once(names)
            except ConcurrencyConflictError:
                continue
            counts = [head.scan().count() for head in heads.values()]
            looks += 1
            if len(set(counts)) > 1:
                mixed.append(counts)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        publish(served, names)
        for number in range(3, 9):
            stage(served, *names, id=number)
            publish(served, names)
    finally:
        ended.set()
        reader.join()
    assert mixed == []
    assert looks >= 5
    assert rows(served, names) == [list(range(1, 9))] * 3
