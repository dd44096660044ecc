"""A Dagster job that another process runs, and that ends there as it is told: `python -m tests.faults.dagster_job`.

FLOE_TEST_PROJECT is the compiled project, DAGSTER_HOME its history, FLOE_TEST_ENDS how the run ends.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from dagster import (
    AssetExecutionContext,
    DagsterInstance,
    asset,
    define_asset_job,
    execute_job,
    in_process_executor,
    reconstructable,
)
from pyspark.sql import DataFrame

from floe_dagster import LakeResource, create_definitions, io_manager

ENDS = "FLOE_TEST_ENDS"
NAMESPACE = "FLOE_TEST_NAMESPACE"


def ends(how: str) -> bool:
    return os.environ.get(ENDS) == how


def _describe(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def build() -> Any:
    """For `reconstructable`."""
    namespace = os.environ[NAMESPACE]
    if ends("after the commit"):
        vars(io_manager)["describe"] = _describe

    @asset(key_prefix=namespace, metadata={"write_mode": "append"})
    def arrow() -> pa.Table:
        return pa.table({"id": [1, 2, 3]})

    @asset(key_prefix=namespace, metadata={"write_mode": "append"})
    def spark(context: AssetExecutionContext, lake: LakeResource) -> DataFrame:
        frame = lake.spark.range(3)
        if ends("with the session") and not context.run.tags.get("again"):
            jvm: Any = lake.spark.sparkContext._jvm
            os.kill(jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
            time.sleep(0.5)
        return frame

    @asset(key_prefix=namespace, metadata={"write_mode": "append"})
    def slow() -> pa.RecordBatchReader:
        def batches() -> Any:
            for number in range(600):
                yield pa.record_batch({"id": [number]})
                Path(os.environ["FLOE_TEST_PROJECT"], "under-way").touch()
                time.sleep(0.1)

        return pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())

    jobs = [
        define_asset_job(one.key.path[-1], selection=[one], executor_def=in_process_executor)
        for one in (arrow, spark, slow)
    ]
    return create_definitions([arrow, spark, slow], project=Path(os.environ["FLOE_TEST_PROJECT"]), jobs=jobs)


def arrow_job() -> Any:
    return build().resolve_job_def("arrow")


def spark_job() -> Any:
    return build().resolve_job_def("spark")


def slow_job() -> Any:
    return build().resolve_job_def("slow")


JOBS = {"arrow": arrow_job, "spark": spark_job, "slow": slow_job}

if __name__ == "__main__":
    # By the name that other processes know it by.
    from tests.faults import dagster_job

    with DagsterInstance.get() as instance:
        job = reconstructable(dagster_job.JOBS[sys.argv[1]])
        done = execute_job(job, instance, raise_on_error=False)
        if ends("with the session") and not done.success:
            done = execute_job(job, instance, raise_on_error=False, tags={"again": "yes"})
        sys.exit(0 if done.success else 1)
