"""From data sets, documents and checkpoints to training data and the network to start from."""
