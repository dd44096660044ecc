"""The maintenance policy: floe.yaml's settings, overridden by those of a namespace, then by a table's properties."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator
from typing_extensions import Self

from floe_core.config.settings import Duration, Settings, Size, duration_text
from floe_core.errors import ConfigurationError
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.wording import value_problem

__all__ = [
    "PROPERTY_PREFIX",
    "CompactPolicy",
    "CompactionStrategy",
    "ExpirePolicy",
    "MaintenanceConfig",
    "MaintenancePolicy",
    "OrphanPolicy",
    "RetentionFloor",
    "policy_of",
]

# The prefix of table properties that override floe.yaml for one table: floe.maintenance.expire.older-than = 30d.
PROPERTY_PREFIX = "floe.maintenance."
# Iceberg's own properties for the same settings, in milliseconds and bytes.
_ICEBERG_PROPERTIES = {
    "history.expire.max-snapshot-age-ms": ("expire", "older_than"),
    "history.expire.min-snapshots-to-keep": ("expire", "keep_last"),
    "write.target-file-size-bytes": ("compact", "target_file_size"),
}

# A hundred years; a longer age means never.
_LONGEST_MS = 100 * 365 * 86_400_000
# The smallest and the largest number of each field of a cron schedule.
_CRON = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))

Part = TypeVar("Part", bound=BaseModel)


class CompactionStrategy(str, Enum):
    """The order of rows in compacted files: unchanged, sorted, or clustered by several columns (z-order)."""

    BIN_PACK = "binpack"
    SORT = "sort"
    Z_ORDER = "zorder"


def _check_positive(age: timedelta) -> timedelta:
    if age <= timedelta(0):
        raise ValueError("this must be greater than zero: otherwise all history would be deleted")
    return age


def _check_orphan_age(age: timedelta) -> timedelta:
    if age < timedelta(days=1):
        raise ValueError("this must be at least 1d: the files of a write that is still running look like orphans")
    return age


Age = Annotated[Duration, AfterValidator(_check_positive)]


class ExpirePolicy(Settings):
    older_than: Age = timedelta(days=7)
    keep_last: int = Field(default=10, ge=1, description="newest snapshots of each branch to keep, whatever their age")


class CompactPolicy(Settings):
    target_file_size: Size = 128 * 2**20
    strategy: CompactionStrategy = CompactionStrategy.BIN_PACK
    columns: tuple[str, ...] = Field(default=(), description="columns to sort by; by default the table's sort order")
    min_files: int = Field(default=5, ge=2, description="minimum number of small files to compact a partition")


class OrphanPolicy(Settings):
    older_than: Annotated[Duration, AfterValidator(_check_orphan_age)] = timedelta(days=3)


class MaintenancePolicy(Settings):
    """The maintenance of a table. As an override of another policy, only the keys that are set count."""

    enabled: bool = Field(default=True, description="false disables maintenance")
    expire: ExpirePolicy = ExpirePolicy()
    compact: CompactPolicy = CompactPolicy()
    orphans: OrphanPolicy = OrphanPolicy()
    statistics: bool = Field(default=False, description="count the distinct values of each column after a change")


class RetentionFloor(Settings):
    """Minimum retention of history; the strictest rule that applies to a table wins."""

    enterprise: Age = timedelta(days=1)
    domains: dict[str, Age] = Field(default_factory=dict, description="by namespace")
    products: dict[str, Age] = Field(default_factory=dict, description="by table")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name in self.domains:
            _check_identifier(Namespace.from_string, name)
        for name in self.products:
            _check_identifier(TableIdentifier.from_string, name)
        return self


class MaintenanceConfig(MaintenancePolicy):
    """Retention of history, sizes of files, and the schedule of maintenance."""

    schedule: str | None = Field(default=None, description="a cron schedule in Dagster, such as '0 3 * * *'; in UTC")
    retry_window: Duration = Field(
        default=timedelta(days=1),
        description="how long after its write a run may be retried; the retry finds the write by its snapshot",
    )
    longest_job: Duration = Field(
        default=timedelta(hours=12), description="how long a write may take; until its commit its files look orphaned"
    )
    branches: Age = Field(
        default=timedelta(days=14),
        description="how long a branch of the lake is kept after its last use; maintenance then discards it",
    )
    floor: RetentionFloor = RetentionFloor()
    namespaces: dict[str, MaintenancePolicy] = Field(default_factory=dict, description="overrides by namespace")

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in self.namespaces:
            _check_identifier(Namespace.from_string, name)
        if self.schedule is not None and not _is_cron(self.schedule):
            raise ValueError(
                "schedule: write it as five fields (minute, hour, day, month, weekday), such as '0 3 * * *' for 3 "
                "o'clock every night, or as @hourly, @daily, @weekly or @monthly"
            )
        problems = [*self._problems(self)]
        resolved = self.resolved()
        for name, policy in resolved.namespaces.items():
            problems += [f"namespaces.{name}.{problem}" for problem in self._problems(policy)]
        if self.enabled and self.expire.older_than < self.floor.enterprise:
            problems.append(
                f"floor.enterprise: it requires {duration_text(self.floor.enterprise)}, but expire.older_than is "
                f"{duration_text(self.expire.older_than)}"
            )
        for name, minimum in self.floor.domains.items():
            policy = resolved.of_namespace(Namespace.from_string(name).levels)
            if policy.enabled and policy.expire.older_than < minimum:
                problems.append(
                    f"floor.domains.{name}: it requires {duration_text(minimum)}, but the policy of {name} is "
                    f"{duration_text(policy.expire.older_than)}: set namespaces: {{{name}: {{expire: {{older_than: "
                    f"{duration_text(minimum)}}}}}}}"
                )
        if problems:
            raise ValueError("; ".join(dict.fromkeys(problems)))
        return self

    def _problems(self, policy: MaintenancePolicy) -> Iterator[str]:
        if not policy.enabled:
            return
        if policy.compact.strategy is CompactionStrategy.Z_ORDER and not policy.compact.columns:
            yield "compact.strategy: zorder needs columns: [a, b]"
        if policy.compact.strategy is CompactionStrategy.BIN_PACK and policy.compact.columns:
            yield "compact.columns: they are for strategy sort and zorder; binpack keeps the order of rows"
        if policy.expire.older_than < self.retry_window:
            yield (
                f"expire.older_than: {duration_text(policy.expire.older_than)} is shorter than the "
                f"{duration_text(self.retry_window)} (retry_window) in which a run may be retried: a retry would not "
                f"find its write, and would write twice. Keep history longer, or shorten retry_window"
            )
        if policy.orphans.older_than <= self.longest_job:
            yield (
                f"orphans.older_than: {duration_text(policy.orphans.older_than)} is not longer than the "
                f"{duration_text(self.longest_job)} (longest_job) that a write may take: its files would be deleted "
                f"while it runs. Set a longer age, or shorten longest_job"
            )

    def resolved(self) -> Self:
        """A copy with complete policies of namespaces: the general one, overridden by the parents, then by its own."""
        policies: dict[str, MaintenancePolicy] = {}
        for name in sorted(self.namespaces, key=lambda name: name.count(".")):
            parents = [str(parent) for parent in Namespace.from_string(name).lineage()[:-1]]
            base = next((policies[parent] for parent in reversed(parents) if parent in policies), self._general)
            policies[name] = _overridden(base, self.namespaces[name])
        return self.model_copy(update={"namespaces": {name: policies[name] for name in self.namespaces}})

    def of_namespace(self, levels: tuple[str, ...]) -> MaintenancePolicy:
        """The policy of the tables of a namespace; this configuration must be resolved."""
        lineage = [str(namespace) for namespace in Namespace(levels=levels).lineage()]
        return next((self.namespaces[name] for name in reversed(lineage) if name in self.namespaces), self._general)

    @property
    def _general(self) -> MaintenancePolicy:
        return MaintenancePolicy(**{name: getattr(self, name) for name in MaintenancePolicy.model_fields})

    def check(self, policy: MaintenancePolicy, whose: object) -> None:
        """Refuse a policy under which a retry would write twice, or the files of a running write would be deleted."""
        problems = list(self._problems(policy))
        if problems:
            raise ConfigurationError(f"the maintenance policy of '{whose}': {'; '.join(problems)}")


def policy_of(
    config: MaintenanceConfig, table: TableIdentifier, properties: Mapping[str, str], given: Mapping[str, str]
) -> MaintenancePolicy:
    """The policy of one table under a compiled contract.

    Args:
        properties: The table's properties; they override the policy of its namespace.
        given: Properties that Floe sets on every table; the same value on the table is not an override.
    """
    policy = config.of_namespace(table.namespace)
    standard = {
        key: value for key, value in properties.items() if key in _ICEBERG_PROPERTIES and given.get(key) != value
    }
    own = {key: value for key, value in properties.items() if key.startswith(PROPERTY_PREFIX)}
    if own.get(f"{PROPERTY_PREFIX}enabled", str(policy.enabled)).lower() == "false":
        return policy.model_copy(update={"enabled": False})  # the other properties are not validated
    if standard or own:
        try:
            policy = _overridden(policy, MaintenancePolicy.model_validate(_nested(standard, own)))
        except ValidationError as exc:
            problems = "; ".join(
                f"{'.'.join(str(part) for part in error['loc'])}: "
                + value_problem(error["type"], error["msg"], error.get("ctx"))
                for error in exc.errors(include_input=False, include_url=False)
            )
            raise ConfigurationError(
                f"properties of table '{table}' do not make a maintenance policy: {problems}. Correct "
                f"{', '.join([*own, *standard])}, or remove them"
            ) from None
    config.check(policy, table)
    return policy


def _nested(standard: Mapping[str, str], own: Mapping[str, str]) -> dict[str, Any]:
    """Iceberg's and Floe's properties as nested settings, as in floe.yaml."""
    settings: dict[str, Any] = {}
    for key, value in standard.items():
        part, name = _ICEBERG_PROPERTIES[key]
        if not value.strip().isdecimal():
            raise ConfigurationError(f"table property {key} is {value!r}; it must be a whole number")
        number = min(int(value), _LONGEST_MS) if name == "older_than" else int(value)
        settings.setdefault(part, {})[name] = timedelta(milliseconds=number) if name == "older_than" else number
    for key, value in own.items():
        path = [part.replace("-", "_") for part in key.removeprefix(PROPERTY_PREFIX).split(".")]
        if tuple(path) not in _PATHS:
            known = [".".join(known_path).replace("_", "-") for known_path in _PATHS]
            close = difflib.get_close_matches(key.removeprefix(PROPERTY_PREFIX), known, n=1)
            meant = f"; did you mean '{PROPERTY_PREFIX}{close[0]}'?" if close else ""
            raise ConfigurationError(f"unknown table property {key!r}{meant}")
        inner = settings
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = _value(path[-1], value)
    return settings


def _value(name: str, text: str) -> Any:
    if name == "columns":
        return [column.strip() for column in text.split(",")]
    return int(text) if name == "target_file_size" and text.strip().isdecimal() else text


def _paths(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _paths(kind, (*above, name))
        else:
            yield (*above, name)


_PATHS = tuple(_paths(MaintenancePolicy))


def _overridden(base: Part, override: Part) -> Part:
    """`base` with the keys that `override` sets; validated again, because the combination may be invalid."""
    settings = dict(base)
    for name in override.model_fields_set:
        value = getattr(override, name)
        settings[name] = _overridden(settings[name], value) if isinstance(value, BaseModel) else value
    if isinstance(override, CompactPolicy) and override.model_fields_set >= {"strategy"} and not override.columns:
        settings["columns"] = settings["columns"] if override.strategy is CompactionStrategy.SORT else ()
    return type(base).model_validate(settings)


def _is_cron(text: str) -> bool:
    fields = text.split()
    if len(fields) != len(_CRON):
        return text in ("@hourly", "@daily", "@weekly", "@monthly")
    return all(
        re.fullmatch(r"(\*|\w+(-\w+)?)(/\d+)?", part) is not None
        and all(low <= int(number) <= high for number in re.findall(r"\b\d+", part.partition("/")[0]))
        for field, (low, high) in zip(fields, _CRON, strict=True)
        for part in field.split(",")
    )


def _check_identifier(parse: Any, name: str) -> None:
    try:
        parse(name)
    except ConfigurationError as exc:
        raise ValueError(str(exc)) from None
