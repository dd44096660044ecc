"""The Spark process: the session, its jars, launch, logs and end."""
