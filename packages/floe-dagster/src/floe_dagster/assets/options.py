"""The options that an asset, an input and a run can set for a table, and their validation.

Every option is a metadata key `floe/NAME`; the most common ones work without the prefix as well.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Annotated, Any, TypeVar

from dagster import Config, MetadataValue
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pyiceberg.table.refs import MAIN_BRANCH

from floe_core.errors import ConfigurationError
from floe_core.models import CommitStrategy, WriteMode
from floe_core.wording import value_problem
from floe_dagster.assets.arguments import KnownArguments, nearest
from floe_dagster.assets.dagster_iceberg import PEER_INPUT, PEER_OUTPUT, PEER_RUN, peer_option

__all__ = [
    "InputOptions",
    "OutputOptions",
    "RunOptions",
    "input_options",
    "mistyped_options",
    "output_options",
    "refuse_no_keys",
    "refuse_tags",
]

PREFIX = "floe/"


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _with_zone(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("it needs a time zone, such as 2026-01-31T00:00:00+00:00")
    return moment.astimezone(timezone.utc)


Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
PartitionExpr = str | dict[str, str]


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Place(_Options):
    """Where the rows of an asset are stored."""

    namespace: str | None = Field(
        default=None, min_length=1, description="the namespace of the table, such as bronze or bronze.raw"
    )
    table: str | None = Field(
        default=None, min_length=1, description="the name of the table; by default the asset key says it"
    )
    partition_expr: PartitionExpr | None = Field(
        default=None, description="the column of the partition, or a mapping from dimensions to columns"
    )
    branch: str | None = Field(default=None, min_length=1, description="a branch of the table, made before")


class OutputOptions(_Place):
    """The options in the metadata of an asset."""

    write_mode: WriteMode | None = Field(default=None, description="append, overwrite or upsert")
    upsert_keys: Names = Field(default=(), description="the columns by which an upsert finds the rows it changes")
    table_properties: dict[str, str] = Field(default_factory=dict, description="for a table that is not there yet")
    schema_evolution_enabled: bool | None = Field(default=None, description="let the table gain the data's columns")
    evolve_partitions: bool | None = Field(
        default=None, description="give a table that exists the partitioning of the asset"
    )
    commit_strategy: CommitStrategy | None = Field(default=None, description="fast_append or merge")
    allow_empty: bool | None = Field(default=None, description="let no rows replace all rows of a table")
    preview_rows: int | None = Field(default=None, ge=0, le=100, description="rows shown in the UI; 0 for none")
    sensitive_columns: Names = Field(default=(), description="columns that are never shown")
    take_over: bool | None = Field(default=None, description="write to a table that belongs to another asset")
    audit: bool = Field(default=False, description="publish what was written when the blocking checks have passed")
    early_columns: bool | None = Field(
        default=None, description="let an atomic run change the columns of a table before it is published"
    )


class InputOptions(_Place):
    """The options in the metadata of an input."""

    columns: Names | None = Field(default=None, description="only these columns")
    row_filter: str | None = Field(default=None, description="only rows that match, such as: n > 10 AND note = 'x'")
    snapshot_id: int | None = Field(default=None, description="the table as it was at this snapshot")
    as_of: Annotated[datetime, AfterValidator(_with_zone)] | None = Field(
        default=None, description="the table as it was at this moment"
    )
    ref: str | None = Field(default=None, description="the table as a tag or a branch shows it")
    since: bool = Field(default=False, description="only what was appended after what this asset consumed last")

    @property
    def is_now(self) -> bool:
        """Whether the current state of the table is read (no time travel)."""
        return self.snapshot_id is None and self.as_of is None and self.ref is None

    @property
    def is_of_main(self) -> bool:
        """Whether the current state of main is read."""
        return self.snapshot_id is None and self.as_of is None and self.ref in (None, MAIN_BRANCH)


class RunOptions(KnownArguments, Config):
    """The options of an output in the run config, which override all others.

    ops: {ASSET: {outputs: {result: {write_mode: overwrite}}}}
    """

    write_mode: str | None = None
    upsert_keys: list[str] | None = None
    branch: str | None = None
    table_properties: dict[str, str] | None = None
    schema_evolution_enabled: bool | None = None
    evolve_partitions: bool | None = None
    commit_strategy: str | None = None
    allow_empty: bool | None = None
    preview_rows: int | None = None
    take_over: bool | None = None
    early_columns: bool | None = None


# Dagster's own keys, and those so common that the prefix would be noise. The other names have meanings outside of Floe
# too: a `branch` may be that of a bank.
_BARE_OUTPUT = {"partition_expr", "write_mode", "upsert_keys", "allow_empty"}
_BARE_INPUT = {"partition_expr", "columns", "row_filter", "snapshot_id", "as_of", "ref", "since"}

_MISTYPED = 0.85  # as similar are an option and a name that was meant to be it

Options = TypeVar("Options", bound=_Options)


def mistyped_options(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The keys of an asset's metadata that look like an option without being one, each with that option."""
    near = {
        key: difflib.get_close_matches(key, _BARE_OUTPUT, n=1, cutoff=_MISTYPED)
        for key in metadata
        if key not in _BARE_OUTPUT
    }
    return {key: found[0] for key, found in near.items() if found}


