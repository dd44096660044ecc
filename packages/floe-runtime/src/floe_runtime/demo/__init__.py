"""floe demo: the story and the figures computed a second time."""
