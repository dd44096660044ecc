"""The maintenance policy: what floe.yaml says, what a namespace says over it, and what a table says over both."""

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

# Table properties that say for one table what floe.yaml says for all: floe.maintenance.expire.older-than = 30d.
PROPERTY_PREFIX = "floe.maintenance."
# Iceberg's own words for the same; milliseconds and bytes.
_ICEBERGS = {
    "history.expire.max-snapshot-age-ms": ("expire", "older_than"),
    "history.expire.min-snapshots-to-keep": ("expire", "keep_last"),
    "write.target-file-size-bytes": ("compact", "target_file_size"),
}

# A hundred years: more is a way to say never.
_LONGEST_MS = 100 * 365 * 86_400_000
# The least and the largest number of each field of a cron schedule.
_CRON = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))

Part = TypeVar("Part", bound=BaseModel)


class CompactionStrategy(str, Enum):
    """How rows are laid into the new files: as they come, sorted, or near each other in several columns at once."""

    BIN_PACK = "binpack"
    SORT = "sort"
    Z_ORDER = "zorder"


def _check_positive(age: timedelta) -> timedelta:
    if age <= timedelta(0):
        raise ValueError("this must be longer than nothing: everything but the present would be deleted")
    return age


def _check_orphan_age(age: timedelta) -> timedelta:
    if age < timedelta(days=1):
        raise ValueError("this must be at least 1d: the files of a write that is still running look like orphans")
    return age


Age = Annotated[Duration, AfterValidator(_check_positive)]


class ExpirePolicy(Settings):
    older_than: Age = timedelta(days=7)
    keep_last: int = Field(default=10, ge=1, description="snapshots of each branch that stay however old they are")


class CompactPolicy(Settings):
    target_file_size: Size = 128 * 2**20
    strategy: CompactionStrategy = CompactionStrategy.BIN_PACK
    columns: tuple[str, ...] = Field(default=(), description="to sort by; without them, the table's own sort order")
    min_files: int = Field(default=5, ge=2, description="as many small files in a partition are worth the work")


class OrphanPolicy(Settings):
    older_than: Annotated[Duration, AfterValidator(_check_orphan_age)] = timedelta(days=3)


class MaintenancePolicy(Settings):
    """What is done to a table. Where it is laid over another one, only what it says counts."""

    enabled: bool = Field(default=True, description="false leaves the tables alone")
    expire: ExpirePolicy = ExpirePolicy()
    compact: CompactPolicy = CompactPolicy()
    orphans: OrphanPolicy = OrphanPolicy()
    statistics: bool = Field(default=False, description="count distinct values after a table changed")


class RetentionFloor(Settings):
    """How short history may be kept at least; the longest that applies to a table holds."""

    enterprise: Age = timedelta(days=1)
    domains: dict[str, Age] = Field(default_factory=dict, description="by namespace")
    products: dict[str, Age] = Field(default_factory=dict, description="by table")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name in self.domains:
            _known(Namespace.from_string, name)
        for name in self.products:
            _known(TableIdentifier.from_string, name)
        return self


class MaintenanceConfig(MaintenancePolicy):
    """How long history is kept, how large files should be, and when it is seen to."""

    schedule: str | None = Field(default=None, description="a cron schedule in Dagster, such as '0 3 * * *'; in UTC")
    retry_window: Duration = Field(
        default=timedelta(days=1),
        description="how long after its write a run may be retried; it finds it by its snapshot",
    )
    longest_job: Duration = Field(
        default=timedelta(hours=12), description="how long a write may take; its files are nobody's until it ends"
    )
    floor: RetentionFloor = RetentionFloor()
    namespaces: dict[str, MaintenancePolicy] = Field(default_factory=dict, description="over what is said above")

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in self.namespaces:
            _known(Namespace.from_string, name)
        if self.schedule is not None and not _is_cron(self.schedule):
            raise ValueError(
                "schedule: write it as five fields (minute, hour, day, month, weekday), such as '0 3 * * *' for 3 "
                "o'clock every night, or as @hourly, @daily, @weekly or @monthly"
            )
        problems = [*self._problems(self)]
        whole = self.resolved()
        for name, policy in whole.namespaces.items():
            problems += [f"namespaces.{name}.{problem}" for problem in self._problems(policy)]
        if self.enabled and self.expire.older_than < self.floor.enterprise:
            problems.append(
                f"floor.enterprise: it demands {duration_text(self.floor.enterprise)}, and expire.older_than is "
                f"{duration_text(self.expire.older_than)}"
            )
        for name, least in self.floor.domains.items():
            policy = whole.of_namespace(Namespace.from_string(name).levels)
            if policy.enabled and policy.expire.older_than < least:
                problems.append(
                    f"floor.domains.{name}: it demands {duration_text(least)}, and the policy of {name} is "
                    f"{duration_text(policy.expire.older_than)}: say namespaces: {{{name}: {{expire: {{older_than: "
                    f"{duration_text(least)}}}}}}}"
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
                f"{duration_text(self.retry_window)} (retry_window) in which a run may be retried: its write would be "
                f"forgotten, and done twice. Keep history longer, or shorten retry_window"
            )
        if policy.orphans.older_than <= self.longest_job:
            yield (
                f"orphans.older_than: {duration_text(policy.orphans.older_than)} is not longer than the "
                f"{duration_text(self.longest_job)} (longest_job) that a write may take: its files would be deleted "
                f"under it. Wait longer, or shorten longest_job"
            )

    def resolved(self) -> Self:
        """The same, each namespace with its whole policy: its parents' over the general one, its own over theirs."""
        whole: dict[str, MaintenancePolicy] = {}
        for name in sorted(self.namespaces, key=lambda one: one.count(".")):
            parents = [str(one) for one in Namespace.from_string(name).lineage()[:-1]]
            below = next((whole[one] for one in reversed(parents) if one in whole), self._general)
            whole[name] = _over(below, self.namespaces[name])
        return self.model_copy(update={"namespaces": {name: whole[name] for name in self.namespaces}})

    def of_namespace(self, levels: tuple[str, ...]) -> MaintenancePolicy:
        """What holds for the tables of a namespace, given that this is resolved."""
        lineage = [str(one) for one in Namespace(levels=levels).lineage()]
        return next((self.namespaces[one] for one in reversed(lineage) if one in self.namespaces), self._general)

    @property
    def _general(self) -> MaintenancePolicy:
        return MaintenancePolicy(**{name: getattr(self, name) for name in MaintenancePolicy.model_fields})

    def check(self, policy: MaintenancePolicy, whose: object) -> None:
        """Refuse what would make a run be done twice, or delete files under a write."""
        problems = list(self._problems(policy))
        if problems:
            raise ConfigurationError(f"the maintenance policy of '{whose}': {'; '.join(problems)}")


