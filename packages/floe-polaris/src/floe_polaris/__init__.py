"""Apache Polaris and any Iceberg REST catalog."""
