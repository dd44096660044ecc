"""Which assets of a project are published together, and the definitions with these groups in their place."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagster import AssetChecksDefinition, AssetKey, AssetsDefinition
from pyiceberg.table.refs import MAIN_BRANCH

from floe_core.config import PUBLISH_VARIABLE, Publish
from floe_core.errors import ConfigurationError
from floe_dagster._dagster.names import AssetGraph
from floe_dagster.atomic.execution import Member, Members, job_of
from floe_dagster.atomic.groups import AtomicGroup, grouped

__all__ = ["groups_of", "with_groups"]

_DEFAULT = "atomic_run"


def groups_of(
    atomic: Iterable[AtomicGroup | AssetsDefinition],
    stored: Mapping[AssetKey, str],
    *,
    publish: Publish,
    audited: Collection[AssetKey] = (),
    checks: Iterable[Any] = (),
) -> list[AtomicGroup]:
    """The groups that are asked for; if runs are published as a whole, all other assets on main are one group.

    Args:
        atomic: What the project asks for.
        stored: The assets that are stored in tables, with the branch of each.
        publish: When the tables of a run become visible; FLOE_PUBLISH has the last word.
        audited: The assets that are published when their checks have passed; alone, if not with others.
        checks: The checks of the project.
    """
    given = list(atomic)
    groups = [one for one in given if isinstance(one, AtomicGroup)]
    plain = [one for one in given if not isinstance(one, AtomicGroup)]
    if plain:
        groups.append(AtomicGroup(_DEFAULT, plain))
    _refuse(groups, stored)
    audits = {key for group in groups if group.audit for key in group.keys} | set(audited)
    _refuse_unchecked(audits, stored, checks)
    when = os.environ.get(PUBLISH_VARIABLE) or publish
    if when == "one-by-one":
        groups = [replace(group, one_by_one=True) for group in groups]
    if when != "asset":
        taken = {key for group in groups for key in group.keys}
        rest = [key for key, branch in stored.items() if key not in taken and branch == MAIN_BRANCH]
        names = {group.name for group in groups}
        if rest:
            name = next(name for name in (_DEFAULT, *(f"{_DEFAULT}_{n}" for n in range(2, 99))) if name not in names)
            groups.append(AtomicGroup(name, rest, one_by_one=when == "one-by-one"))
    else:
        taken = {key for group in groups for key in group.keys}
        alone = [key for key in audited if key not in taken]
        groups += [AtomicGroup(f"audited_{key.to_python_identifier()}", [key], audit=True) for key in alone]
    return groups


def _refuse_unchecked(audited: Collection[AssetKey], stored: Mapping[AssetKey, str], checks: Iterable[Any]) -> None:
    """Refuse an audit without a check that could stop the publication, or without a publication."""
    checked = {
        check.asset_key
        for definition in checks
        if isinstance(definition, AssetsDefinition)
        for check in definition.check_specs
        if check.blocking
    }
    for key in audited:
        branch = stored.get(key)
        if branch != MAIN_BRANCH:
            where = "is not stored in a table" if branch is None else f"is written to branch {branch!r}"
            raise ConfigurationError(
                f"asset {key.to_user_string()} has floe/audit, or a check with quarantine, and {where}, so there is "
                f"nothing to publish on main; leave one of them out"
            )
        if key not in checked:
            raise ConfigurationError(
                f"asset {key.to_user_string()} has floe/audit, and no check of it is blocking, so nothing could stop "
                f"its publication; give it one: checks.of(…, blocking=True), or blocking: true in floe.yaml"
            )


def _refuse(groups: Sequence[AtomicGroup], stored: Mapping[AssetKey, str]) -> None:
    """Refuse groups that Floe cannot publish together."""
    names = [group.name for group in groups]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two atomic groups are called {name}; give each a name of its own")
    taken: dict[AssetKey, str] = {}
    for group in groups:
        if not group.keys:
            raise ConfigurationError(f"atomic group {group.name} has no assets")
        if group.audit and len(group.keys) > 1:
            raise ConfigurationError(
                f"atomic group {group.name}: an audit publishes one asset, and this has {len(group.keys)}; leave out "
                f"audit to publish them together, or give each asset floe/audit"
            )
        for key in sorted(group.keys):
            name = key.to_user_string()
            if taken.setdefault(key, group.name) != group.name:
                raise ConfigurationError(f"asset {name} is in two atomic groups, {taken[key]} and {group.name}")
            if key not in stored:
                raise ConfigurationError(
                    f"atomic group {group.name}: asset {name} is not among the assets, or is not stored by an "
                    f"IcebergIOManager, so it cannot be published with the others"
                )
            if stored[key] != MAIN_BRANCH:
                raise ConfigurationError(
                    f"atomic group {group.name}: asset {name} is written to branch {stored[key]!r}, and a group is "
                    f"published to main; leave one of them out"
                )


def with_groups(
    groups: Sequence[AtomicGroup], assets: Sequence[Any], checks: Sequence[Any], resources: Mapping[str, Any]
) -> tuple[list[Any], list[Any]]:
    """The assets and checks of a project with its groups: a group takes the place of its assets and their checks."""
    of_group = {key: group for group in groups for key in group.keys}
    steps = [one for one in (*assets, *checks) if _group_of(one, of_group) is not None]
    members = Members(assets, checks, resources, [job_of(Member(one, tuple(one.check_specs))) for one in steps])
    graph = members.definitions.resolve_asset_graph()
    resolved = {_identity(one): one for one in graph.assets_defs}
    for one in groups:
        _refuse_detours(one, graph)
    inside: dict[str, list[AssetsDefinition]] = {group.name: [] for group in groups}
    checked: dict[str, list[AssetsDefinition]] = {group.name: [] for group in groups}
    rest: list[list[Any]] = [[], []]
    for kind, definitions in enumerate((assets, checks)):
        for given in definitions:
            definition = resolved.get(_identity(given), given)
            group = _group_of(definition, of_group)
            if group is None:
                rest[kind].append(given)  # the definition has the resources of the project already
            elif isinstance(definition, AssetChecksDefinition):
                checked[group.name].append(definition)
            else:
                inside[group.name].append(definition)
    made = [grouped(group, inside[group.name], checked[group.name], members) for group in groups]
    return [*rest[0], *made], rest[1]


def _refuse_detours(group: AtomicGroup, graph: AssetGraph) -> None:
    """Refuse an asset outside of the group that lies between two of its assets: it can run neither before nor after."""
    after: dict[AssetKey, AssetKey] = {}  # assets outside that are downstream of the group, and how they are reached
    waiting = [key for key in group.keys if graph.has(key)]
    while waiting:
        key = waiting.pop()
        for child in graph.get(key).child_keys:
            if child in group.keys:
                if key not in group.keys:
                    raise ConfigurationError(
                        f"atomic group {group.name}: {key.to_user_string()} is downstream of "
                        f"{after[key].to_user_string()} and upstream of {child.to_user_string()}, and is not stored in "
                        f"a table or not in the group; change what depends on it, or run the others as a group of "
                        f"their own"
                    )
            elif child not in after:
                after[child] = key
                waiting.append(child)


def _identity(definition: Any) -> Any:
    if not isinstance(definition, AssetsDefinition):
        return None
    return frozenset(definition.keys), frozenset(definition.check_keys)


def _group_of(definition: Any, of_group: Mapping[AssetKey, AtomicGroup]) -> AtomicGroup | None:
    """The group of a definition; refused if only a part of it belongs to one."""
    if not isinstance(definition, AssetsDefinition):
        return None
    found = {of_group[key].name if key in of_group else None for key in _keys(definition)}
    if len(found) > 1 and _is_check_afterwards(definition):
        return None
    if len(found) > 1:
        names = ", ".join(key.to_user_string() for key in _keys(definition))
        raise ConfigurationError(
            f"{names} are made or checked by one function, so all of them must be stored in tables and in the same "
            f"atomic group; make them by functions of their own"
        )
    (name,) = found or {None}
    return None if name is None else next(group for group in of_group.values() if group.name == name)


def _is_check_afterwards(definition: AssetsDefinition) -> bool:
    """Are these checks that block nothing, so that they can run after the publication?"""
    is_check = isinstance(definition, AssetChecksDefinition)
    return is_check and not any(check.blocking for check in definition.check_specs)


def _keys(definition: AssetsDefinition) -> Iterator[AssetKey]:
    if isinstance(definition, AssetChecksDefinition):
        yield from dict.fromkeys(check.asset_key for check in definition.check_specs)
    else:
        yield from definition.keys
