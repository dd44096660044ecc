"""The pipeline: bronze, silver, gold."""

from floe_dagster import create_definitions

from .bronze import customers, orders, products
from .checks import few_are_rejected
from .gold import customer_cohorts, daily_revenue, top_products
from .silver import rejected_orders, silver_orders

defs = create_definitions(
    [orders, customers, products, silver_orders, rejected_orders, daily_revenue, top_products, customer_cohorts],
    asset_checks=[few_are_rejected],
)
