"""floe run: planning, execution and reports."""
