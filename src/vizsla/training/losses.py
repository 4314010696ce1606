"""What training makes small."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class _WideProduct(torch.autograd.Function):
    """a @ b.T of 16-bit factors with sums of 32 bits: tensor cores at full speed, and scores that are not rounded."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return torch.mm(a, b.T, out_dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        gradient = gradients[0].to(a.dtype)
        return gradient @ b, gradient.T @ a


def inner_products(queries: Tensor, documents: Tensor) -> Tensor:
    """[queries, documents] the scores, summed in 32 bits at least."""
    if queries.is_cuda and queries.dtype in (torch.bfloat16, torch.float16):
        scores: Tensor = _WideProduct.apply(queries, documents)  # type: ignore[no-untyped-call]
        return scores
    kind = torch.promote_types(queries.dtype, torch.float32)
    return queries.to(kind) @ documents.to(kind).T


def contrast(scores: Tensor, *, symmetric: bool = True, forbidden: Tensor | None = None) -> Tensor:
    """How badly each query's own document is told from all others of the batch, and if `symmetric` the other way round.

    Document i belongs to query i; more documents than queries are negatives for all, except where they are `forbidden`.
    """
    if forbidden is not None:
        scores = scores.masked_fill(forbidden, -torch.inf)
    own = torch.arange(len(scores), device=scores.device)
    loss = F.cross_entropy(scores, own)
    if not symmetric:
        return loss
    return (loss + F.cross_entropy(scores[:, : len(scores)].T, own)) / 2


def margins(scores: Tensor, right: Tensor | None = None) -> Tensor:
    """How far each query's documents are from scoring 1 more than all others of the batch, as RepBERT counts it.

    Document i belongs to query i, and those that are `right` besides; the sum over all pairs of one of them and one of
    the others is divided by the number of documents.
    """
    own = torch.zeros_like(scores, dtype=torch.bool)
    own.fill_diagonal_(True)
    if right is not None:
        own |= right
    places = torch.where(own, torch.arange(scores.shape[1], device=scores.device), scores.shape[1]).sort(1).values
    return F.multilabel_margin_loss(scores, places.masked_fill(places == scores.shape[1], -1))


def info_nce(queries: Tensor, documents: Tensor, temperature: float = 1.0, *, symmetric: bool = True) -> Tensor:
    """The contrast of the inner products of vectors."""
    scores = inner_products(queries, documents)
    return contrast(scores if temperature == 1.0 else scores / temperature, symmetric=symmetric)


def flops(vectors: Tensor) -> Tensor:
    """SPLADE's regulariser: the sum over the vocabulary of squared mean weights, which is what a posting costs.

    >>> flops(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).item()
    4.0
    """
    return (vectors.abs().mean(0, dtype=torch.promote_types(vectors.dtype, torch.float32)) ** 2).sum()


def quadratic_rise(step: int, steps: int) -> float:
    """The share of a regulariser's weight at a step: it rises with the square until `steps`, then stays.

    >>> [quadratic_rise(s, 4) for s in (0, 2, 4, 9)]
    [0.0, 0.25, 1.0, 1.0]
    """
    return min(step / steps, 1.0) ** 2 if steps > 0 else 1.0
