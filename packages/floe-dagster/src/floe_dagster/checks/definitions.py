"""Checks of an asset as Dagster definitions: all of them are one step, which makes one pass over the rows."""

# No postponed annotations here: Dagster inspects those of the step when it is defined.
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from dagster import (
    AssetCheckExecutionContext,
    AssetChecksDefinition,
    AssetCheckSpec,
    AssetKey,
    AssetsDefinition,
    multi_asset_check,
)

from floe_core.config import TableCheck, check_name
from floe_core.errors import ConfigurationError
from floe_dagster.atomic.groups import SCOPE
from floe_dagster.atomic.quarantine import QUARANTINE
from floe_dagster.atomic.time_limit import time_limit
from floe_dagster.checks.execution import results_of
from floe_dagster.checks.functions import FunctionCheck

__all__ = ["checks_step", "name_of", "of"]


def of(
    asset: AssetsDefinition | AssetKey | str | Sequence[str],
    *checks: TableCheck | FunctionCheck,
    blocking: bool = False,
    engine: Literal["duckdb", "spark"] | None = None,
    timeout: float | None = None,
) -> AssetChecksDefinition:
    """Checks of an asset, for the `asset_checks` of `create_definitions`.

    They look at the table as the run has left it: at the partitions of the run, unless a check has the scope `table`.
    In an atomic run they look at what would be published.

    Args:
        asset: The asset, as a function with @asset or by its key.
        checks: The checks.
        blocking: Whether a failure stops the assets downstream, for all of them.
        engine: `duckdb`, without a JVM, or `spark`. By default Spark if its session is running in the
            process of the step.
        timeout: Seconds after which the step of the checks fails. By default never.

    Example:
        >>> from dagster import asset
        >>> from floe_dagster import checks
        >>> @asset(key_prefix="bronze", metadata={"write_mode": "overwrite"})
        ... def orders() -> pa.Table:
        ...     return pa.table({"id": [1, 2, 3]})
        >>> found = checks.of(orders, checks.not_null("id"), checks.unique("id"), blocking=True)
        >>> sorted(key.name for key in found.check_keys)
        ['not_null_id', 'unique_id']
    """
    key, manager = _asset(asset)
    given = [_blocking(check) if blocking else check for check in checks]
    if not given:
        raise ConfigurationError(f"asset {key.to_user_string()}: checks.of needs at least one check")
    return checks_step(key, manager, given, engine=engine, timeout=timeout)


def checks_step(
    key: AssetKey,
    manager: str,
    checks: Sequence[TableCheck | FunctionCheck],
    *,
    engine: Literal["duckdb", "spark"] | None = None,
    timeout: float | None = None,
) -> AssetChecksDefinition:
    """The step that runs checks of an asset.

    Args:
        key: The asset.
        manager: The resource key of its IO manager.
        checks: The checks.
        engine: `duckdb` or `spark`.
        timeout: Seconds after which the checks fail.
    """
    names = [name_of(check) for check in checks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(
            f"asset {key.to_user_string()} has two checks called {', '.join(twice)}; give one of them a name of its own"
        )

    @multi_asset_check(
        # Several steps may check one asset; each of its checks is in one of them.
        name=f"{key.to_python_identifier()}__{names[0]}" + (f"_and_{len(names) - 1}_more" if len(names) > 1 else ""),
        specs=[_spec(check, key) for check in checks],
        required_resource_keys={manager},
        can_subset=True,
    )
    def run(context: AssetCheckExecutionContext) -> Iterator[Any]:
        wanted = {one.name for one in context.selected_asset_check_keys}
        chosen = [check for name, check in zip(names, checks, strict=True) if name in wanted]
        with time_limit(timeout, f"the checks of {key.to_user_string()}"):
            results = results_of(
                context, key, chosen, getattr(context.resources, manager), engine=engine, timeout=timeout
            )
        yield from results

    return run


def name_of(check: TableCheck | FunctionCheck) -> str:
    """The name of a check."""
    return check_name(check) if isinstance(check, TableCheck) else check.name


def _spec(check: TableCheck | FunctionCheck, key: AssetKey) -> AssetCheckSpec:
    return AssetCheckSpec(
        name_of(check),
        asset=key,
        blocking=check.blocks if isinstance(check, TableCheck) else check.blocking,
        description=check.description,
        metadata={SCOPE: _scope(check), **_moving(check)},
    )


def _moving(check: TableCheck | FunctionCheck) -> dict[str, str]:
    """A check that moves rows, for the step that writes them."""
    if not isinstance(check, TableCheck) or not check.quarantine:
        return {}
    return {QUARANTINE: check.model_dump_json(exclude_defaults=True)}


def _scope(check: TableCheck | FunctionCheck) -> str:
    """The rows that a check looks at; a query may read more than its slice."""
    reads_more = isinstance(check, TableCheck) and check.rule in ("condition", "references", "sql")
    return "table" if reads_more else check.scope


def _blocking(check: TableCheck | FunctionCheck) -> TableCheck | FunctionCheck:
    if check.severity == "warn":
        return check  # a warning does not block
    if isinstance(check, TableCheck):
        return check.model_copy(update={"blocking": True})
    return replace(check, blocking=True)


def _asset(asset: AssetsDefinition | AssetKey | str | Sequence[str]) -> tuple[AssetKey, str]:
    """The key of an asset, and the resource key of its IO manager."""
    if isinstance(asset, AssetsDefinition):
        if len(list(asset.keys)) != 1:
            names = ", ".join(sorted(key.to_user_string() for key in asset.keys))
            raise ConfigurationError(f"checks.of takes one asset; this function makes {names}: name one by its key")
        return asset.key, asset.get_io_manager_key_for_asset_key(asset.key)
    if isinstance(asset, AssetKey):
        return asset, "io_manager"
    key = AssetKey.from_user_string(asset) if isinstance(asset, str) else AssetKey(list(asset))
    return key, "io_manager"
