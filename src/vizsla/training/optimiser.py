"""What moves the parameters."""

from __future__ import annotations

import torch
from torch import nn

from vizsla.training.settings import Settings


def adamw(network: nn.Module, settings: Settings, device: torch.device) -> torch.optim.AdamW:
    """AdamW over all that is learnt. Only matrices decay: biases, norms and single weights are not drawn towards 0.

    >>> groups = adamw(nn.Linear(3, 2), Settings(decay=0.1), torch.device("cpu")).param_groups
    >>> [([tuple(p.shape) for p in group["params"]], group["weight_decay"]) for group in groups]
    [([(2, 3)], 0.1), ([(2,)], 0.0)]
    """
    learnt = [p for p in network.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learnt if p.ndim > 1], "weight_decay": settings.decay},
        {"params": [p for p in learnt if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, settings.rate, (0.9, 0.98), fused=device.type == "cuda")
