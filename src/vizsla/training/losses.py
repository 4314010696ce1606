"""What training makes small."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def info_nce(queries: Tensor, documents: Tensor, temperature: float = 1.0, *, symmetric: bool = True) -> Tensor:
    """How badly each query's own document is told from all others of the batch, and if `symmetric` the other way round.

    Document i belongs to query i; more documents than queries are negatives for all.
    """
    scores = queries.float() @ documents.float().T if queries.dtype != torch.float64 else queries @ documents.T
    scores = scores / temperature
    own = torch.arange(len(queries), device=scores.device)
    loss = F.cross_entropy(scores, own)
    if not symmetric:
        return loss
    return (loss + F.cross_entropy(scores[:, : len(queries)].T, own)) / 2


def flops(vectors: Tensor) -> Tensor:
    """SPLADE's regulariser: the sum over the vocabulary of squared mean weights, which is what a posting costs.

    >>> flops(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).item()
    4.0
    """
    return (vectors.abs().mean(0) ** 2).sum()


def quadratic_rise(step: int, steps: int) -> float:
    """The share of a regulariser's weight at a step: it rises with the square until `steps`, then stays.

    >>> [quadratic_rise(s, 4) for s in (0, 2, 4, 9)]
    [0.0, 0.25, 1.0, 1.0]
    """
    return min(step / steps, 1.0) ** 2 if steps > 0 else 1.0
