"""Run one asset, or one check, of an atomic group: as Dagster runs it outside of a group, in a job of its own.

The job runs in the process of the step and has the definitions of the project without groups: contexts, partitions,
inputs and configuration are those that the asset was written for. What it logs and checks is passed on to the step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSpec,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    AssetsDefinition,
    AssetSelection,
    DagsterEventType,
    Definitions,
    EventLogEntry,
    ExpectationResult,
    GraphDefinition,
    MetadataValue,
    OpExecutionContext,
    PartitionsDefinition,
    define_asset_job,
    in_process_executor,
)

from floe_dagster._dagster.names import DagsterAssetCheckFailedError, ephemeral_instance, pack_value
from floe_dagster.runs.transaction import AtomicRun, inside

__all__ = ["MADE", "Member", "Members", "Outcome", "job_of", "run_member"]

_PARTITION = "dagster/partition"
_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
# The key under which a step records that it has made an asset.
MADE = "floe/made"
_DATA_VERSION = "dagster/data_version"
_QUIET = {"console": {"config": {"log_level": "CRITICAL"}}}


@dataclass(frozen=True)
class Member:
    """A definition of a group: assets that one function makes, or checks."""

    definition: AssetsDefinition
    checks: tuple[AssetCheckSpec, ...]

    @property
    def name(self) -> str:
        return str(self.definition.node_def.name)

    @property
    def keys(self) -> list[AssetKey]:
        """The assets, upstream first; none for a definition of checks only."""
        return [spec.key for spec in self.definition.specs]

    @property
    def partitions_def(self) -> PartitionsDefinition[Any] | None:
        definitions = [spec.partitions_def for spec in self.definition.specs]
        return next((one for one in definitions if one is not None), None)


@dataclass(frozen=True)
class Members:
    """The members of all groups, and the definitions of the project without groups, in which they run."""

    assets: Sequence[Any]
    checks: Sequence[Any]
    resources: Mapping[str, Any]
    jobs: Sequence[Any]

    @cached_property
    def definitions(self) -> Definitions:
        return Definitions(
            assets=list(self.assets),
            asset_checks=list(self.checks),
            resources=dict(self.resources),
            jobs=list(self.jobs),
            executor=in_process_executor,
        )


def job_of(member: Member) -> Any:
    """The job that runs a member, without the checks that have functions of their own."""
    selection: AssetSelection = AssetSelection.checks(*(check.key for check in member.checks))
    if member.keys:
        selection = selection | AssetSelection.assets(*member.keys).without_checks()
    return define_asset_job(_job_name(member), selection=selection)


def _job_name(member: Member) -> str:
    return f"floe_member_{member.name}"


@dataclass
class Made:
    """The materializations of one asset: one, or one for each partition."""

    events: list[AssetMaterialization] = field(default_factory=list)

    @property
    def metadata(self) -> dict[str, Any]:
        """What is recorded of the asset until it is published: its metadata, and what these cannot say."""
        first = self.events[0]
        tags = first.tags or {}
        beside: dict[str, Any] = {
            "data_version": tags.get(_DATA_VERSION),
            "tags": {key: value for key, value in tags.items() if not key.startswith("dagster/")},
            "partitions": {
                one.partition: pack_value({key: _packable(one.metadata[key]) for key in _differing(one, first)})
                for one in self.events
                if one.partition is not None and _differing(one, first)
            },
        }
        return {**first.metadata, MADE: MetadataValue.json(beside)}


def _packable(value: MetadataValue[Any]) -> Any:
    return value


def _differing(one: AssetMaterialization, first: AssetMaterialization) -> list[str]:
    return [key for key, value in one.metadata.items() if first.metadata.get(key) != value]


@dataclass
class Outcome:
    """What a member made and checked, and the error it ended in.

    `stopped` is whether a check that blocks has failed.
    """

    made: dict[AssetKey, Made] = field(default_factory=dict)
    checks: dict[AssetCheckKey, AssetCheckResult] = field(default_factory=dict)
    events: list[AssetMaterialization | AssetObservation | ExpectationResult] = field(default_factory=list)
    error: BaseException | None = None
    stopped: bool = False


def run_member(
    context: OpExecutionContext,
    members: Members,
    member: Member,
    keys: Iterable[AssetKey],
    run: AtomicRun,
    *,
    checks: Collection[AssetCheckKey] | None = None,
) -> Outcome:
    """Run a member, and return what it did; an error is part of that, so that its checks are reported first.

    Args:
        context: The step of the group.
        members: The definitions in which it runs.
        member: The member.
        keys: Which of its assets to make.
        run: The atomic run.
        checks: Which of its checks to run. By default all.
    """
    outcome = Outcome()
    wanted = list(keys)
    with ephemeral_instance(context.instance, keep=not member.checks) as instance, inside(run):
        # Dagster passes the cursor on to the callback; this storage has none.
        def take(entry: EventLogEntry, _cursor: str) -> None:
            _take(entry, context, outcome, member)

        instance.watch_event_logs(context.run_id, None, take)
        job = members.definitions.resolve_job_def(_job_name(member))
        if checks is not None:
            job = job.get_subset(asset_selection=frozenset(), asset_check_selection=set(checks))
        arguments = _partition_arguments(context, member)
        if wanted and len(wanted) < len(member.keys):
            arguments["asset_selection"] = wanted
        try:
            job.execute_in_process(
                run_config=_run_config(context, member, run), instance=instance, run_id=context.run_id, **arguments
            )
        except DagsterAssetCheckFailedError:
            outcome.stopped = True
        except BaseException as exc:  # noqa: BLE001 - raised by the step, after the results of checks
            outcome.error = exc
        finally:
            instance.end_watch_event_logs(context.run_id, take)
            if instance.has_run(context.run_id):
                instance.delete_run(context.run_id)  # the next member runs under the same id
    return outcome


def _take(entry: EventLogEntry, context: OpExecutionContext, outcome: Outcome, member: Member) -> None:
    """Pass on what the member logs, and collect what it reports."""
    event = entry.dagster_event
    if event is None:
        context.log.log(int(entry.level), entry.user_message)
    elif event.event_type is DagsterEventType.ASSET_MATERIALIZATION:
        made = event.step_materialization_data.materialization
        if made.asset_key in member.keys:
            outcome.made.setdefault(made.asset_key, Made()).events.append(made)
        else:
            outcome.events.append(made)
    elif event.event_type is DagsterEventType.ASSET_OBSERVATION:
        outcome.events.append(event.asset_observation_data.asset_observation)
    elif event.event_type is DagsterEventType.STEP_EXPECTATION_RESULT:
        outcome.events.append(event.step_expectation_result_data.expectation_result)
    elif event.event_type is DagsterEventType.STEP_RESTARTED:
        outcome.made.clear()
        outcome.checks.clear()
    elif event.event_type is DagsterEventType.ASSET_CHECK_EVALUATION:
        found = event.asset_check_evaluation_data
        outcome.checks[found.asset_check_key] = AssetCheckResult(
            passed=found.passed,
            asset_key=found.asset_key,
            check_name=found.check_name,
            metadata=found.metadata,
            severity=found.severity,
            description=found.description,
        )


def _run_config(context: OpExecutionContext, member: Member, run: AtomicRun) -> dict[str, Any]:
    """The run config of the member, as it was given for its step."""
    config: dict[str, Any] = {"loggers": _QUIET}
    given = context.run.run_config
    if not isinstance(given, Mapping):
        return config
    if given.get("resources"):
        config["resources"] = given["resources"]
    ops: Any = given.get("ops") or {}
    own = ops.get(run.group, {}).get("ops", {}).get(member.name, {})
    if not own:
        return config
    names = {key.to_python_identifier(): member.definition.get_output_name_for_asset_key(key) for key in member.keys}
    wanted: dict[str, Any] = {}
    if "config" in own:
        is_graph = isinstance(member.definition.node_def, GraphDefinition)  # its steps are configured below it
        wanted |= own["config"] if is_graph else {"config": own["config"]}
    if "outputs" in own:
        wanted["outputs"] = {names.get(name, name): options for name, options in own["outputs"].items()}
    return {**config, "ops": {member.name: wanted}}


def _partition_arguments(context: OpExecutionContext, member: Member) -> dict[str, Any]:
    """The partitions of the step, for a member that has partitions, and the tags of the user."""
    tags = {key: value for key, value in context.run.tags.items() if not key.startswith("dagster/")}
    arguments: dict[str, Any] = {"tags": tags}
    if not member.keys:  # checks have no partitions themselves; those of Floe read these tags
        arguments["tags"] |= {key: context.run.tags[key] for key in (_PARTITION, *_RANGE) if key in context.run.tags}
    if member.partitions_def is None:
        return arguments
    ends = {key: context.run.tags[key] for key in _RANGE if key in context.run.tags}
    if ends:
        arguments["tags"] |= ends
    elif context.has_partition_key:
        arguments["partition_key"] = context.partition_key
    return arguments
