"""Writes of DataFrames: staged on a branch, published by the control plane."""
