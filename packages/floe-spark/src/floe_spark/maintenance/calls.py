"""Call one of Iceberg's procedures."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from floe_core.errors import (
    CommitStateUnknownError,
    ConcurrencyConflictError,
    ConfigurationError,
    FloeError,
    FloeStorageError,
    TableNotFoundError,
)
from floe_core.identifiers import TableIdentifier
from floe_core.observability import note
from floe_core.security import redact
from floe_spark.errors import is_doubt, translate
from floe_spark.jvm.connect import session_with
from floe_spark.jvm.token_retry import with_valid_token
from floe_spark.names import quoted, table_name

if TYPE_CHECKING:
    from floe_iceberg.lake import Lake

__all__ = ["again_on_conflict", "call", "moment_sql", "text_sql"]

# Procedures on metadata shuffle little: with a cluster's default of 200 partitions a small table takes half a minute.
_FEW_PARTITIONS = 16
_ATTEMPTS = 3
_REASON = 500  # characters of a failure that are shown


def call(
    lake: Lake,
    procedure: str,
    identifier: TableIdentifier,
    arguments: Mapping[str, str],
    *,
    small: bool = True,
    files: Mapping[str, datetime] | None = None,
) -> list[dict[str, Any]]:
    """The rows that a procedure returns. `arguments` are SQL expressions; `small` is for procedures on metadata only.

    Args:
        files: The files that the procedure may consider, and when each was modified; passed as its file_list_view.
    """
    # The full name: a namespace may have the same name as the catalog, such as `default`.
    catalog = lake.tables.catalog_name
    name = table_name(catalog, identifier)
    view = f"floe_files_{uuid.uuid4().hex}"
    listed = {} if files is None else {"file_list_view": text_sql(view)}
    passed = ", ".join(f"{key} => {value}" for key, value in {"table": text_sql(name), **arguments, **listed}.items())
    statement = f"CALL {quoted(catalog)}.system.{procedure}({passed})"

    def execute(spark: SparkSession) -> list[dict[str, Any]]:
        if files is None:
            return [row.asDict() for row in spark.sql(statement).collect()]
        spark.sql(f"CREATE TEMPORARY VIEW {view} AS {_files_sql(files)}")
        try:
            return [row.asDict() for row in spark.sql(statement).collect()]
        finally:
            spark.catalog.dropTempView(view)

    def run() -> list[dict[str, Any]]:
        spark = lake.spark
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions", "200") or "200")
        if not small or partitions <= _FEW_PARTITIONS:
            return execute(spark)
        with session_with(spark, {"spark.sql.shuffle.partitions": str(_FEW_PARTITIONS)}) as session:
            return execute(session)

    try:
        return with_valid_token(lake, run)
    except FloeError:
        raise
    except Exception as exc:
        raise _explained(exc, procedure, identifier) from exc


def _files_sql(files: Mapping[str, datetime]) -> str:
    """The files as a query, in SQL alone: createDataFrame would make its session the active one of the process."""
    rows = text_sql(json.dumps([[path, str(int(at.timestamp() * 1000))] for path, at in files.items()]))
    exploded = f"SELECT explode(from_json({rows}, 'array<array<string>>')) AS one"
    return f"SELECT one[0] AS file_path, timestamp_millis(CAST(one[1] AS BIGINT)) AS last_modified FROM ({exploded})"  # noqa: S608


def again_on_conflict() -> Retrying:
    """Retries of an operation whose plan conflicted with commits of other writers; each attempt plans again."""
    return Retrying(
        retry=retry_if_exception_type(ConcurrencyConflictError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(0.2, max=5),
        before_sleep=_note_retry,
        reraise=True,
    )


def _note_retry(state: RetryCallState) -> None:
    failure = state.outcome.exception() if state.outcome is not None else None
    cause = failure.__cause__ if failure is not None and failure.__cause__ is not None else failure
    note("retrying", attempt=state.attempt_number, reason=_reason(str(cause)))


def _explained(exc: Exception, procedure: str, identifier: TableIdentifier) -> FloeError:
    text = str(exc)
    if "Couldn't load table" in text:
        return TableNotFoundError(f"Table '{identifier}' was dropped during {procedure}; nothing was done to it")
    if is_doubt(exc):
        return CommitStateUnknownError(
            f"the catalog's answer to {procedure} of '{identifier}' was lost: its outcome is unknown. No file was "
            f"deleted in doubt; files left over are orphans. Run it again"
        )
    known = translate(exc, f"spark.{procedure}", identifier)
    if known is not None:
        return known
    first = text.partition("\n")[0]
    if "IllegalArgumentException" in type(exc).__name__ or "IllegalArgumentException" in first:
        return ConfigurationError(f"{procedure} of '{identifier}' was refused by Iceberg: {first}")
    return FloeStorageError(
        f"{procedure} of '{identifier}' failed in Spark: {_reason(text)}. Nothing that the table needs was touched; "
        f"Spark's log has the details"
    )


def _reason(text: str) -> str:
    """The innermost cause, without the stack."""
    causes = re.findall(r"^Caused by: ([^\n]+)", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "..."))]
    return redact(causes[-1] if causes else " ".join(lines[:2]))[:_REASON].strip()


def text_sql(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def moment_sql(moment: datetime) -> str:
    """A timestamp literal in milliseconds, Iceberg's precision, and in UTC, whatever the session's time zone."""
    return f"TIMESTAMP '{moment.astimezone(timezone.utc).isoformat(sep=' ', timespec='milliseconds')}'"
