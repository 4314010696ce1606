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
