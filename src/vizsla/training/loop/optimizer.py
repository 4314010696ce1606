"""The optimizer."""

from __future__ import annotations

import torch
from torch import nn

from vizsla.training.settings import TrainingSettings


def adamw(network: nn.Module, settings: TrainingSettings, device: torch.device) -> torch.optim.AdamW:
    """AdamW over all trainable parameters. Weight decay is for matrices only, not for biases, norms and single weights.

    >>> groups = adamw(nn.Linear(3, 2), TrainingSettings(weight_decay=0.1), torch.device("cpu")).param_groups
    >>> [([tuple(p.shape) for p in group["params"]], group["weight_decay"]) for group in groups]
    [([(2, 3)], 0.1), ([(2,)], 0.0)]
    """
    trainable = [p for p in network.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in trainable if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, settings.learning_rate, (0.9, 0.98), fused=device.type == "cuda")
