"""Many tables summarized at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from floe_core.errors import FloeError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_iceberg.inspection.description import TableSummary

__all__ = ["summarize_each"]

# A catalog server answers in tens of milliseconds; reading metadata files is limited by the processor.
_LOADED_AT_ONCE = 8


def summarize_each(
    summarize: Callable[[TableIdentifier], TableSummary],
    names: Sequence[TableIdentifier],
    step: Callable[[], None] | None = None,
) -> tuple[list[TableSummary], dict[str, str]]:
    """The tables that can be read, and why the others cannot; one that was dropped since it was listed is left out.

    Args:
        summarize: Summarizes one table.
        names: The tables.
        step: Called after each table.
    """

    def summary(name: TableIdentifier) -> TableSummary | str | None:
        try:
            return summarize(name)
        except TableNotFoundError:
            return None
        except FloeError as exc:
            return str(exc)
        finally:
            if step is not None:
                step()

    contexts = [copy_context() for _name in names]  # a span belongs to the trace of its context
    with ThreadPoolExecutor(_LOADED_AT_ONCE) as pool:
        loaded = pool.map(lambda context, name: context.run(summary, name), contexts, names)
        results = dict(zip(map(str, names), loaded, strict=True))
    failures = {name: result for name, result in results.items() if isinstance(result, str)}
    return [result for result in results.values() if result is not None and not isinstance(result, str)], failures
