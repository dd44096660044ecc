"""Physical maintenance through Iceberg's own procedures, each compared with the table and its files afterwards."""
