"""The table that rows of another table are moved to by its checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from floe_core.config.checks import TableCheck, check_name
from floe_core.errors import ConfigurationError
from floe_core.identifiers import TableIdentifier

__all__ = ["quarantine_of", "refuse_shared_quarantines"]


def quarantine_of(checks: Iterable[TableCheck], table: TableIdentifier) -> TableIdentifier | None:
    """The table that rows of a table are moved to by its checks; None if no check moves rows.

    Args:
        checks: The checks of the table.
        table: The table.
    """
    named = {check_name(check): _named(check, table) for check in checks if check.quarantine}
    different = {target.full_name.lower(): target for target in named.values()}
    if len(different) > 1:
        raise ConfigurationError(
            f"the checks of '{table}' name several quarantine tables: {', '.join(map(str, different.values()))}; a row "
            f"that breaks several rules is moved once, so name one table in all of them"
        )
    for name, target in named.items():
        if target.full_name.lower() == table.full_name.lower():
            raise ConfigurationError(
                f"check {name} of '{table}' would move rows to the table that they are in; name another table, or "
                f"write quarantine: true for '{table}_quarantine'"
            )
    return next(iter(named.values()), None)


def _named(check: TableCheck, table: TableIdentifier) -> TableIdentifier:
    return TableIdentifier.from_string(check.quarantine if isinstance(check.quarantine, str) else f"{table}_quarantine")


def refuse_shared_quarantines(checks: Mapping[TableIdentifier, Iterable[TableCheck]]) -> None:
    """Refuse a quarantine table that takes rows of two tables, or that has checks which move its own rows.

    Args:
        checks: The checks of each table.
    """
    taken: dict[str, TableIdentifier] = {}
    sources = {table.full_name.lower() for table, given in checks.items() if quarantine_of(given, table) is not None}
    for table, given in checks.items():
        target = quarantine_of(given, table)
        if target is None:
            continue
        other = taken.setdefault(target.full_name.lower(), table)
        if other != table:
            raise ConfigurationError(
                f"'{other}' and '{table}' would both move rows to '{target}'; give each a quarantine table of its own"
            )
        if target.full_name.lower() in sources:
            raise ConfigurationError(
                f"'{table}' would move rows to '{target}', whose own rows are moved by its checks; name another table"
            )
