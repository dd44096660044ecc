"""floe dev: the web UI, its processes and its access control."""
