"""A week of orders in three layers: bronze, silver, gold."""