def policy_of(
    config: MaintenanceConfig, table: TableIdentifier, properties: Mapping[str, str], given: Mapping[str, str]
) -> MaintenancePolicy:
    """The policy of one table, by a contract that was compiled.

    Args:
        properties: Of the table. What they say holds over its namespace.
        given: Properties that Floe gives to every table: where a table has just these, nobody meant anything by it.
    """
    policy = config.of_namespace(table.namespace)
    said = {key: value for key, value in properties.items() if key in _ICEBERGS and given.get(key) != value}
    own = {key: value for key, value in properties.items() if key.startswith(PROPERTY_PREFIX)}
    if own.get(f"{PROPERTY_PREFIX}enabled", str(policy.enabled)).lower() == "false":
        return policy.model_copy(update={"enabled": False})  # whatever else is said is not asked for
    if said or own:
        try:
            policy = _over(policy, MaintenancePolicy.model_validate(_nested(said, own)))
        except ValidationError as exc:
            problems = "; ".join(
                f"{'.'.join(str(part) for part in error['loc'])}: "
                + value_problem(error["type"], error["msg"], error.get("ctx"))
                for error in exc.errors(include_input=False, include_url=False)
            )
            raise ConfigurationError(
                f"properties of table '{table}' do not make a maintenance policy: {problems}. Correct "
                f"{', '.join([*own, *said])}, or remove them"
            ) from None
    config.check(policy, table)
    return policy


def _nested(icebergs: Mapping[str, str], own: Mapping[str, str]) -> dict[str, Any]:
    """What properties say, as floe.yaml would write it."""
    said: dict[str, Any] = {}
    for key, value in icebergs.items():
        part, name = _ICEBERGS[key]
        if not value.strip().isdecimal():
            raise ConfigurationError(f"table property {key} is {value!r}; it must be a whole number")
        number = min(int(value), _LONGEST_MS) if name == "older_than" else int(value)
        said.setdefault(part, {})[name] = timedelta(milliseconds=number) if name == "older_than" else number
    for key, value in own.items():
        path = [part.replace("-", "_") for part in key.removeprefix(PROPERTY_PREFIX).split(".")]
        if tuple(path) not in _PATHS:
            known = [".".join(one).replace("_", "-") for one in _PATHS]
            close = difflib.get_close_matches(key.removeprefix(PROPERTY_PREFIX), known, n=1)
            meant = f"; did you mean '{PROPERTY_PREFIX}{close[0]}'?" if close else ""
            raise ConfigurationError(f"table property {key!r} means nothing to Floe{meant}")
        inner = said
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = _value(path[-1], value)
    return said


def _value(name: str, said: str) -> Any:
    if name == "columns":
        return [one.strip() for one in said.split(",")]
    return int(said) if name == "target_file_size" and said.strip().isdecimal() else said


def _paths(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _paths(kind, (*above, name))
        else:
            yield (*above, name)


_PATHS = tuple(_paths(MaintenancePolicy))


def _over(below: Part, above: Part) -> Part:
    """`below` with what `above` says laid over it; checked anew, because two halves may contradict each other."""
    said = dict(below)
    for name in above.model_fields_set:
        value = getattr(above, name)
        said[name] = _over(said[name], value) if isinstance(value, BaseModel) else value
    if isinstance(above, CompactPolicy) and above.model_fields_set >= {"strategy"} and not above.columns:
        said["columns"] = said["columns"] if above.strategy is CompactionStrategy.SORT else ()
    return type(below).model_validate(said)


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


def _known(parse: Any, name: str) -> None:
    try:
        parse(name)
    except ConfigurationError as exc:
        raise ValueError(str(exc)) from None
