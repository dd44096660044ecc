"""A small retailer: two weeks of orders, from the source system to the figures of the shop."""
