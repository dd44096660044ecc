"""A process that maintains a table and dies in a step.

python -m tests.faults.maintenance_job FOLDER TABLE STEP DELAY
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.identifiers import TableIdentifier
from floe_iceberg import Lake
from floe_iceberg.maintenance.run import Maintenance, Progress


def main(folder: str, table: str, step: str, delay: str) -> None:
    """With its JVM, as a machine that loses its power."""
    lake = Lake(CompiledArtifacts.load(Path(folder)))
    _ = lake.spark

    def strike(progress: Progress) -> None:
        if progress.step.step.value == step and progress.report is None:
            threading.Timer(float(delay), lambda: os.killpg(0, signal.SIGKILL)).start()

    for outcome in Maintenance(lake, watch=strike).run([TableIdentifier.from_string(table)]):
        print(outcome, flush=True)  # noqa: T201 - for whoever looks at why it lived
    # The step was quicker than the strike: wait for it, and die all the same.
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
