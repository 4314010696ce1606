"""Parts: documents that are encoded in shards, on any number of machines, and combined into one index."""
