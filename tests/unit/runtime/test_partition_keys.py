"""Which partitions a run takes, and which of them go into one run together."""

from collections.abc import Iterator

import pytest
from dagster import (
    DagsterInstance,
    DailyPartitionsDefinition,
    DynamicPartitionsDefinition,
    MultiPartitionsDefinition,
    PartitionKeyRange,
    StaticPartitionsDefinition,
)
from dagster._core.definitions.partitions.context import partition_loading_context
from hypothesis import given
from hypothesis import strategies as st

from floe_runtime.runs.partition_keys import is_dynamic, known_keys, latest_keys, similar_key, spans

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-06")
CITIES = StaticPartitionsDefinition(["Oslo", "Rome", "Lima"])
NAMES = DynamicPartitionsDefinition(name="names")
BOTH = MultiPartitionsDefinition({"day": DAYS, "city": CITIES})
INSTANCE = DagsterInstance.ephemeral()


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as ephemeral:
        ephemeral.add_dynamic_partitions("names", ["b", "a"])
        yield ephemeral


def test_the_latest_is_of_time_and_everything_else_is_all(instance: DagsterInstance) -> None:
    assert latest_keys(DAYS, instance) == ["2026-01-05"]
    assert latest_keys(CITIES, instance) == ["Oslo", "Rome", "Lima"]
    assert latest_keys(NAMES, instance) == ["b", "a"]
    assert latest_keys(BOTH, instance) == ["Oslo|2026-01-05", "Rome|2026-01-05", "Lima|2026-01-05"]
    mixed = MultiPartitionsDefinition({"day": DAYS, "name": NAMES})
    assert latest_keys(mixed, instance) == ["2026-01-05|b", "2026-01-05|a"]
    assert [is_dynamic(one) for one in (DAYS, CITIES, NAMES, BOTH, mixed)] == [False, False, True, False, True]


def test_a_window_that_is_not_over_is_not_the_latest(instance: DagsterInstance) -> None:
    today = DailyPartitionsDefinition("2026-01-01", end_offset=1)
    yesterday = DailyPartitionsDefinition("2026-01-01")
    assert known_keys(today, instance)[-1] > known_keys(yesterday, instance)[-1]
    assert latest_keys(today, instance) == latest_keys(yesterday, instance)
    assert latest_keys(DailyPartitionsDefinition("2999-01-01"), instance) == []


def test_keys_that_follow_each_other_go_together() -> None:
    chosen = ["2026-01-01", "2026-01-02", "2026-01-04"]
    assert spans(DAYS, INSTANCE, chosen) == [["2026-01-01", "2026-01-02"], ["2026-01-04"]]
    assert spans(CITIES, INSTANCE, ["Oslo", "Lima"]) == [["Oslo"], ["Lima"]]


@given(st.sets(st.sampled_from(known_keys(BOTH, INSTANCE))))
def test_each_group_of_pairs_is_what_dagster_makes_of_its_ends(chosen: set[str]) -> None:
    groups = spans(BOTH, INSTANCE, sorted(chosen))
    with partition_loading_context(dynamic_partitions_store=INSTANCE):
        for group in groups:
            ends = PartitionKeyRange(group[0], group[-1])
            assert [str(key) for key in BOTH.get_partition_keys_in_range(ends)] == group
    assert sorted(key for group in groups for key in group) == sorted(chosen)


def test_a_whole_grid_is_one_group() -> None:
    assert len(spans(BOTH, INSTANCE, known_keys(BOTH, INSTANCE))) == 1


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("2026-1-3", "2026-01-03"),
        ("2026/01/03", "2026-01-03"),
        ("2026-02-03", None),  # another day, which does not exist
        ("2026-01-13", None),
        ("x", None),
    ],
)
def test_a_mistyped_day_is_that_day_or_none(typed: str, near: str | None) -> None:
    assert similar_key(typed, known_keys(DAYS, INSTANCE)) == near


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("oslo|2026-1-3", "Oslo|2026-01-03"),
        ("2026-01-03|Rome", "Rome|2026-01-03"),
        ("Olso|2026-01-03", "Oslo|2026-01-03"),
        ("Oslo|2026-02-03", None),
    ],
)
def test_a_mistyped_pair_is_the_pair_of_the_same_numbers(typed: str, near: str | None) -> None:
    assert similar_key(typed, known_keys(BOTH, INSTANCE)) == near


def test_a_mistyped_number_is_not_another_number() -> None:
    assert similar_key("007", ["7", "70", "700"]) == "7"
    assert similar_key("100", ["10", "1000"]) is None
