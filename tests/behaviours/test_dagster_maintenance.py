"""Maintenance in Dagster: a job that does it, observations that tell the truth about it, and a schedule."""

import signal
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    AssetIn,
    AssetKey,
    AssetOut,
    AssetSpec,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    DailyPartitionsDefinition,
    DefaultScheduleStatus,
    Definitions,
    EnvVar,
    ExecuteInProcessResult,
    ScheduleDefinition,
    asset,
    build_schedule_context,
    define_asset_job,
    job,
    multi_asset,
    op,
)
from dagster._core.test_utils import create_run_for_test
from tests.catalogs import SideLake, side_lake
from tests.engines import transform
from tests.runs import QUIET, files_of, rows_of

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.maintenance.governance import RetentionRule
from floe_dagster import (
    IcebergIOManager,
    LakeResource,
    create_definitions,
    create_iceberg_resources,
    create_maintenance,
)
from floe_dagster.runs.cursors import cursor_tag
from floe_iceberg import Lake
from floe_iceberg.maintenance.health import LAST_MAINTENANCE
from floe_iceberg.maintenance.leases import is_lease
from floe_iceberg.snapshots import INPUTS
from floe_iceberg.snapshots.refs import staging_branch

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

JOB, OP, SCHEDULE = "floe_maintenance", "floe_maintain", "floe_maintenance_schedule"
# History is kept for a second, and two small files are enough to be put together.
POLICY = "retry_window: 1s, floor: {enterprise: 1s}, expire: {older_than: 1s, keep_last: 1}, compact: {min_files: 2}"


class House:
    """A lake of its own, its assets, and a Dagster that runs them and the job."""

    def __init__(self, lake: Lake, root: Path, instance: DagsterInstance, policy: str = POLICY) -> None:
        self.lake: SideLake = side_lake(lake, root, f"maintenance: {{{policy}}}\n")
        self.lake.artifacts.write()
        self.tables = self.lake.tables
        self.instance = instance

    def definitions(self, assets: list[Any], **others: Any) -> Definitions:
        resources = {"lake": self.lake, "io_manager": IcebergIOManager(lake=self.lake)}
        return create_definitions(assets, project=self.lake.artifacts.root, resources=resources, **others)

    def materialize(self, assets: list[Any], **arguments: Any) -> ExecuteInProcessResult:
        found = self.definitions(assets).resolve_implicit_global_asset_job_def()
        return found.execute_in_process(instance=self.instance, run_config=QUIET, **arguments)

    def maintain(self, assets: list[Any], enforcer: Any = None, **config: Any) -> ExecuteInProcessResult:
        found = self.definitions(assets, enforcer=enforcer).resolve_job_def(JOB)
        said = {**QUIET, "ops": {OP: {"config": config}}}
        return found.execute_in_process(instance=self.instance, run_config=said, raise_on_error=False)

    def write(self, table: str, *ids: int, mode: str = "append") -> int:
        data = pa.table({"id": pa.array(ids, pa.int64())})
        return self.tables.write_data(TableIdentifier.from_string(table), data, mode=mode).snapshot_id

    def grow(self, table: str, writes: int = 4) -> None:
        """Small files and a history of them."""
        for number in range(writes):
            self.write(table, number)

    def snapshots(self, table: str) -> list[int]:
        return [one.snapshot_id for one in self.tables.list_snapshots(TableIdentifier.from_string(table))]

    def ids(self, table: str) -> list[int]:
        return sorted(row["id"] for row in rows_of(self.tables, table))

    def files(self, table: str) -> int:
        return len(files_of(self.tables.load_table(TableIdentifier.from_string(table))))

    def is_maintained(self, table: str) -> bool:
        loaded = self.tables.load_table(TableIdentifier.from_string(table))
        return LAST_MAINTENANCE in loaded.properties and len(files_of(loaded)) == 1

    def disk(self, table: str) -> dict[str, int]:
        """The files of a table and their sizes; metadata files come and go with every commit."""
        namespace, name = table.split(".")
        found = (self.lake.artifacts.root / ".floe" / "warehouse").rglob("*")
        ours = [one for one in found if one.is_file() and f"/{namespace}/{name}" in one.as_posix()]
        assert ours, "the table's folder was not found"
        return {str(one): one.stat().st_size for one in ours if not one.name.endswith((".metadata.json", ".crc"))}


