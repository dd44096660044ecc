"""The pipeline: bronze, silver, gold."""

from floe_dagster import create_definitions

from .bronze import customers, orders
from .gold import daily_revenue
from .silver import silver_customers, silver_orders

defs = create_definitions([orders, customers, silver_orders, silver_customers, daily_revenue])
