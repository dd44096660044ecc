"""One trace per Dagster run, in whichever processes its steps run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from dagster import InitResourceContext

from floe_core.config import CompiledArtifacts
from floe_core.errors import FloeError
from floe_core.observability import continued_trace, observe, run_traceparent

__all__ = ["run_trace"]


@contextmanager
def run_trace(context: InitResourceContext, artifacts: Callable[[], CompiledArtifacts | None]) -> Iterator[None]:
    """While the resources of a run are there, what happens in this process belongs to the trace of the run."""
    with suppress(FloeError):  # which whoever opens the lake is told; a step that stores nothing opens none
        found = artifacts()
        if found is not None:
            observe(found)  # first: the sampler of the provider decides whether the run is sampled
    run = context.run
    if run is None:
        yield
        return
    with continued_trace(run_traceparent(run.run_id, run.tags)):
        yield
