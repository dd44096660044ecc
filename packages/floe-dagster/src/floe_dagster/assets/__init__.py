"""What an asset, its inputs and outputs say: tables, options, partitions, owners and values."""
