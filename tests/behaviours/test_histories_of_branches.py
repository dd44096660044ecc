"""Dagster's histories of main and of a branch of the lake: apart until the branch is published, and then one."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from dagster import AssetCheckKey, AssetKey, AssetRecordsFilter

from floe_core import compile_project
from floe_core.errors import CheckFailedError
from floe_iceberg.branches import Branches
from floe_runtime import homes
from floe_runtime.branches import ProjectBranches
from floe_runtime.project import Project
from floe_runtime.runs.pipeline import open_history
from floe_runtime.runs.runner import RunFailedError

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in (beta|preview)")

ORDERS, TOTALS, CHECK = AssetKey(["b", "orders"]), AssetKey(["g", "totals"]), "positive"
DEFINITIONS = """
import datetime
import os
import pyarrow as pa
from dagster import AssetCheckResult, AssetCheckSeverity, AssetIn, BackfillPolicy, DailyPartitionsDefinition
from dagster import asset, asset_check
from floe_dagster import create_definitions

days = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")


@asset(
    key_prefix="b",
    partitions_def=days,
    backfill_policy=BackfillPolicy.single_run(),
    metadata={"partition_expr": "day"},
    code_version="7",
)
def orders(context) -> pa.Table:
    if os.environ.get("N") == "raise":
        raise ValueError("no orders today")
    made = [datetime.date.fromisoformat(key) for key in context.partition_keys]
    return pa.table({"day": made, "n": [int(os.environ.get("N", "1"))] * len(made)})


@asset(key_prefix="g", ins={"orders": AssetIn(["b", "orders"])}, metadata={"write_mode": "overwrite"})
def totals(orders: pa.Table) -> pa.Table:
    return pa.table({"n": [sum(orders["n"].to_pylist())]})


@asset_check(asset=orders, blocking=True, additional_ins={})
def positive(context) -> AssetCheckResult:
    wanted = os.environ.get("CHECK", "pass")
    if wanted == "raise":
        raise ValueError("the check is broken")
    return AssetCheckResult(passed=wanted == "pass", severity=AssetCheckSeverity[os.environ.get("SEVERITY", "ERROR")])


defs = create_definitions([orders, totals], asset_checks=[positive])
"""
DAYS = [f"2026-01-0{day}" for day in range(1, 5)]


class Shop:
    """A project on main and on a branch, each opened as a process that starts now opens it."""

    def __init__(self, root: Path) -> None:
        (root / "floe.yaml").write_text("name: shop\n", encoding="utf-8")
        (root / "definitions.py").write_text(DEFINITIONS, encoding="utf-8")
        self.artifacts = compile_project(root).artifacts
        self.opened: list[Project] = []

    def at(self, branch: str = "main") -> Project:
        self.opened.append(Project(self.artifacts.on_branch(branch)))
        return self.opened[-1]

    @property
    def branches(self) -> ProjectBranches:
        return self.at().branches

    def made(self, key: AssetKey = ORDERS, branch: str = "main") -> list[tuple[str | None, str, str]]:
        """Each materialization in a history: partition, branch and snapshot, the oldest first."""
        with open_history(self.artifacts.on_branch(branch)) as instance:
            assert instance is not None
            records = instance.fetch_materializations(AssetRecordsFilter(asset_key=key), limit=100).records
        events = [record.asset_materialization for record in reversed(records)]
        return [
            (one.partition, str(one.metadata["floe/branch"].value), str(one.metadata["floe/snapshot_id"].value))
            for one in events
            if one is not None
        ]

    def partitions(self, key: AssetKey = ORDERS, branch: str = "main") -> list[str | None]:
        return [partition for partition, _branch, _snapshot in self.made(key, branch)]

    def missing(self, branch: str = "main") -> list[str]:
        """The partitions of orders that a run would fill; none may have to be recomputed."""
        plan = self.at(branch).plan("b/orders", missing=True).plan
        assert not plan.differences
        return [key for batch in plan.batches for key in batch.keys]

    def rows(self, branch: str = "main") -> list[tuple[int, int]]:
        found = self.at(branch).tables.scan("b.orders").to_arrow().to_pylist()
        return sorted((row["day"].day, row["n"]) for row in found)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """The first two days on main."""
    made = Shop(tmp_path)
    made.at().run("b/orders", partitions=DAYS[:2])
    yield made
    for one in made.opened:
        one.close()


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What the assets and checks of the project do."""

    def say(**said: str) -> None:
        for name, value in said.items():
            monkeypatch.setenv(name, value)

    return say


def killed(_publication: object) -> None:
    raise KeyboardInterrupt


