"""A group of assets as one graph of Dagster: a step for each asset and check, and one that publishes all tables.

Dagster records a materialization for every asset output as it is produced. In the graph only the publish step has such
outputs, so that Dagster's history and the tables change together.
"""

# No postponed annotations here: Dagster inspects those of the steps when they are defined.
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dagster import (
    AssetCheckKey,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    DagsterInvalidDefinitionError,
    DataVersion,
    DependencyDefinition,
    Field,
    GraphDefinition,
    In,
    InputMapping,
    Nothing,
    OpDefinition,
    OpExecutionContext,
    Out,
    Output,
    OutputMapping,
)

from floe_core.errors import ConcurrencyConflictError, ConfigurationError
from floe_dagster._dagster.names import step_of_op
from floe_dagster.assets.names import is_stored
from floe_dagster.atomic.execution import Member, Members, Outcome, run_member
from floe_dagster.atomic.publication import GroupSteps, publish, recorded
from floe_dagster.atomic.quarantine import moving_checks
from floe_dagster.atomic.time_limit import time_limit
from floe_dagster.runs.steps import runs_of_write
from floe_dagster.runs.transaction import AtomicRun, Published
from floe_iceberg.transactions import Isolation

__all__ = ["SCOPE", "AtomicGroup", "grouped", "is_stored_alone", "written_by"]

# The output of a step that only orders the steps; no key of an asset becomes this name.
_DONE = "floe__step__done"
# The metadata of a check of Floe: the rows that it looks at.
SCOPE = "floe/scope"
# The tag of a step, with the assets that it writes.
_WRITES = "floe/writes"


@dataclass(frozen=True)
class AtomicGroup:
    """Assets whose tables are published in one commit, when all of them and their checks have succeeded.

    Each step writes to a branch of the run, and later steps of the run read from there. If one fails, no reader of main
    sees a row of the run.

    Args:
        name: The name of the group; a name of a Python variable.
        assets: The assets, as functions with @asset or by their keys.
        isolation: `serializable` refuses to publish if a table that the run only read has moved since; `snapshot` logs
            a warning.
        early_columns: Let the run change the columns of a published table before the publication.
        check_timeout: Seconds after which a check fails. By default never.
        keep: The age at which expiry removes the branches of a run that was not published.
        one_by_one: On a catalog server that cannot commit several tables at once, commit them one after the other.
            Readers may see some of them before the others; after a failure they are completed or taken back.
        audit: For one asset. If main of its table has moved in other slices only, the run is put on top of that, its
            checks of the whole table run again, and it is published. What it read may have moved.

    Example:
        >>> from dagster import asset
        >>> from floe_dagster import AtomicGroup
        >>> @asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
        ... def orders() -> pa.Table:
        ...     return pa.table({"id": [1, 2, 3]})
        >>> AtomicGroup("nightly", [orders]).isolation
        'serializable'
    """

    name: str
    assets: Sequence[AssetsDefinition | AssetKey | str | Sequence[str]]
    isolation: Isolation = "serializable"
    early_columns: bool = False
    check_timeout: float | None = None
    keep: timedelta = timedelta(days=7)
    one_by_one: bool = False
    audit: bool = False

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ConfigurationError(f"atomic group {self.name!r}: use letters, digits and underscores")
        if self.isolation not in ("serializable", "snapshot"):
            raise ConfigurationError(
                f"atomic group {self.name}: isolation is {self.isolation!r}; it must be serializable or snapshot"
            )
        if self.check_timeout is not None and not self.check_timeout > 0:
            raise ConfigurationError(f"atomic group {self.name}: check_timeout must be a number of seconds above 0")
        if self.keep < timedelta(milliseconds=1):
            raise ConfigurationError(f"atomic group {self.name}: keep must be at least a millisecond")

    @property
    def keys(self) -> set[AssetKey]:
        """The assets."""
        keys: set[AssetKey] = set()
        for asset in self.assets:
            keys |= set(asset.keys) if isinstance(asset, AssetsDefinition) else {_key(asset)}
        return keys


def _key(asset: AssetKey | str | Sequence[str]) -> AssetKey:
    return AssetKey.from_user_string(asset) if isinstance(asset, str) else AssetKey(_path(asset))


def _path(asset: AssetKey | Sequence[str]) -> Sequence[str]:
    return asset.path if isinstance(asset, AssetKey) else list(asset)


def grouped(
    group: AtomicGroup, assets: Iterable[AssetsDefinition], checks: Iterable[AssetsDefinition], members: Members
) -> AssetsDefinition:
    """The group as one definition.

    Args:
        group: The group.
        assets: The definitions of its assets.
        checks: The definitions of checks of these assets.
        members: The definitions in which they run.
    """
    return _Graph(group, members, _ordered(map(_member, assets)), list(map(_member, checks))).definition()


