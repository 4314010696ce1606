"""From data sets, documents and checkpoints to what training reads: arrays, and the network to start from."""
