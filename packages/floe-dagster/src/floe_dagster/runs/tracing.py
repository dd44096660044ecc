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
    """Attach everything in this process to the trace of the run, for the lifetime of its resources."""
    with suppress(FloeError):  # raised again when the lake is opened; a step that stores nothing never opens it
        compiled = artifacts()
        if compiled is not None:
            observe(compiled)  # first: the sampler of the provider decides whether the run is sampled
    run = context.run
    if run is None:
        yield
        return
    with continued_trace(run_traceparent(run.run_id, run.tags)):
        yield
