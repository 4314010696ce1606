"""Parts: documents encoded by shards, on as many machines as one likes, and put together to one index."""
