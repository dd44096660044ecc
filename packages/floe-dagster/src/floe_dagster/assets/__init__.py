"""Assets, their inputs and outputs: table names, options, partitions and kinds of values."""
