"""floe branches: what its verbs print."""
