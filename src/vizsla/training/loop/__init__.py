"""The training loop: objectives, gradient caching, distributed training, checkpoints."""
