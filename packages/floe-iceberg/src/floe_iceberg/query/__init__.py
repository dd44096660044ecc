"""SQL over the tables of a lake: parsed, planned by Iceberg, and executed by DuckDB or by the compute plugin."""

from floe_iceberg.query.result import QueryResult
from floe_iceberg.query.run import ENGINES, run, tables_read_now
from floe_iceberg.query.session import Sessions

__all__ = ["ENGINES", "QueryResult", "Sessions", "run", "tables_read_now"]
