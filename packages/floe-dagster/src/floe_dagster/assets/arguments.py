"""Refuse unknown arguments: Dagster's resources and configurations silently ignore them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from floe_core.errors import ConfigurationError

__all__ = ["KnownArguments", "names_of", "nearest", "refuse_unknown"]


def nearest(name: str, known: Collection[str], prefix: str = "") -> str:
    """A suggestion for an unknown name: the closest known one, or all of them."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {prefix + near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"


def refuse_unknown(
    who: str, given: Iterable[str], known: Collection[str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Refuse the first unknown name; `elsewhere` has the advice for arguments that another class takes."""
    for name in given:
        if name not in known:
            advice = (elsewhere or {}).get(name) or nearest(name, known)
            raise ConfigurationError(f"{who} has no {name!r}; {advice}")


def names_of(model: type[BaseModel]) -> set[str]:
    """The argument names of a model: its fields and their aliases."""
    fields = model.model_fields
    aliases = {alias for field in fields.values() for alias in (field.alias, field.validation_alias)}
    return {*fields, *(alias for alias in aliases if isinstance(alias, str))}


class KnownArguments(BaseModel):
    """A model that refuses unknown arguments and suggests the closest field."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def elsewhere(cls) -> dict[str, str]:
        """Arguments that another class takes, with advice on what to write instead."""
        return {}

    @model_validator(mode="before")
    @classmethod
    def _known_only(cls, given: Any) -> Any:
        if isinstance(given, dict):
            refuse_unknown(cls.__name__, given, names_of(cls), cls.elsewhere())
        return given
