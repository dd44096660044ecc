"""Physical maintenance through Iceberg's own procedures, each compared with the table and its files afterwards."""

from floe_spark.maintenance.compute import SparkCompute
from floe_spark.maintenance.run import Maintenance, Outcome, TableOutcome

__all__ = ["Maintenance", "Outcome", "SparkCompute", "TableOutcome"]