def _member(definition: AssetsDefinition) -> Member:
    return Member(definition, tuple(definition.check_specs))


def written_by(definition: AssetsDefinition) -> dict[str, list[str]]:
    """The assets that each step of a group writes, by the key of the step; empty for other definitions."""
    graph = definition.node_def
    if not isinstance(graph, GraphDefinition):
        return {}
    return {
        f"{graph.name}.{node.name}": node.definition.tags[_WRITES].split(",")
        for node in graph.nodes
        if _WRITES in node.definition.tags
    }


def is_stored_alone(definition: AssetsDefinition, key: AssetKey) -> bool:
    """Whether an asset is stored in a table, and published by itself."""
    return is_stored(definition, key) and not written_by(definition)


def _ordered(members: Iterable[Member]) -> list[Member]:
    """Upstream first."""
    waiting, done, ordered = list(members), set[AssetKey](), list[Member]()
    inside = {key for member in waiting for key in member.keys}
    while waiting:
        ready = [one for one in waiting if (_parents(one) & inside) - done <= set(one.keys)]
        if not ready:
            names = ", ".join(sorted(key.to_user_string() for one in waiting for key in one.keys))
            raise ConfigurationError(f"these assets depend on each other in a circle: {names}")
        ordered += ready
        done |= {key for one in ready for key in one.keys}
        waiting = [one for one in waiting if one not in ready]
    return ordered


def _parents(member: Member) -> set[AssetKey]:
    specs: tuple[AssetSpec | AssetCheckSpec, ...] = (*member.definition.specs, *member.checks)
    parents = {dep.asset_key for spec in specs for dep in (spec.deps if isinstance(spec, AssetSpec) else ())}
    checked = {check.asset_key for check in member.checks} | {
        dep.asset_key for check in member.checks for dep in check.additional_deps
    }
    return parents | (checked - set(member.keys))


