"""floe demo: the story, and an independent recomputation of its figures."""