@pytest.fixture
def house(lake: Lake, tmp_path: Path, instance: DagsterInstance) -> House:
    return House(lake, tmp_path, instance)


def appends(*names: str, body: Callable[[], object] = lambda: None, first: int = 0) -> list[Any]:
    """Assets in bronze that append a row each time."""

    def build(name: str) -> Any:
        @asset(name=name, key_prefix="bronze", metadata={"write_mode": "append"})
        def one() -> pa.Table:
            body()
            return pa.table({"id": [first]})

        return one

    return [build(name) for name in names]


def observed(result: ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    """What the run observed, by asset."""
    events = [one for one in result.all_events if one.event_type is DagsterEventType.ASSET_OBSERVATION]
    found = [one.asset_observation_data.asset_observation for one in events]
    assert len({one.asset_key for one in found}) == len(found)
    return {one.asset_key.to_user_string(): {key: value.value for key, value in one.metadata.items()} for one in found}


def outcomes(result: ExecuteInProcessResult) -> dict[str, str]:
    return {name: told["floe/maintenance"] for name, told in observed(result).items()}


def failure_of(result: ExecuteInProcessResult) -> str:
    (event,) = [one for one in result.all_events if one.event_type is DagsterEventType.STEP_FAILURE]
    data = event.step_failure_data
    if data.user_failure_data is not None:
        return str(data.user_failure_data.description)
    assert data.error is not None
    return data.error.to_string()


def log_of(house: House, result: ExecuteInProcessResult) -> str:
    return "\n".join(entry.user_message for entry in house.instance.all_logs(result.run_id))


# What is done, and what is told --------------------------------------------------------------------------------------


def test_the_tables_of_assets_are_maintained_and_the_observations_are_true(house: House) -> None:
    assets = appends("orders", "calm")
    for _ in range(5):
        house.materialize(assets[:1])
    house.materialize(assets[1:])
    house.grow("silver.loose", 3)
    time.sleep(1.1)
    rows, snapshots = house.ids("bronze.orders"), house.snapshots("bronze.orders")
    files, disk = house.files("bronze.orders"), house.disk("bronze.orders")
    assert (files, len(snapshots)) == (5, 5)

    done = house.maintain(assets)
    assert done.success
    told = observed(done)["bronze/orders"]
    left, removed = house.snapshots("bronze.orders"), set(disk) - set(house.disk("bronze.orders"))
    assert house.ids("bronze.orders") == rows
    assert told["floe/maintenance"] == "done"
    assert (told["floe/files_before"], told["floe/files_after"]) == (5, house.files("bronze.orders")) == (5, 1)
    assert told["floe/snapshots_expired"] == len(set(snapshots) - set(left)) == 5
    assert told["floe/files_removed"] == len(removed) > 0
    assert told["floe/bytes_freed"] == sum(disk[one] for one in removed) > 0
    assert told["floe/maintenance_steps"] == {
        "compact": "5 files into 1, 5 rows",
        "expire": f"{told['floe/snapshots_expired']} snapshots and {len(removed)} files gone",
    }
    assert told["dagster/table_name"] == "bronze.orders"
    assert "floe/maintenance_reason" not in told

    calm = observed(done)["bronze/calm"]
    assert calm["floe/maintenance"] == "nothing to do"
    assert (calm["floe/files_removed"], calm["floe/bytes_freed"], calm["floe/snapshots_expired"]) == (0, 0, 0)
    assert "floe/files_before" not in calm

    # A table without an asset is maintained too; the log tells of it.
    assert set(observed(done)) == {"bronze/orders", "bronze/calm"}
    assert house.is_maintained("silver.loose")
    assert "silver.loose (no asset here): done" in log_of(house, done)

    # Dagster keeps them with the asset, and its materialization stays what it was.
    latest = house.instance.fetch_observations(AssetKey(["bronze", "orders"]), limit=1).records[0]
    assert latest.asset_observation is not None
    assert latest.asset_observation.metadata["floe/files_after"].value == 1
    assert not any(is_lease(ref) for ref in house.tables.load_table(_id("bronze.orders")).metadata.refs)


@pytest.mark.full
def test_the_table_of_an_asset_is_found_wherever_its_options_say(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOE_TEST_TEAM", "team")
    days = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-03")

    @asset(metadata={"write_mode": "append", "floe/namespace": "gold", "floe/table": "elsewhere"})
    def renamed() -> pa.Table:
        return pa.table({"id": [1]})

    @multi_asset(outs={name: AssetOut(metadata={"write_mode": "append"}) for name in ("one", "two")})
    def several() -> tuple[pa.Table, pa.Table]:
        return pa.table({"id": [1]}), pa.table({"id": [2]})

    @asset(partitions_def=days, metadata={"partition_expr": "at"})
    def daily() -> pa.Table:
        return pa.table({"at": pa.array([datetime(2026, 1, 1, tzinfo=timezone.utc)], pa.timestamp("us", tz="UTC"))})

    @asset
    def silent() -> None: ...

    @asset(io_manager_key="mem_io_manager")
    def number() -> int:
        return 1

    assets = [renamed, several, daily, silent, number]
    manager = IcebergIOManager(lake=house.lake, default_namespace=EnvVar("FLOE_TEST_TEAM"))
    resources = {"lake": house.lake, "io_manager": manager}
    defs = create_definitions(assets, project=house.lake.artifacts.root, resources=resources)
    everything = defs.resolve_implicit_global_asset_job_def()
    everything.execute_in_process(instance=house.instance, run_config=QUIET, partition_key="2026-01-01")
    done = defs.resolve_job_def(JOB).execute_in_process(instance=house.instance, run_config=QUIET)
    tables = {name: told["dagster/table_name"] for name, told in observed(done).items()}
    assert tables == {"renamed": "gold.elsewhere", "one": "team.one", "two": "team.two", "daily": "team.daily"}
    assert {str(one) for one in house.tables.list_tables(Namespace.from_string("team"))} == {
        "team.one",
        "team.two",
        "team.daily",
    }


def test_a_run_may_be_about_some_tables_and_some_steps(house: House) -> None:
    assets = appends("orders", "people")
    for table in ("bronze.orders", "bronze.people", "silver.loose"):
        house.grow(table)
    time.sleep(1.1)
    done = house.maintain(assets, tables=["bronze.orders"], only=["expire"])
    assert list(observed(done)["bronze/orders"]["floe/maintenance_steps"]) == ["expire"]
    assert set(observed(done)) == {"bronze/orders"}
    assert (house.files("bronze.orders"), len(house.snapshots("bronze.orders"))) == (4, 1)

    done = house.maintain(assets, namespaces=["bronze"], only=["compact"])
    assert {name: told["floe/files_after"] for name, told in observed(done).items()} == {
        "bronze/orders": 1,
        "bronze/people": 1,
    }
    assert house.files("silver.loose") == 4

    for wrong, why in (
        ({"only": ["vacuum"]}, "only is 'vacuum'; it must be one of compact, manifests"),
        ({"tables": ["bronze.nothing"]}, "Table 'bronze.nothing' not found"),
        ({"tables": ["orders"]}, "table 'orders' has no namespace"),
        ({"namespaces": ["copper"]}, "copper"),
    ):
        refused = house.maintain(assets, **wrong)
        assert not refused.success
        assert why in failure_of(refused)
        assert observed(refused) == {}
    assert house.files("silver.loose") == 4


@pytest.mark.full
def test_what_is_skipped_is_told_with_its_reason(house: House) -> None:
    assets = appends("off", "shared")
    for one, said in zip(assets, ("floe.maintenance.enabled", "gc.enabled"), strict=True):
        house.grow(f"bronze.{one.key.path[-1]}")
        with house.tables.load_table(_id(f"bronze.{one.key.path[-1]}")).transaction() as change:
            change.set_properties({said: "false"})
    done = house.maintain(assets)
    told = {name: (one["floe/maintenance"], one["floe/maintenance_reason"]) for name, one in observed(done).items()}
    everything = "compact, manifests, statistics, expire, orphans"
    assert told["bronze/off"] == ("nothing to do", f"{everything}: the policy has enabled: false")
    assert told["bronze/shared"][0] == "done"
    assert told["bronze/shared"][1].startswith("expire, orphans: the table has gc.enabled=false")
    assert (house.files("bronze.off"), house.files("bronze.shared")) == (4, 1)


def test_a_table_that_fails_does_not_stop_the_others_and_fails_the_run(house: House) -> None:
    assets = appends("broken", "odd", "sound")
    for table in ("bronze.broken", "bronze.odd", "bronze.sound", "bronze.zz_loose"):
        house.grow(table)
    lost = sorted(files_of(house.tables.load_table(_id("bronze.broken"))))[0]
    Path(lost.removeprefix("file://")).unlink()
    with house.tables.load_table(_id("bronze.odd")).transaction() as change:
        change.set_properties({"floe.maintenance.expire.older-than": "soon"})
    time.sleep(1.1)
    before = house.snapshots("bronze.odd")

    done = house.maintain(assets)
    assert not done.success
    told = failure_of(done)
    assert told.startswith("2 of 4 tables could not be maintained:\n")
    assert "\nbronze.broken: " in told
    assert Path(lost).name in told
    assert " at org.apache." not in told
    assert "\nbronze.odd: properties of table 'bronze.odd' do not make a maintenance policy" in told
    assert outcomes(done) == {"bronze/broken": "failed", "bronze/odd": "failed", "bronze/sound": "done"}
    assert "expire.older_than" in observed(done)["bronze/odd"]["floe/maintenance_reason"]
    assert house.snapshots("bronze.odd") == before
    assert house.is_maintained("bronze.sound")
    assert house.is_maintained("bronze.zz_loose")


@pytest.mark.full
def test_what_was_done_before_a_step_failed_is_told(house: House) -> None:
    """Statistics need a file that compaction had no need of, and that is gone."""
    assets = appends("half")
    by_id = [transform("identity", "id")]
    for number in (1, 1, 1, 2):
        data = pa.table({"id": [number]})
        house.tables.write_data(_id("bronze.half"), data, mode="append", partition_by=by_id)
    table = house.tables.load_table(_id("bronze.half"))
    (alone,) = [one for one in files_of(table) if "id=2" in one]
    Path(alone.removeprefix("file://")).unlink()
    with table.transaction() as change:
        change.set_properties({"floe.maintenance.statistics": "true"})
    done = house.maintain(assets)
    assert not done.success
    told = observed(done)["bronze/half"]
    assert told["floe/maintenance"] == "failed"
    assert Path(alone).name in told["floe/maintenance_reason"]
    assert told["floe/maintenance_steps"] == {"compact": "3 files into 1, 3 rows"}
    assert (told["floe/files_before"], told["floe/files_after"]) == (4, 2) == (4, house.files("bronze.half"))


def test_a_run_that_is_interrupted_ends_and_touches_no_further_table(house: House) -> None:
    class Impatient:
        """Somebody presses Ctrl-C while the first table is looked at."""

        asked = 0

        def get_snapshot_retention(self, _: TableIdentifier, asked: timedelta, **__: Any) -> timedelta:
            self.asked += 1
            signal.raise_signal(signal.SIGINT)
            return asked

    assets = appends("orders", "people")
    for table in ("bronze.orders", "bronze.people"):
        house.grow(table)
    time.sleep(1.1)
    enforcer = Impatient()
    done = house.maintain(assets, enforcer)
    assert not done.success
    assert enforcer.asked == 1
    assert observed(done) == {}
    assert "could not be maintained" not in failure_of(done)
    assert (house.files("bronze.orders"), house.files("bronze.people")) == (4, 4)


def test_an_enforcer_that_refuses_is_obeyed(house: House) -> None:
    class Legal:
        """Nothing of people goes, and what they are asked about others is agreed to."""

        rules: list[RetentionRule] = []  # noqa: RUF012

        def get_snapshot_retention(
            self, table: TableIdentifier, asked: timedelta, *, enterprise_policy: RetentionRule, **_: Any
        ) -> timedelta:
            self.rules.append(enterprise_policy)
            if table.name == "people":
                raise ConfigurationError("the legal department keeps the history of people")
            if table.name == "slow":
                return timedelta(days=30)
            if table.name == "bug":
                raise LookupError("no such rule")
            return asked

    assets = appends("bug", "orders", "people", "slow")
    for one in assets:
        house.grow(f"bronze.{one.key.path[-1]}")
    time.sleep(1.1)
    before = {name: (house.disk(f"bronze.{name}"), house.snapshots(f"bronze.{name}")) for name in ("people", "bug")}
    done = house.maintain(assets, Legal())
    assert not done.success
    assert "bronze.people: the legal department keeps the history of people" in failure_of(done)
    assert "bronze.bug: LookupError: no such rule" in failure_of(done)
    assert outcomes(done) == {
        "bronze/people": "failed",
        "bronze/bug": "failed",
        "bronze/orders": "done",
        "bronze/slow": "done",
    }
    assert {name: (house.disk(f"bronze.{name}"), house.snapshots(f"bronze.{name}")) for name in before} == before
    assert observed(done)["bronze/orders"]["floe/snapshots_expired"] > 0
    assert list(observed(done)["bronze/slow"]["floe/maintenance_steps"]) == ["compact"]
    assert {rule.minimum for rule in Legal.rules} == {timedelta(seconds=1)}


# What is left for later ----------------------------------------------------------------------------------------------


def test_what_another_run_is_materializing_is_left_for_later(house: House) -> None:
    """The job runs from within a step: what that run has still to write is left, what it has written is not."""
    seen: list[ExecuteInProcessResult] = []

    @asset(key_prefix="bronze", metadata={"write_mode": "append"})
    def first() -> pa.Table:
        return pa.table({"id": [1]})

    @asset(key_prefix="bronze", metadata={"write_mode": "append"}, deps=[first])
    def second() -> pa.Table:
        seen.append(house.maintain(assets, only=["compact"]))
        return pa.table({"id": [2]})

    @asset(key_prefix="bronze", metadata={"write_mode": "append"}, deps=[second])
    def third() -> pa.Table:
        return pa.table({"id": [3]})

    other = appends("other")
    assets = [first, second, third, *other]
    for one in assets:
        house.grow(f"bronze.{one.key.path[-1]}")
    whole = house.definitions(assets, jobs=[define_asset_job("chain", [first, second, third])])
    running = whole.resolve_job_def("chain").execute_in_process(instance=house.instance, run_config=QUIET)
    assert running.success
    (inside,) = seen
    assert inside.success
    assert outcomes(inside) == {
        "bronze/first": "done",
        "bronze/second": "left for later",
        "bronze/third": "left for later",
        "bronze/other": "done",
    }
    for name in ("second", "third"):
        told = observed(inside)[f"bronze/{name}"]
        assert told["floe/maintenance_reason"] == f"run {running.run_id[:8]} is materializing bronze/{name}"
        assert told["floe/maintenance_steps"] == {}
        assert house.files(f"bronze.{name}") == 5

    after = house.maintain(assets, only=["compact"])
    assert outcomes(after)["bronze/second"] == outcomes(after)["bronze/third"] == "done"
    assert house.is_maintained("bronze.second")
    assert house.is_maintained("bronze.third")


@pytest.mark.full
def test_a_run_of_chosen_assets_holds_back_no_others(house: House) -> None:
    seen: list[ExecuteInProcessResult] = []
    writing = appends("writing", body=lambda: seen.append(house.maintain(assets, only=["compact"])))
    assets = [*writing, *appends("resting")]
    for one in assets:
        house.grow(f"bronze.{one.key.path[-1]}")
    assert house.materialize(assets, asset_selection=[writing[0].key]).success
    assert outcomes(seen[0]) == {"bronze/writing": "left for later", "bronze/resting": "done"}


@pytest.mark.parametrize("status", [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING])
def test_a_run_of_another_code_location_holds_the_table_of_its_key(house: House, status: DagsterRunStatus) -> None:
    house.grow("silver.foreign")
    foreign = asset(name="foreign", key_prefix="silver", metadata={"write_mode": "append"})(lambda: pa.table({}))
    theirs = house.definitions([foreign]).resolve_implicit_global_asset_job_def()
    run = house.instance.create_run_for_job(theirs, status=status)
    done = house.maintain(appends("orders"), only=["compact"])
    assert done.success
    assert f"left for later: run {run.run_id[:8]} is materializing silver/foreign" in log_of(house, done)
    assert house.files("silver.foreign") == 4
    house.instance.report_run_failed(run)
    assert house.maintain(appends("orders"), only=["compact"]).success
    assert house.is_maintained("silver.foreign")


@pytest.mark.full
def test_a_run_that_planned_nothing_holds_what_was_selected_for_it(house: House) -> None:
    """Such as one that is managed elsewhere, and of which Dagster knows the assets alone."""
    assets = appends("orders", "people")
    for one in assets:
        house.grow(f"bronze.{one.key.path[-1]}")
    create_run_for_test(house.instance, status=DagsterRunStatus.STARTED, asset_selection=frozenset([assets[0].key]))
    done = house.maintain(assets, only=["compact"])
    assert outcomes(done) == {"bronze/orders": "left for later", "bronze/people": "done"}


@pytest.mark.full
def test_a_run_that_died_holds_nothing_back_for_ever(lake: Lake, tmp_path: Path, instance: DagsterInstance) -> None:
    house = House(lake, tmp_path, instance, f"{POLICY}, longest_job: 2s")
    assets = appends("orders")
    house.grow("bronze.orders")
    job_of_assets = house.definitions(assets).resolve_implicit_global_asset_job_def()
    dead = instance.create_run_for_job(job_of_assets, status=DagsterRunStatus.STARTED)
    assert outcomes(house.maintain(assets, only=["compact"])) == {"bronze/orders": "left for later"}
    time.sleep(2.1)
    done = house.maintain(assets, only=["compact"])
    assert outcomes(done) == {"bronze/orders": "done"}
    assert f"run {dead.run_id[:8]} is materializing bronze/orders as far as Dagster knows" in log_of(house, done)


def test_a_write_that_is_staged_leaves_the_table_for_later(house: House) -> None:
    assets = appends("orders", "people")
    for table in ("bronze.orders", "bronze.people"):
        house.grow(table)
    now = time.time()
    branch = staging_branch(now)
    house.tables.create_branch(_id("bronze.orders"), branch)
    house.tables.create_branch(_id("bronze.people"), staging_branch(now - 13 * 3600))  # longer than any job takes
    done = house.maintain(assets, only=["compact"])
    assert done.success
    assert outcomes(done) == {"bronze/orders": "left for later", "bronze/people": "done"}
    began = datetime.fromtimestamp(int(now), timezone.utc).isoformat(timespec="seconds")
    assert observed(done)["bronze/orders"]["floe/maintenance_reason"] == (
        f"a write that began at {began} is staged on a branch"
    )
    assert house.files("bronze.orders") == 4
    house.tables.remove_branch(_id("bronze.orders"), branch)
    assert outcomes(house.maintain(assets, only=["compact"]))["bronze/orders"] == "done"
    assert house.is_maintained("bronze.orders")


# What consumers have still to read -----------------------------------------------------------------------------------


def consumer() -> list[Any]:
    ins = {"source": AssetIn(["bronze", "source"], metadata={"floe/since": True})}

    @asset(key_prefix="silver", ins=ins, metadata={"write_mode": "append"})
    def consumed(source: pa.Table) -> pa.Table:
        return source

    return [AssetSpec(["bronze", "source"]), consumed]


@pytest.mark.full  # several runs each
def test_cursors_survive_an_expiry_that_takes_everything_else(house: House) -> None:
    assets = consumer()
    for number in range(5):
        house.write("bronze.source", number)
    house.materialize(assets)
    assert house.ids("silver.consumed") == [0, 1, 2, 3, 4]
    seen = house.snapshots("bronze.source")
    time.sleep(1.1)
    assert house.maintain(assets).success
    left = house.snapshots("bronze.source")
    assert len(set(seen) & set(left)) == 1
    assert (
        house.tables.load_table(_id("bronze.source")).metadata.refs[cursor_tag("silver/consumed")].snapshot_id in left
    )

    for ids in ((5, 6), (7,)):
        house.write("bronze.source", *ids)
    house.materialize(assets)
    assert house.ids("silver.consumed") == list(range(8))
    time.sleep(1.1)
    assert house.maintain(assets).success
    # The consumer's own history, which says what it was made from, is gone as well.
    (compacted,) = house.tables.list_snapshots(_id("silver.consumed"))
    assert INPUTS not in compacted.summary
    house.write("bronze.source", 8)
    house.materialize(assets)
    house.materialize(assets)
    assert house.ids("silver.consumed") == list(range(9))
    assert house.ids("bronze.source") == list(range(9))


@pytest.mark.full  # several runs each
def test_what_a_consumer_that_is_behind_has_not_read_is_kept_until_it_has(house: House) -> None:
    assets = consumer()
    older = [house.write("bronze.source", number) for number in range(3)]
    house.materialize(assets)
    unread = [house.write("bronze.source", number) for number in (3, 4, 5)]
    time.sleep(1.1)
    assert house.maintain(assets).success
    left = set(house.snapshots("bronze.source"))
    assert left >= {older[-1], *unread}
    assert not left & set(older[:-1])
    house.materialize(assets)
    assert house.ids("silver.consumed") == [0, 1, 2, 3, 4, 5]

    time.sleep(1.1)
    assert house.maintain(assets).success
    assert not set(house.snapshots("bronze.source")) & {older[-1], *unread[:-1]}
    house.write("bronze.source", 6)
    house.materialize(assets)
    assert house.ids("silver.consumed") == [0, 1, 2, 3, 4, 5, 6]


# The definitions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def loaded(new_project: Callable[[str], Path]) -> Callable[..., Definitions]:
    def load(settings: str = "", **others: Any) -> Definitions:
        root = new_project(f"name: definitions\nmaintenance: {{{settings}}}\n")
        compile_project(root).artifacts.write()
        return create_definitions(appends("orders"), project=root, **others)

    return load


def names(definitions: Definitions) -> tuple[set[str], set[str]]:
    repository = definitions.get_repository_def()
    jobs = {name for name in repository.job_names if not name.startswith("__")}
    return jobs, {one.name for one in repository.schedule_defs}


def test_the_schedule_of_floe_yaml_runs_and_launches_the_job(loaded: Callable[..., Definitions]) -> None:
    definitions = loaded("schedule: '30 3 * * *'")
    assert names(definitions) == ({JOB}, {SCHEDULE})
    schedule = definitions.get_repository_def().get_schedule_def(SCHEDULE)
    assert schedule.cron_schedule == "30 3 * * *"
    assert schedule.execution_timezone == "UTC"
    assert schedule.default_status is DefaultScheduleStatus.RUNNING
    assert schedule.job_name == JOB
    at = datetime(2026, 1, 1, 3, 30, tzinfo=timezone.utc)
    (request,) = schedule.evaluate_tick(build_schedule_context(scheduled_execution_time=at)).run_requests or ()
    assert request.run_config == {}


def test_without_a_schedule_there_is_the_job_alone(loaded: Callable[..., Definitions]) -> None:
    assert names(loaded()) == ({JOB}, set())


def test_a_schedule_that_dagster_does_not_know_is_refused_with_its_place(loaded: Callable[..., Definitions]) -> None:
    with pytest.raises(ConfigurationError, match=r"maintenance\.schedule in floe\.yaml is .*five fields"):
        loaded("schedule: '0 3 * * someday'")


def test_the_jobs_and_schedules_of_the_user_stay(loaded: Callable[..., Definitions]) -> None:
    mine, unscheduled = define_asset_job("mine"), define_asset_job("unscheduled")
    nightly = ScheduleDefinition(name="nightly", job=mine, cron_schedule="0 1 * * *")
    found = names(loaded("schedule: '0 3 * * *'", jobs=[mine, unscheduled], schedules=[nightly]))
    assert found == ({"mine", "unscheduled", JOB}, {"nightly", SCHEDULE})

    @op
    def by_hand() -> None: ...

    @job(name=JOB)
    def own() -> None:
        by_hand()

    definitions = loaded("schedule: '0 3 * * *'", jobs=[own], schedules=[nightly])
    assert names(definitions) == ({"mine", JOB}, {"nightly"})
    assert set(definitions.resolve_job_def(JOB).graph.node_dict) == {"by_hand"}


@pytest.mark.full
def test_the_job_is_for_definitions_of_ones_own_too(house: House) -> None:
    assets = appends("orders")
    house.grow("bronze.orders")
    time.sleep(1.1)
    resources = {"lake": house.lake, "io_manager": IcebergIOManager(lake=house.lake)}
    made = create_maintenance(house.lake.artifacts, assets, resources=resources)
    merged = Definitions.merge(Definitions(assets=assets, resources=resources), made)
    done = merged.resolve_job_def(JOB).execute_in_process(instance=house.instance, run_config=QUIET)
    assert outcomes(done) == {"bronze/orders": "done"}


@pytest.mark.full
def test_assets_that_are_kept_in_another_lake_are_not_observed(house: House, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "floe.yaml").write_text("name: other\n")
    there = compile_project(tmp_path / "other").artifacts
    there.write()
    house.grow("bronze.orders")
    resources = {
        **create_iceberg_resources(house.lake.artifacts),
        "lake": house.lake,
        "io_manager": IcebergIOManager(lake=LakeResource(project=str(there.root))),
    }
    definitions = create_definitions(appends("orders"), project=house.lake.artifacts.root, resources=resources)
    done = definitions.resolve_job_def(JOB).execute_in_process(instance=house.instance, run_config=QUIET)
    assert done.success
    assert observed(done) == {}
    assert "bronze.orders (no asset here): done" in log_of(house, done)


def test_the_lake_of_a_project_is_maintained_as_its_floe_yaml_says(
    lake: Lake, project: CompiledArtifacts, instance: DagsterInstance, namespace: str
) -> None:
    """Through the resources that create_definitions makes, with the policy that nobody changed."""

    @asset(key_prefix=namespace, metadata={"write_mode": "append"})
    def rows() -> pa.Table:
        return pa.table({"id": [1]})

    definitions = create_definitions([rows], project=project.root)
    for _ in range(6):
        definitions.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance, run_config=QUIET)
    said = {**QUIET, "ops": {OP: {"config": {"namespaces": [namespace]}}}}
    done = definitions.resolve_job_def(JOB).execute_in_process(instance=instance, run_config=said)
    told = observed(done)[f"{namespace}/rows"]
    assert (told["floe/files_before"], told["floe/files_after"], told["floe/snapshots_expired"]) == (6, 1, 0)
    assert rows_of(lake.tables, f"{namespace}.rows") == [{"id": 1}] * 6


def _id(name: str) -> TableIdentifier:
    return TableIdentifier.from_string(name)
