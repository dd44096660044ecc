"""floe run: what is planned, run and reported."""
