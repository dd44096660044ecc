"""Setting and removing properties of a namespace on a catalog server that does one of them per request, as Polaris."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import commands
from tests.catalogs import rest_settings
from tests.faults.proxy import Answer, FaultProxy, Forward, Request, fault_proxy
from tests.servers.seaweedfs import SeaweedFS

from floe_core.compiler import compile_project
from floe_core.errors import (
    CatalogConnectionError,
    FloeStorageError,
    NamespaceNotFoundError,
    PermissionDeniedError,
)
from floe_core.identifiers import Namespace
from floe_iceberg import IcebergTableManager

# As Polaris 1.7 answers to both in one request, when it has set the properties.
CONFLICT = Answer.error(409, "CommitConflictException", "Concurrent modification of namespace")
FORBIDDEN = Answer.error(403, "ForbiddenException", "not authorized for op UPDATE_NAMESPACE_PROPERTIES")
Refuse = Callable[[Answer | None], None]


@pytest.fixture(scope="module")
def proxy(server: SeaweedFS) -> Iterator[FaultProxy]:
    with fault_proxy(server.catalog_uri) as running:
        yield running


@pytest.fixture(scope="module")
def project(server: SeaweedFS, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("properties")
    quick = "  retry: {max_attempts: 2, initial_wait_seconds: 0.1, max_wait_seconds: 1, circuit_breaker_threshold: 0}\n"
    settings = rest_settings(server, uri=proxy.uri, catalog=quick)
    (root / "floe.yaml").write_text(f"name: tests\n{settings}", encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def tables(project: Path) -> IcebergTableManager:
    return IcebergTableManager.open(compile_project(project).artifacts)


def changes(request: Request) -> tuple[bool, bool]:
    """Whether the request sets properties, and whether it removes some."""
    if request.method != "POST" or not request.path.endswith("/properties"):
        return False, False
    body = json.loads(request.body)
    return bool(body.get("updates")), bool(body.get("removals"))


@pytest.fixture
def root(tables: IcebergTableManager, proxy: FaultProxy, namespace: str) -> Iterator[Namespace]:
    """A namespace with properties, on a server that refuses to set and to remove in one request."""

    def one_at_a_time(request: Request, forward: Forward) -> Answer | None:
        return CONFLICT if changes(request) == (True, True) else forward()

    made = Namespace.from_string(namespace)
    tables.create_namespace(made, {"owner": "sales", "tier": "1", "zone": "eu"})
    with proxy.intercepted(one_at_a_time):
        yield made


@pytest.fixture
def removals_meet(proxy: FaultProxy, root: Namespace) -> Refuse:
    """Let every request that only removes be answered like this."""

    def refuse(answer: Answer | None) -> None:
        def intercept(request: Request, forward: Forward) -> Answer | None:
            if changes(request) == (False, True):
                return answer
            return CONFLICT if all(changes(request)) else forward()

        proxy.intercept = intercept

    return refuse


def owner_tier_zone(tables: IcebergTableManager, namespace: Namespace) -> list[str | None]:
    properties = tables.load_namespace(namespace).properties
    return [properties.get(name) for name in ("owner", "tier", "zone")]


def test_properties_are_set_and_removed_by_one_call(tables: IcebergTableManager, root: Namespace) -> None:
    after = tables.update_namespace(root, set={"tier": "2"}, remove=["zone", "owner"])
    assert (after.get("owner"), after.get("tier"), after.get("zone")) == (None, "2", None)
    assert owner_tier_zone(tables, root) == [None, "2", None]


def test_what_is_only_set_or_only_removed_is_one_request(
    tables: IcebergTableManager, root: Namespace, proxy: FaultProxy
) -> None:
    tables.update_namespace(root, set={"tier": "2"})
    tables.update_namespace(root, remove=["zone"])
    assert len(proxy.routes(r"POST.*/properties$")) == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(FORBIDDEN, PermissionDeniedError), (CONFLICT, FloeStorageError), (None, CatalogConnectionError)],
    ids=["forbidden", "conflict", "no answer"],
)
def test_a_removal_that_fails_says_what_was_set(
    tables: IcebergTableManager,
    root: Namespace,
    removals_meet: Refuse,
    answer: Answer | None,
    kind: type[FloeStorageError],
) -> None:
    removals_meet(answer)
    with pytest.raises(kind) as caught:
        tables.update_namespace(root, set={"tier": "2", "note": "new"}, remove=["zone"])
    said = str(caught.value)
    assert f"namespace '{root}': note, tier set, but removing zone failed: " in said
    assert said.endswith("Run the same update again")
    assert caught.value.detail is not None
    assert owner_tier_zone(tables, root) == ["sales", "2", "eu"]


def test_a_namespace_dropped_between_the_requests_is_not_found(
    tables: IcebergTableManager, root: Namespace, removals_meet: Refuse
) -> None:
    removals_meet(Answer.error(404, "NoSuchNamespaceException", "Namespace does not exist"))
    with pytest.raises(NamespaceNotFoundError, match=f"namespace '{root}' not found in catalog"):
        tables.update_namespace(root, set={"tier": "2"}, remove=["zone"])


def test_properties_that_cannot_be_set_are_not_removed_either(
    tables: IcebergTableManager, root: Namespace, proxy: FaultProxy
) -> None:
    def refuse(request: Request, forward: Forward) -> Answer | None:
        return FORBIDDEN if changes(request)[0] else forward()

    proxy.intercept = refuse
    with pytest.raises(PermissionDeniedError) as caught:
        tables.update_namespace(root, set={"tier": "2"}, remove=["zone"])
    assert " set, but removing" not in str(caught.value)
    assert owner_tier_zone(tables, root) == ["sales", "1", "eu"]


def test_the_command_sets_and_removes_and_says_what_was_done_if_only_half_was(
    tables: IcebergTableManager, project: Path, root: Namespace, removals_meet: Refuse
) -> None:
    def run(*arguments: str) -> tuple[int, dict[str, object]]:
        done = commands.floe("namespaces", "set", str(root), *arguments, "--json", cwd=project)
        return done.returncode, json.loads(done.stdout)

    code, told = run("tier=2", "--remove", "zone")
    assert code == 0
    assert owner_tier_zone(tables, root) == ["sales", "2", None]
    removals_meet(FORBIDDEN)
    code, told = run("tier=3", "--remove", "owner")
    assert code == 1
    assert f"namespace '{root}': tier set, but removing owner failed: " in str(told)
    assert owner_tier_zone(tables, root) == ["sales", "3", None]
