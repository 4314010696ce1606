"""The training loop: objectives, scores of a batch, gradient caching, distributed training, checkpoints."""
