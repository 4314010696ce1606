"""Training data as arrays: token ids, batches, dev sets. Only numpy and torch are needed."""
