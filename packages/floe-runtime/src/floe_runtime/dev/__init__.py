"""floe dev: the web UI, its processes and who reaches it."""