def test_runs_on_a_branch_are_in_mains_history_when_it_is_published_and_not_before(
    shop: Shop, say: Callable[..., None]
) -> None:
    before = shop.made()
    say(N="2")
    trial = shop.at("trial")
    trial.run("b/orders", partitions=DAYS[1:3])
    trial.run("g/totals")
    assert shop.made() == before
    assert len(shop.at().runs()) == 1
    assert len(shop.at("trial").runs()) == 2
    assert shop.partitions(branch="trial") == [*DAYS[:2], *DAYS[1:3]], "with what main had when it began"
    shop.branches.publish("trial")
    head = shop.at().tables.current_snapshot("b.orders")
    assert head is not None
    published = shop.made()[len(before) :]
    assert published == [(day, "main", str(head.snapshot_id)) for day in DAYS[1:3]]
    assert shop.partitions(TOTALS) == [None]
    assert shop.rows() == [(1, 1), (2, 2), (3, 2)]
    assert shop.missing() == [DAYS[3]]


@pytest.mark.full
def test_what_is_put_on_top_of_main_is_recorded_with_the_snapshots_of_main(
    shop: Shop, say: Callable[..., None]
) -> None:
    say(N="2")
    shop.at("trial").run("b/orders", partitions=[DAYS[2]])
    shop.at().run("b/orders", partitions=[DAYS[3]])
    published = shop.branches.publish("trial")
    assert published.tables[0].replayed
    assert shop.partitions() == [*DAYS[:2], DAYS[3], DAYS[2]]
    assert shop.made()[-1][2] == str(published.tables[0].snapshot_id)
    assert shop.missing() == []


@pytest.mark.parametrize(
    "when", ["before it is recorded", pytest.param("after it is recorded", marks=pytest.mark.full)]
)
def test_a_publication_whose_process_ended_is_recorded_once(shop: Shop, when: str) -> None:
    shop.at("trial").run("b/orders", partitions=DAYS[1:3])
    unrecorded = when == "before it is recorded"
    branches = Branches(shop.at().tables, timedelta(days=14)) if unrecorded else shop.branches
    with pytest.raises(KeyboardInterrupt):
        branches.publish("trial", record=killed)
    assert shop.rows() == [(1, 1), (2, 1), (3, 1)], "it is published"
    shop.branches.publish("trial")
    assert shop.partitions() == [*DAYS[:2], *DAYS[1:3]]
    assert list(shop.branches.list()) == []


def test_a_branch_whose_history_is_on_another_machine_is_recorded_by_its_snapshots(shop: Shop) -> None:
    trial = shop.at("trial")
    trial.run("b/orders", partitions=DAYS[1:3])
    trial.run("b/orders", partitions=DAYS[2:4])
    trial.run("g/totals")
    homes.remove_home(shop.artifacts.on_branch("trial"))
    shop.branches.publish("trial")
    assert sorted(map(str, shop.partitions()[2:])) == DAYS[1:], "each partition once"
    assert {branch for _partition, branch, _snapshot in shop.made()} == {"main"}
    assert shop.partitions(TOTALS) == [None]
    assert shop.missing() == []


def test_runs_of_a_branch_on_several_machines_are_all_recorded(shop: Shop, say: Callable[..., None]) -> None:
    trial = shop.at("trial")
    trial.run("b/orders", partitions=DAYS[1:3])
    homes.remove_home(shop.artifacts.on_branch("trial"))
    say(N="2")
    trial.run("b/orders", partitions=DAYS[2:4])
    shop.branches.publish("trial")
    assert sorted(map(str, shop.partitions()[2:])) == DAYS[1:], "each partition once"
    assert shop.missing() == []


def test_rows_in_quarantine_are_no_materialization_of_the_asset(shop: Shop, say: Callable[..., None]) -> None:
    moving = "[checks.of(orders, checks.value_range('n', min=0, quarantine=True))]"
    text = DEFINITIONS.replace("asset_checks=[positive]", f"asset_checks={moving}")
    text = text.replace("import create_definitions", "import checks, create_definitions")
    (shop.artifacts.root / "definitions.py").write_text(text, encoding="utf-8")
    say(N="-1")
    shop.at("trial").run("b/orders", partitions=[DAYS[2]])
    (orders, quarantine) = shop.branches.publish("trial").tables
    assert quarantine.table == "b.orders_quarantine"
    assert shop.made()[2:] == [(DAYS[2], "main", str(orders.snapshot_id))]
    assert shop.missing() == [DAYS[3]]


