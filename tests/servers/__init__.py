"""Real servers for the tests, started on loopback and stopped by their own pid."""
