"""When nobody knows whether a commit happened: right rows once, readable by both engines, and no file deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
import requests
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServiceUnavailableError
from pyiceberg.table import CommitTableResponse
from sqlalchemy.exc import OperationalError
from tests.engines import ArrowEngine, Engine, SparkEngine, events, rows_of
from tests.faults.catalog import Fault, Held, Outage, after, answer_lost, not_applied
from tests.faults.doubt import ON_A_TABLE, WRITES, Doubt
from tests.faults.processes import Project, Writer
from tests.faults.proxy import CONFLICT, Answer, FaultProxy, HeldRequest, answered, dropped, fault_proxy, never_arrived
from tests.faults.proxy import Fault as ProxyFault
from tests.servers.rest_catalog import rest_catalog_server

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import CommitStateUnknownError, ConcurrencyConflictError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake

ERRORS: dict[str, Callable[[], Exception]] = {
    "connection reset": lambda: requests.ConnectionError("Connection aborted."),
    "time-out": lambda: requests.ReadTimeout("Read timed out."),
    "500": lambda: CommitStateUnknownException("500"),
    "503": lambda: ServiceUnavailableError("503"),
    "database": lambda: OperationalError("UPDATE", {}, Exception("disk I/O error")),
}
EACH_ONCE = [*(("append", error) for error in ERRORS), *((how, "time-out") for how in WRITES if how != "append")]
# Where every case waits for a while, one of them is enough for every day.
QUICK_FIRST = [ON_A_TABLE[0], *(pytest.param(how, marks=pytest.mark.full) for how in ON_A_TABLE[1:])]


def arrow_doubt(lake: Lake, table: TableIdentifier, how: str, **properties: str) -> Doubt:
    """A write by Arrow, read by both."""
    arrow = ArrowEngine(lake)
    return Doubt(arrow, table, how, [arrow, SparkEngine(lake)], **properties)


# The answer is lost ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "error"), EACH_ONCE)
def test_a_commit_whose_answer_is_lost_is_found(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str, error: str
) -> None:
    doubt = arrow_doubt(lake, table, how)
    with doubt.faults(monkeypatch, answer_lost(ERRORS[error]())):
        made = doubt.write()
    doubt.assert_written_once(made)


@pytest.mark.parametrize("how", WRITES)
def test_a_commit_whose_answer_is_lost_is_found_under_the_commits_of_others(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = arrow_doubt(lake, table, how)

    def lost_then_followed(send: Callable[[], CommitTableResponse]) -> CommitTableResponse:
        send()
        lake.tables.write_data(table, events(5), mode="append", write_id="neighbour")
        raise ERRORS["time-out"]()

    with doubt.faults(monkeypatch, lost_then_followed):
        made = doubt.write()
    doubt.assert_written_once(made, others=1, rows=pa.concat_tables([doubt.case.after, events(5)]))


@pytest.mark.parametrize(("how", "error"), EACH_ONCE)
def test_a_commit_that_never_arrived_is_sent_again(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str, error: str
) -> None:
    doubt = arrow_doubt(lake, table, how)
    with doubt.faults(monkeypatch, not_applied(ERRORS[error]()), not_applied(ERRORS[error]())):
        made = doubt.write()
    doubt.assert_written_once(made)


# A conflict that is none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", WRITES)
def test_a_conflict_reported_after_the_commit_was_applied_is_a_success_though_the_budget_is_spent(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = arrow_doubt(lake, table, how, **{"commit.retry.num-retries": "0"})
    with doubt.faults(monkeypatch, answer_lost(CommitFailedException("409"))):
        made = doubt.write()
    doubt.assert_written_once(made)


@pytest.mark.parametrize("how", ON_A_TABLE)
def test_a_conflict_reported_after_the_commit_was_applied_is_a_success_on_a_table_of_others(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = arrow_doubt(lake, table, how)
    doubt.forget_the_budget()
    with doubt.faults(
        monkeypatch, not_applied(CommitFailedException("409")), answer_lost(CommitFailedException("409"))
    ):
        made = doubt.write()
    doubt.assert_written_once(made)


@pytest.mark.parametrize("how", ON_A_TABLE)
def test_a_conflict_when_the_budget_is_spent_is_told_and_leaves_the_table_as_it_was(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = arrow_doubt(lake, table, how, **{"commit.retry.num-retries": "1"})
    conflict = not_applied(CommitFailedException("409"))
    with (
        doubt.faults(monkeypatch, conflict, conflict),
        pytest.raises(ConcurrencyConflictError, match="nothing was written"),
    ):
        doubt.write()
    assert rows_of(SparkEngine(lake).read(table)) == rows_of(doubt.case.before)
    assert len(lake.tables.list_snapshots(table)) == 1


@pytest.mark.parametrize("how", QUICK_FIRST)
def test_six_conflicts_in_a_row_do_not_stop_a_write_to_a_table_of_others(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = arrow_doubt(lake, table, how)
    doubt.forget_the_budget()
    neighbours = [events(10 + number, rows=1) for number in range(6)]

    def neighbour(number: int) -> Fault:
        return after(lambda: lake.tables.write_data(table, neighbours[number], mode="append"))

    # Each neighbour's own commit passes by the script, so the script holds every second place.
    script: list[Fault] = []
    for number in range(6):
        script += [neighbour(number), lambda send: send()]
    with doubt.faults(monkeypatch, *script):
        made = doubt.write()
    doubt.assert_written_once(made, others=6, rows=pa.concat_tables([doubt.case.after, *neighbours]), cleaned=True)


# The first commit is still on its way ----------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "error"), EACH_ONCE)
def test_a_commit_that_arrives_before_its_repetition_is_the_one(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str, error: str
) -> None:
    doubt = arrow_doubt(lake, table, how)
    first = Held(ERRORS[error]())
    with doubt.faults(monkeypatch, first.hold, first.arrives_first):
        made = doubt.write()
    assert not first.refused
    doubt.assert_written_once(made)


@pytest.mark.parametrize(("how", "error"), EACH_ONCE)
def test_a_commit_that_arrives_after_its_repetition_is_refused(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str, error: str
) -> None:
    doubt = arrow_doubt(lake, table, how)
    first = Held(ERRORS[error]())
    with doubt.faults(monkeypatch, first.hold, first.arrives_last):
        made = doubt.write()
    assert first.refused
    doubt.assert_written_once(made)


# The table cannot be looked at -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", WRITES)
def test_a_catalog_that_is_silent_for_a_while_is_asked_again(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = arrow_doubt(lake, table, how)
    outage = Outage(ERRORS["connection reset"](), times=2)
    with doubt.faults(monkeypatch, outage.begins_after, outage=outage):
        made = doubt.write()
    assert outage.looks > 2
    doubt.assert_written_once(made)


@pytest.mark.parametrize("how", WRITES)
def test_a_catalog_that_stays_silent_leaves_a_doubt_that_the_same_write_settles_later(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    doubt = arrow_doubt(lake, table, how)
    outage = Outage(ERRORS["connection reset"]())
    with doubt.faults(monkeypatch, outage.begins_after, outage=outage):
        with pytest.raises(CommitStateUnknownError) as told:
            doubt.write()
        outage.end()
        made = doubt.write()
    words = str(told.value)
    assert "may have succeeded" in words
    assert "Nothing was deleted" in words
    assert f"find_write('{table}', 'doubtful')" in words
    assert "doubtful" in words
    assert str(table) in words
    doubt.assert_written_once(made)


@pytest.mark.parametrize("how", [*QUICK_FIRST, "first write"])
def test_a_write_in_doubt_that_never_arrived_is_done_by_the_same_write_later(
    lake: Lake, table: TableIdentifier, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Every attempt is lost on its way: it may still arrive, and the error says so."""
    doubt = arrow_doubt(lake, table, how)
    lost = [not_applied(ERRORS["time-out"]()) for _ in range(5)]
    with doubt.faults(monkeypatch, *lost):
        with pytest.raises(
            CommitStateUnknownError, match=r"it may still arrive.*check whether the write is in the table"
        ):
            doubt.write()
        made = doubt.write()
    doubt.assert_written_once(made)