@pytest.mark.full
def test_a_partition_that_was_written_twice_on_the_branch_is_recorded_once(
    shop: Shop, say: Callable[..., None]
) -> None:
    trial = shop.at("trial")
    for number in ("2", "3"):
        say(N=number)
        trial.run("b/orders", partitions=[DAYS[2]])
    shop.branches.publish("trial")
    assert shop.partitions() == DAYS[:3]
    assert shop.rows()[-1] == (3, 3)


def test_what_main_gained_after_the_branch_began_is_missing_on_the_branch(shop: Shop) -> None:
    shop.branches.create("trial")
    shop.at().run("b/orders", partitions=[DAYS[2]])
    assert shop.at("trial").plan("b/orders", missing=True).plan.batches[0].keys == tuple(DAYS[2:])
    shop.at("trial").run("b/orders", missing=True)
    assert (shop.missing("trial"), shop.missing()) == ([], [DAYS[3]])


def test_what_main_gained_is_not_missing_on_a_branch_after_an_update(shop: Shop) -> None:
    shop.at("trial").run("g/totals")
    shop.at().run("b/orders", partitions=DAYS[2:])
    shop.branches.update("trial")
    assert shop.missing("trial") == []


@pytest.mark.full
def test_a_branch_that_is_discarded_and_made_again_has_a_history_of_its_own(shop: Shop) -> None:
    shop.at("trial").run("b/orders", partitions=DAYS[2:])
    shop.branches.discard("trial")
    assert shop.partitions() == DAYS[:2]
    shop.at("trial").run("g/totals")
    assert shop.partitions(branch="trial") == DAYS[:2]


# Blocking checks ------------------------------------------------------------------------------------------------------


def test_a_failed_blocking_check_stops_the_publication_until_it_passes(shop: Shop, say: Callable[..., None]) -> None:
    say(N="-1", CHECK="fail")
    with pytest.raises(RunFailedError):
        shop.at("trial").run("b/orders", partitions=[DAYS[2]])
    with pytest.raises(CheckFailedError, match="positive of b/orders"):
        shop.branches.publish("trial")
    say(N="raise")
    with pytest.raises(RunFailedError):
        shop.at("trial").run("b/orders", partitions=[DAYS[2]])
    with pytest.raises(CheckFailedError, match="positive of b/orders"):
        shop.branches.publish("trial")
    assert shop.rows() == [(1, 1), (2, 1)]
    say(N="5", CHECK="pass")
    shop.at("trial").run("b/orders", partitions=[DAYS[2]])
    shop.branches.publish("trial")
    assert shop.rows() == [(1, 1), (2, 1), (3, 5)]


def test_a_check_that_did_not_end_stops_the_publication(shop: Shop, say: Callable[..., None]) -> None:
    say(CHECK="raise")
    with pytest.raises(RunFailedError):
        shop.at("trial").run("b/orders", partitions=[DAYS[2]])
    with pytest.raises(CheckFailedError, match="did not end: positive of b/orders"):
        shop.branches.publish("trial")


@pytest.mark.full
def test_a_check_that_only_warns_does_not_stop_the_publication(shop: Shop, say: Callable[..., None]) -> None:
    say(CHECK="fail", SEVERITY="WARN")
    shop.at("trial").run("b/orders", partitions=[DAYS[2]])
    shop.branches.publish("trial")
    assert shop.rows()[-1] == (3, 1)


@pytest.mark.full
def test_a_check_that_failed_on_main_before_the_branch_began_does_not_stop_it(
    shop: Shop, say: Callable[..., None]
) -> None:
    say(CHECK="fail")
    with pytest.raises(RunFailedError):
        shop.at().run("b/orders", partitions=[DAYS[2]])
    trial = shop.at("trial")
    trial.run("g/totals")
    rows = trial.tables.scan("b.orders").to_arrow()
    trial.tables.write_data("b.orders", rows, mode="overwrite", snapshot_properties={"floe.asset": "b/orders"})
    shop.branches.publish("trial")
    with open_history(shop.artifacts) as instance:
        assert instance is not None
        key = AssetCheckKey(ORDERS, CHECK)
        assert instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key].status.value == "FAILED"


def test_a_branch_does_not_begin_with_the_history_of_an_earlier_one(shop: Shop) -> None:
    shop.at("trial").run("b/orders", partitions=[DAYS[2]])
    Branches(shop.at().tables, timedelta(days=14)).discard("trial")  # as maintenance and other machines do
    assert DAYS[2] in shop.partitions(branch="trial"), "the history of the branch that is gone"
    assert shop.missing("trial") == DAYS[2:]
    assert shop.partitions(branch="trial") == DAYS[:2]