@dataclass(frozen=True)
class _Graph:
    """The steps of a group and their order."""

    group: AtomicGroup
    members: Members
    writers: list[Member]
    checks: list[Member]

    def definition(self) -> AssetsDefinition:
        steps = [self._step(member) for member in (*self.writers, *self.checks)]
        names = [step.name for step in steps]
        if self.group.name in names or self._publish in names:
            raise ConfigurationError(
                f"atomic group {self.group.name}: one of its assets has the name of the group or of its publish step, "
                f"{self._publish}; give the group another name"
            )
        graph = GraphDefinition(
            name=self.group.name,
            node_defs=[*steps, self._publish_step()],
            dependencies=self._dependencies(),
            input_mappings=self._input_mappings(),
            output_mappings=[
                *(_mapping(_name(key), self._publish, _name(key)) for key in self._keys()),
                *(_mapping(_check_name(check), member.name, _check_name(check)) for member, check in self._checks()),
            ],
        )
        try:
            return AssetsDefinition(
                node_def=graph,
                keys_by_input_name={_name(key): key for key in self._outside()},
                keys_by_output_name={_name(key): key for key in self._keys()},
                check_specs_by_output_name={_check_name(check): check for _, check in self._checks()},
                specs=[spec for member in self.writers for spec in member.definition.specs],
                can_subset=True,
                backfill_policy=self._backfill_policy(),
                resource_defs=self._resource_defs(),
            )
        except DagsterInvalidDefinitionError as exc:
            raise ConfigurationError(f"atomic group {self.group.name}: {' '.join(str(exc).split())}") from exc

    @property
    def _publish(self) -> str:
        """The name of the last step, which no other group of the project has."""
        return f"{self.group.name}_publish"

    # Steps

    def _step(self, member: Member) -> OpDefinition:
        """The step of a member: it runs the member on the branch of the run."""
        is_check = member not in self.writers
        limit = self.group.check_timeout if is_check else None

        def step(context: OpExecutionContext, _inputs: Any) -> Iterator[Any]:
            keys = [key for key in member.keys if key in context.assets_def.keys]
            checked = {check.key for check in member.checks} & set(context.assets_def.check_keys)
            outcome = Outcome()
            stops = is_check and any(
                check.blocking and check.asset_key in context.assets_def.keys for check in member.checks
            )  # also a check that the selection leaves out
            if (keys or (is_check and checked) or stops) and not self._lacks_a_parent(context, member):
                with time_limit(limit, f"check {member.name}"):
                    outcome = run_member(context, self.members, member, keys, self._run(context))
                yield from _reported(outcome, checked)
            selected = context.selected_output_names
            for key in member.keys:  # also of assets that are not made, because the publish step waits for all
                if _name(key) in selected:
                    made = outcome.made.get(key)
                    yield Output(None, _name(key), metadata=made.metadata if made is not None else None)
            if _DONE in selected:
                yield Output(None, _DONE)

        keys = member.keys
        outs = {_name(key): Out(Nothing) for key in keys}
        outs |= {_check_name(check): Out(Nothing, is_required=False) for check in member.checks}
        node = member.definition.node_def
        return OpDefinition(
            compute_fn=step,
            name=member.name,
            description=node.description,
            ins={name: In(Nothing) for name in (*self._before(member), *map(_name, self._outside_of(member)))},
            outs={**outs, _DONE: Out(Nothing)},
            config_schema=node.config_schema if isinstance(node, OpDefinition) else Field(dict, default_value={}),
            tags={**node.tags, **({_WRITES: ",".join(key.to_user_string() for key in keys)} if keys else {})},
            pool=node.pool if isinstance(node, OpDefinition) else None,
        )

    def _publish_step(self) -> OpDefinition:
        managers = {key: self._manager_key(key) for key in self._keys()}

        def step(context: OpExecutionContext, _inputs: Any) -> Iterator[Output[Any]]:
            wanted = [key for key in managers if key in context.assets_def.keys]
            members = [f"{self.group.name}.{member.name}" for member in (*self.writers, *self.checks)]
            steps = GroupSteps(wanted, members, _name, lambda everything: self._check_again(context, everything))
            for key, one in publish(context, self.group, managers, steps):
                for partition, metadata in one.partitions.items():
                    step_of_op(context).add_asset_metadata(metadata, asset_key=key, partition_key=partition)
                version = DataVersion(one.data_version) if one.data_version is not None else None
                yield Output(Published(one.metadata), _name(key), data_version=version, tags=one.tags or None)

        return OpDefinition(
            compute_fn=step,
            name=self._publish,
            description="Publishes the tables of all assets of the group in one commit.",
            ins={name: In(Nothing) for name in self._before_publication()},
            outs={_name(key): Out(io_manager_key=manager, is_required=False) for key, manager in managers.items()},
            required_resource_keys=set(managers.values()),
        )

    def _check_again(self, context: OpExecutionContext, everything: bool) -> None:
        """Run checks again, because main has moved: all, or those that do not look at the slice of the run alone."""
        for member in self.checks:
            keys = {check.key for check in member.checks if everything or check.metadata.get(SCOPE) != "slice"}
            if keys:
                outcome = run_member(context, self.members, member, (), self._run(context), checks=keys)
                _refuse_failed(context, outcome, {check.key for check in member.checks if check.blocking})

    def _lacks_a_parent(self, context: OpExecutionContext, member: Member) -> bool:
        """Was an asset that this one reads to be made by the run, and was not? It is not made either then."""
        parents = [key for one in self._before(member).values() for key in one.keys]
        expected = [key for key in parents if key in _parents(member) and key in context.assets_def.keys]
        if not expected:
            return False
        steps = [f"{self.group.name}.{one.name}" for one in self.writers]
        runs = runs_of_write(step_of_op(context))
        made = recorded(context.instance, runs, steps, {_name(key): key for key in expected})
        missing = [key.to_user_string() for key in expected if key not in made]
        if missing:
            context.log.info(f"skipped, because {', '.join(missing)} was not made")
        return bool(missing)

    def _run(self, context: OpExecutionContext) -> AtomicRun:
        step, made = step_of_op(context), set(context.assets_def.keys)
        moving = moving_checks(check for member in self.checks for check in member.checks)
        return AtomicRun(
            group=self.group.name,
            run_id=runs_of_write(step)[-1],
            attempt=step.previous_attempt_count,
            tables=len(made) + len(made & moving.keys()),
            early_columns=self.group.early_columns,
            keep=self.group.keep,
            one_by_one=self.group.one_by_one,
            quarantine=moving,
        )

    # Order

    def _before(self, member: Member) -> dict[str, Member]:
        """The steps before this one: those of the assets that it reads, and their blocking checks."""
        parents = _parents(member)
        writers = [one for one in self.writers if one is not member and parents & set(one.keys)]
        blocking = [
            one
            for one in self.checks
            if member in self.writers
            and any(check.blocking and check.asset_key in parents - set(member.keys) for check in one.checks)
        ]
        return {_after(one): one for one in (*writers, *blocking)}

    def _dependencies(self) -> dict[str, dict[str, DependencyDefinition]]:
        order = {
            member.name: {name: DependencyDefinition(one.name, _DONE) for name, one in self._before(member).items()}
            for member in (*self.writers, *self.checks)
        }
        order[self._publish] = self._before_publication()
        return order

    def _before_publication(self) -> dict[str, DependencyDefinition]:
        """All steps, and what they record of each asset."""
        steps = {_after(one): DependencyDefinition(one.name, _DONE) for one in (*self.writers, *self.checks)}
        records = {
            f"written_{_name(key)}": DependencyDefinition(one.name, _name(key))
            for one in self.writers
            for key in one.keys
        }
        return {**steps, **records}

    def _outside_of(self, member: Member) -> list[AssetKey]:
        """The assets outside of the group that a member reads."""
        return sorted(_parents(member) - set(self._keys()))

    def _outside(self) -> list[AssetKey]:
        return sorted({key for member in (*self.writers, *self.checks) for key in self._outside_of(member)})

    def _input_mappings(self) -> list[InputMapping]:
        return [
            InputMapping(graph_input_name=_name(key), mapped_node_name=member.name, mapped_node_input_name=_name(key))
            for member in (*self.writers, *self.checks)
            for key in self._outside_of(member)
        ]

    # What the group is made of

    def _keys(self) -> list[AssetKey]:
        """The assets of the group, upstream first, as Dagster wants their outputs."""
        return [key for member in self.writers for key in member.keys]

    def _checks(self) -> list[tuple[Member, AssetCheckSpec]]:
        return [(member, check) for member in (*self.writers, *self.checks) for check in member.checks]

    def _manager_key(self, key: AssetKey) -> str:
        definition = next(member.definition for member in self.writers if key in member.keys)
        return str(definition.get_io_manager_key_for_asset_key(key))

    def _backfill_policy(self) -> BackfillPolicy | None:
        """All partitions in one run if every partitioned asset takes them."""
        partitioned = [member.definition for member in self.writers if member.partitions_def is not None]
        policies = [definition.backfill_policy for definition in partitioned]
        single = all(policy is not None and policy.max_partitions_per_run is None for policy in policies)
        return BackfillPolicy.single_run() if policies and single else None

    def _resource_defs(self) -> Mapping[str, Any]:
        """The resources of the assets' own; two of them must not mean different things by one key."""
        merged: dict[str, Any] = {}
        for member in self.writers:
            for key, resource in member.definition.resource_defs.items():
                if key in self.members.resources:  # Dagster has given it to the definition
                    continue
                if merged.setdefault(key, resource) is not resource:
                    raise ConfigurationError(
                        f"atomic group {self.group.name}: its assets bring two resources {key!r}; give them the "
                        f"resources of the project instead"
                    )
        return merged