# Through a REST catalog, behind a proxy ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proxy(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    """A proxy before a REST catalog whose tables lie beside those of the lake."""
    warehouse = lake.tables.storage_plugin.get_warehouse_uri()
    with (
        rest_catalog_server(tmp_path_factory.mktemp("rest"), warehouse=warehouse) as uri,
        fault_proxy(uri) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def rest_lake(proxy: FaultProxy, project: CompiledArtifacts) -> Lake:
    return Project(project, rest=proxy.uri).open()


class SparkProcess:
    """Spark on the REST catalog, in a process of its own: a session keeps the catalog it began with."""

    name = "spark"

    def __init__(self, lake: Lake, writer: Writer) -> None:
        self.lake = lake
        self.write = writer.write
        self.read = writer.read


@pytest.fixture(scope="module")
def spark_process(proxy: FaultProxy, rest_lake: Lake) -> Iterator[SparkProcess]:
    writer = Writer(Project(rest_lake.artifacts, rest=proxy.uri), "spark")
    writer.wait_until_ready()
    yield SparkProcess(rest_lake, writer)
    writer.close()


@pytest.fixture(params=["arrow", pytest.param("spark", marks=pytest.mark.full)])
def rest_engine(request: pytest.FixtureRequest, rest_lake: Lake) -> Engine:
    """Each engine on the REST catalog behind the proxy."""
    if request.param == "arrow":
        return ArrowEngine(rest_lake)
    made: Engine = request.getfixturevalue("spark_process")
    return made


def rest_doubt(engine: Engine, table: TableIdentifier, how: str, **properties: str) -> Doubt:
    """A write to the REST catalog, read by its own engine and by Arrow."""
    return Doubt(engine, table, how, [engine, ArrowEngine(engine.lake)], **properties)


LOST: dict[str, ProxyFault] = {"cut off": dropped, "503": answered(503), "504": answered(504)}


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("how", WRITES)
def test_over_rest_a_commit_whose_answer_is_lost_is_found(
    rest_engine: Engine, proxy: FaultProxy, table: TableIdentifier, how: str, fault: str
) -> None:
    doubt = rest_doubt(rest_engine, table, how)
    with doubt.faults_of(proxy, LOST[fault]):
        made = doubt.write()
    doubt.assert_written_once(made)


@pytest.mark.parametrize("how", WRITES)
def test_over_rest_a_commit_that_never_arrived_is_sent_again(
    rest_engine: Engine, proxy: FaultProxy, table: TableIdentifier, how: str
) -> None:
    doubt = rest_doubt(rest_engine, table, how)
    with doubt.faults_of(proxy, never_arrived):
        made = doubt.write()
    doubt.assert_written_once(made)


@pytest.mark.full  # the same on a catalog of files is in `make test`
@pytest.mark.parametrize("retries", ["0", "20"])
@pytest.mark.parametrize("how", WRITES)
def test_over_rest_a_conflict_reported_after_the_commit_was_applied_is_a_success(
    rest_engine: Engine, proxy: FaultProxy, table: TableIdentifier, how: str, retries: str
) -> None:
    doubt = rest_doubt(rest_engine, table, how, **{"commit.retry.num-retries": retries})
    with doubt.faults_of(proxy, answered(409)):
        made = doubt.write()
    doubt.assert_written_once(made)


@pytest.mark.full  # the same on a catalog of files is in `make test`
@pytest.mark.parametrize("how", WRITES)
def test_over_rest_a_commit_that_arrives_before_its_repetition_is_the_one(
    rest_engine: Engine, proxy: FaultProxy, table: TableIdentifier, how: str
) -> None:
    doubt = rest_doubt(rest_engine, table, how)
    first = HeldRequest()
    with doubt.faults_of(proxy, first.hold, first.arrives_first, any_commit=True):
        made = doubt.write()
    assert first.status == 200
    doubt.assert_written_once(made)


@pytest.mark.full  # the same on a catalog of files is in `make test`
@pytest.mark.parametrize("how", WRITES)
def test_over_rest_a_commit_that_arrives_after_its_repetition_is_refused(
    rest_engine: Engine, proxy: FaultProxy, table: TableIdentifier, how: str
) -> None:
    doubt = rest_doubt(rest_engine, table, how)
    first = HeldRequest()
    with doubt.faults_of(proxy, first.hold, first.arrives_last):
        made = doubt.write()
    assert first.status == 409
    doubt.assert_written_once(made)


@pytest.mark.full  # the same on a catalog of files is in `make test`
@pytest.mark.parametrize("how", WRITES)
def test_over_rest_a_conflict_reported_after_the_commit_was_applied_takes_nothing_from_those_who_came_after(
    rest_engine: Engine, proxy: FaultProxy, table: TableIdentifier, how: str
) -> None:
    doubt = rest_doubt(rest_engine, table, how)

    def followed(forward: Callable[[], Answer]) -> Answer:
        forward()
        rest_engine.lake.tables.write_data(table, events(5), mode="append", write_id="neighbour")
        return CONFLICT

    with doubt.faults_of(proxy, followed):
        made = doubt.write()
    doubt.assert_written_once(made, others=1, rows=pa.concat_tables([doubt.case.after, events(5)]))


@pytest.mark.full  # the same on a catalog of files is in `make test`
@pytest.mark.parametrize("how", WRITES)
def test_over_rest_a_catalog_that_goes_dark_leaves_a_doubt_that_the_same_write_settles_later(
    rest_engine: Engine, proxy: FaultProxy, table: TableIdentifier, how: str
) -> None:
    doubt = rest_doubt(rest_engine, table, how)
    with doubt.faults_of(proxy, proxy.goes_dark):
        try:
            with pytest.raises(CommitStateUnknownError, match=r"may have succeeded.*Nothing was deleted"):
                doubt.write()
        finally:
            proxy.dark = False
    doubt.assert_written_once(doubt.write())


@pytest.mark.full
@pytest.mark.parametrize("how", ["append", "overwrite a slice"])
def test_over_rest_a_spark_writer_killed_when_the_server_had_acted_is_retried_without_a_second_write(
    proxy: FaultProxy, spark_process: SparkProcess, table: TableIdentifier, how: str
) -> None:
    doubt = rest_doubt(spark_process, table, how)
    victim = Writer(Project(spark_process.lake.artifacts, rest=proxy.uri), "spark")
    victim.wait_until_ready()

    def killed(forward: Callable[[], Answer]) -> None:
        forward()
        victim.strike()

    with doubt.faults_of(proxy, killed):
        victim.ask(table, doubt.case.data, **doubt.case.options, write_id="doubtful")
        victim.wait_until_dead()
    doubt.assert_written_once(doubt.write())