def output_options(
    metadata: Mapping[str, Any] | None, asset: str, config: Any = None, *, emitted: Mapping[str, Any] | None = None
) -> OutputOptions:
    """The options of an asset.

    Metadata added while the asset runs (`emitted`) overrides that of its definition; the run config overrides both.
    """
    who = f"asset {asset}"
    merged: dict[str, Any] = {}
    for layer in (
        _options_in(OutputOptions, metadata or {}, _BARE_OUTPUT, PEER_OUTPUT, who, InputOptions),
        _emitted(emitted or {}, who),
        {key: value for key, value in dict(config or {}).items() if value is not None},
    ):
        for mode, option in ((WriteMode.UPSERT, "upsert_keys"), (WriteMode.APPEND, "commit_strategy")):
            if layer.get("write_mode", mode.value) != mode.value:
                merged.pop(option, None)  # it applies only to the write mode that this layer replaces
        merged |= layer
    return _parsed(OutputOptions, merged, who)


def input_options(upstream: Mapping[str, Any] | None, own: Mapping[str, Any] | None, asset: str) -> InputOptions:
    """The options of an input; the location of its table defaults to that of the upstream asset."""
    theirs = _options_in(OutputOptions, upstream or {}, _BARE_OUTPUT, PEER_INPUT, f"asset {asset}", InputOptions)
    place = {key: value for key, value in theirs.items() if key in _Place.model_fields}
    ours = _options_in(InputOptions, own or {}, _BARE_INPUT, PEER_INPUT, f"the input from {asset}", OutputOptions)
    return _parsed(InputOptions, {**place, **ours}, f"the input from {asset}")


def refuse_no_keys(options: OutputOptions, asset: str) -> None:
    """Refuse an upsert without key columns."""
    if not options.upsert_keys:
        raise ConfigurationError(
            f"asset {asset}: write_mode is upsert, and upsert_keys does not name the columns by which rows are found; "
            f'add metadata={{"upsert_keys": ["id"]}}, or set upsert_keys in the run config. Nothing was written'
        )


def refuse_tags(tags: Mapping[str, str], asset: str) -> None:
    """Refuse options given as tags, which are not read."""
    for key in tags:
        name = key.removeprefix(PREFIX)
        if key.startswith(PREFIX) and (name in OutputOptions.model_fields or name in InputOptions.model_fields):
            raise ConfigurationError(
                f"asset {asset}: the tag {key!r} is not read; say it in the metadata of the asset, or in the run "
                f"config (outputs: {{result: {{{name}: …}}}})"
            )


def _emitted(metadata: Mapping[str, Any], who: str) -> dict[str, Any]:
    """The options in metadata added at run time. The location is refused: readers of the asset would not know it."""
    for key in metadata:
        name = key.removeprefix(PREFIX)
        if name in _Place.model_fields and (key.startswith(PREFIX) or key in _BARE_OUTPUT):
            raise ConfigurationError(
                f"{who}: {key!r} was given while the asset ran, and readers of the asset would not find it; set it "
                f"in the metadata of the asset itself. Nothing was written"
            )
    return _options_in(OutputOptions, metadata, _BARE_OUTPUT, PEER_RUN, who, InputOptions)


def _options_in(
    kind: type[_Options], metadata: Mapping[str, Any], bare: set[str], peer: set[str], who: str, other: type[_Options]
) -> dict[str, Any]:
    """The options in the metadata, by name without prefix."""
    options: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key, value in metadata.items():
        if key.startswith(PREFIX) or key in bare:
            name = key.removeprefix(PREFIX)
            if name not in kind.model_fields:
                raise ConfigurationError(f"{who}: {_unknown(key, name, kind, other)}")
            value = value.value if isinstance(value, MetadataValue) else value
        else:
            translated = peer_option(key, value, who) if key in peer else None
            if translated is None:
                continue
            name, value = translated
        if name in options and _as_tuple(options[name]) != _as_tuple(value):
            raise ConfigurationError(f"{who}: {keys[name]!r} and {key!r} contradict each other: say one of them")
        options[name], keys[name] = value, key
    return options


def _unknown(key: str, name: str, kind: type[_Options], other: type[_Options]) -> str:
    if name in other.model_fields:
        place = "an input (AssetIn(metadata=…))" if other is InputOptions else "an asset (@asset(metadata=…))"
        return f"metadata {key!r} is an option of {place}; say it there"
    return f"metadata {key!r} is no option of Floe; {nearest(name, kind.model_fields, PREFIX)}"


def _parsed(kind: type[Options], options: Mapping[str, Any], who: str) -> Options:
    try:
        return kind.model_validate(dict(options))
    except ValidationError as exc:
        problems = dict.fromkeys(_problem(error) for error in exc.errors())
        raise ConfigurationError(f"{who}: {'; '.join(problems)}") from None


def _problem(error: Any) -> str:
    name = str(error["loc"][0]) if error["loc"] else "options"
    if error["type"] == "enum":
        choices = WriteMode if name == "write_mode" else CommitStrategy
        return f"{name} {error['input']!r} is not one of {', '.join(member.value for member in choices)}"
    return f"{name} {error['input']!r}: {value_problem(error['type'], error['msg'], error.get('ctx'))}"