def _reported(outcome: Outcome, checked: set[Any]) -> Iterator[Any]:
    """The results of the checks, then the error if there was one; a check without a result is one too."""
    yield from outcome.events
    for key, result in outcome.checks.items():
        if key in checked:
            yield result
    if outcome.error is not None:
        raise outcome.error
    if outcome.stopped and not any(key in checked and not one.passed for key, one in outcome.checks.items()):
        raise ConfigurationError("a check that blocks has failed, which this run does not record; nothing is published")
    missing = checked - outcome.checks.keys()
    if missing:
        names = ", ".join(sorted(f"{key.name} of {key.asset_key.to_user_string()}" for key in missing))
        raise ConfigurationError(
            f"check {names} returned no AssetCheckResult, so whether it passed is unknown and nothing is published"
        )


def _refuse_failed(context: OpExecutionContext, outcome: Outcome, blocking: set[AssetCheckKey]) -> None:
    """Refuse to publish after checks that were run again; Dagster has recorded what they found the first time."""
    if outcome.error is not None:
        raise outcome.error
    for key, result in outcome.checks.items():
        if not result.passed:
            name = f"{key.name} of {key.asset_key.to_user_string()}"
            context.log.warning(f"check {name} does not pass on top of the commits of others: {result.description}")
    failed = [
        f"{key.name} of {key.asset_key.to_user_string()}: {result.description or 'did not pass'}"
        for key, result in outcome.checks.items()
        if key in blocking and not result.passed and result.severity is AssetCheckSeverity.ERROR
    ]
    if failed:
        raise ConcurrencyConflictError(
            f"on top of what other writers have committed since, a check fails: {'; '.join(failed)}. Nothing was "
            f"published: run it again"
        )


def _after(member: Member) -> str:
    return f"after_{member.name}"


def _name(key: AssetKey) -> str:
    return str(key.to_python_identifier())


def _check_name(check: AssetCheckSpec) -> str:
    return f"check_{check.get_python_identifier()}"


def _mapping(name: str, node: str, output: str) -> OutputMapping:
    return OutputMapping(graph_output_name=name, mapped_node_name=node, mapped_node_output_name=output)
