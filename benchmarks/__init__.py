"""Floe beside the bare tools, measured in one run. Nothing here asserts a time: machines differ."""
