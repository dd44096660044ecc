"""Rows of a table or a query as output: a table for people, CSV, JSON or Parquet for programs."""
