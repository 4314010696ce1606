"""How a generator chooses the next token."""

from __future__ import annotations

import torch
from torch import Tensor


def next_tokens(logits: Tensor, uniform: Tensor, top_k: int, top_p: float, temperature: float) -> Tensor:
    """[texts] the next token of each text, drawn by one uniform random number a text.

    Only the `top_k` likeliest tokens can be drawn (0: all), and of these only the likeliest that have `top_p` of the
    probability together. A temperature of 0 takes the likeliest token.

    >>> logits = torch.tensor([[0.0, 3.0, 2.0], [9.0, 0.0, 0.0]])
    >>> next_tokens(logits, torch.tensor([0.9, 0.2]), 2, 1.0, 1.0).tolist()
    [2, 0]
    """
    if temperature == 0:
        return logits.argmax(-1)
    limited = 0 < top_k < logits.shape[-1]
    if not limited and top_p >= 1:
        choices = None
        probabilities = torch.softmax(logits.float() / temperature, -1)
    else:
        values, choices = logits.topk(top_k, -1) if limited else logits.sort(-1, descending=True)
        probabilities = torch.softmax(values.float() / temperature, -1)
    if top_p < 1:
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities * (before < top_p)
    cumulative = probabilities.cumsum(-1)
    drawn = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(-1)
    drawn = drawn.clamp(max=(probabilities > 0).sum(-1) - 1 if choices is not None else logits.shape[-1] - 1)
    return drawn if choices is None else choices.gather(-1, drawn[:, None])[:, 0]
