"""Reads of tables as DataFrames."""
