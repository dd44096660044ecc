"""Call one of Iceberg's procedures."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from floe_core.errors import ConcurrencyConflictError, ConfigurationError, FloeError, TableNotFoundError
from floe_core.identifiers import TableIdentifier
from floe_core.spec import CATALOG_NAME
from floe_spark.connect import session_with
from floe_spark.errors import translate
from floe_spark.names import quoted

if TYPE_CHECKING:
    from floe_spark.lake import Lake

__all__ = ["again_on_conflict", "call", "moment_sql", "text_sql"]

# Procedures on metadata shuffle little: with a cluster's default of 200 partitions a small table takes half a minute.
_FEW_PARTITIONS = 16
_ATTEMPTS = 3


def call(
    lake: Lake, procedure: str, identifier: TableIdentifier, arguments: Mapping[str, str], *, small: bool = True
) -> list[dict[str, Any]]:
    """The rows that a procedure returns; `arguments` are SQL already. `small` is for work on metadata alone."""
    name = ".".join(quoted(level) for level in (*identifier.namespace, identifier.name))
    told = ", ".join(f"{key} => {value}" for key, value in {"table": text_sql(name), **arguments}.items())
    statement = f"CALL {CATALOG_NAME}.system.{procedure}({told})"

    def run() -> list[dict[str, Any]]:
        spark = lake.spark
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions", "200") or "200")
        if not small or partitions <= _FEW_PARTITIONS:
            return [row.asDict() for row in spark.sql(statement).collect()]
        with session_with(spark, {"spark.sql.shuffle.partitions": str(_FEW_PARTITIONS)}) as session:
            return [row.asDict() for row in session.sql(statement).collect()]

    try:
        return lake.patiently(run)
    except FloeError:
        raise
    except Exception as exc:
        error = _explained(exc, procedure, identifier)
        if error is None:
            raise
        raise error from exc


def again_on_conflict() -> Retrying:
    """What was planned on a table that others changed meanwhile is planned anew."""
    return Retrying(
        retry=retry_if_exception_type(ConcurrencyConflictError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(0.2, max=5),
        reraise=True,
    )


def _explained(exc: Exception, procedure: str, identifier: TableIdentifier) -> FloeError | None:
    text = str(exc)
    if "Couldn't load table" in text:
        return TableNotFoundError(f"Table '{identifier}' was dropped meanwhile; nothing was done to it")
    known = translate(exc, f"spark.{procedure}", identifier)
    if known is not None:
        return known
    if "IllegalArgumentException" in type(exc).__name__ or "IllegalArgumentException" in text.splitlines()[0]:
        return ConfigurationError(f"{procedure} of '{identifier}' was refused by Iceberg: {text.splitlines()[0]}")
    return None


def text_sql(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def moment_sql(moment: datetime) -> str:
    """To the millisecond, which is as fine as Iceberg's clock is; with its zone, whatever the session's is."""
    return f"TIMESTAMP '{moment.astimezone(timezone.utc).isoformat(sep=' ', timespec='milliseconds')}'"
