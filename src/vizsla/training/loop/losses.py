"""Losses and regularizers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vizsla.training.arrays.products import inner_products
from vizsla.training.settings import BINARY, CONTRASTIVE, KL, MARGIN, MSE


def contrastive_loss(scores: Tensor, *, symmetric: bool = True, false_negatives: Tensor | None = None) -> Tensor:
    """The cross-entropy of finding each query's own document among all documents of the batch (InfoNCE).

    Document i belongs to query i; further documents are negatives for all queries, except for `false_negatives`, which
    are ignored. `symmetric`: the mean of this loss and that of finding each document's own query.
    """
    if false_negatives is not None:
        scores = scores.masked_fill(false_negatives, -torch.inf)
    own = torch.arange(len(scores), device=scores.device)
    loss = F.cross_entropy(scores, own)
    if not symmetric:
        return loss
    return (loss + F.cross_entropy(scores[:, : len(scores)].T, own)) / 2


def margin_loss(scores: Tensor, more_positives: Tensor | None = None) -> Tensor:
    """RepBERT's hinge loss: each query's documents should score 1 more than all other documents of the batch.

    Document i belongs to query i, and so do its `more_positives`. The sum over all pairs of a positive and a negative
    is divided by the number of documents.
    """
    positives = torch.zeros_like(scores, dtype=torch.bool)
    positives.fill_diagonal_(True)
    if more_positives is not None:
        positives |= more_positives
    places = torch.where(positives, torch.arange(scores.shape[1], device=scores.device), scores.shape[1]).sort(1).values
    return F.multilabel_margin_loss(scores, places.masked_fill(places == scores.shape[1], -1))


def margin_mse_loss(scores: Tensor, margins: Tensor) -> Tensor:
    """The mean square of a network's margins minus a teacher's, over all queries and their negatives.

    `scores`: [queries, documents]. Document i belongs to query i; behind the documents of all queries lie the
    negatives of the first query, of the second, and so on. `margins`: [queries, negatives] by how much the teacher
    scores a query's document higher than its negatives.

    >>> scores = torch.tensor([[3.0, 9.0, 1.0, 9.0], [9.0, 5.0, 9.0, 1.0]])
    >>> margin_mse_loss(scores, torch.tensor([[1.0], [1.0]])).item()
    5.0
    """
    return F.mse_loss(own_margins(scores, margins.shape[1]), margins.to(scores.dtype))


def kl_loss(scores: Tensor, margins: Tensor) -> Tensor:
    """The KL divergence of a network's softmax over a query's document and its negatives from a teacher's.

    `scores` and `margins` as for `margin_mse_loss`; the mean over queries.

    >>> round(kl_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0986123]])).item(), 4)
    0.1308
    """
    own, given = own_margins(scores, margins.shape[1]), margins.to(scores.dtype)
    logits, wanted = (F.pad(-one, (1, 0)).log_softmax(1) for one in (own, given))
    return F.kl_div(logits, wanted, reduction="batchmean", log_target=True)


def own_margins(scores: Tensor, negatives: int) -> Tensor:
    """[queries, negatives] by how much each query's document scores higher than its negatives.

    Document i belongs to query i; behind the documents of all queries lie the negatives of the first, and so on.
    """
    own = torch.arange(len(scores), device=scores.device)[:, None]
    places = len(scores) + own * negatives + torch.arange(negatives, device=scores.device)
    return scores.gather(1, own) - scores.gather(1, places)


def in_batch_margin_mse_loss(scores: Tensor, margins: Tensor) -> Tensor:
    """The mean square of a network's margins minus a teacher's, between a query's document and all others of the batch.

    `scores` and `margins`: [queries, documents]. Document i belongs to query i.
    """
    own = scores.diagonal()[:, None] - scores
    others = torch.ones_like(own, dtype=torch.bool).fill_diagonal_(False)
    return F.mse_loss(own[others], margins.to(scores.dtype)[others])


def taught_loss(name: str, scores: Tensor, margins: Tensor, beside: Tensor | None = None) -> Tensor:
    """The loss that learns a teacher's margins, by its name; `beside`: what another model adds to those of the network.

    >>> scores, margins = torch.tensor([[3.0, 1.0]]), torch.tensor([[5.0]])
    >>> [taught_loss("margin-mse", scores, margins, beside).item() for beside in (None, torch.tensor([[3.0]]))]
    [9.0, 0.0]
    """
    if beside is not None:  # taken from a query's negatives, its margins grow by as much
        scores = torch.cat([scores[:, : len(scores)], _lowered(scores, beside)], dim=1)
    return kl_loss(scores, margins) if name == KL else margin_mse_loss(scores, margins)


def _lowered(scores: Tensor, beside: Tensor) -> Tensor:
    """The scores of all negatives, those of each query's own lowered."""
    count = len(scores)
    others = scores[:, count:].reshape(count, count, -1)
    own = torch.eye(count, dtype=scores.dtype, device=scores.device)[:, :, None] * beside.to(scores.dtype)[:, None]
    return (others - own).flatten(1)


def info_nce(queries: Tensor, documents: Tensor, temperature: float = 1.0, *, symmetric: bool = True) -> Tensor:
    """The contrastive loss of the inner products of vectors."""
    scores = inner_products(queries, documents)
    return contrastive_loss(scores if temperature == 1.0 else scores / temperature, symmetric=symmetric)


def group_loss(scores: Tensor, name: str = CONTRASTIVE) -> Tensor:
    """The loss that separates the first document of each group from the others, given [groups, documents] scores.

    >>> round(group_loss(torch.zeros(1, 4)).item(), 4), group_loss(torch.tensor([[2.0, 0.0]]), "margin").item()
    (1.3863, 0.0)
    """
    if name == BINARY:
        labels = torch.zeros_like(scores)
        labels[:, 0] = 1
        return F.binary_cross_entropy_with_logits(scores, labels)
    if name == MARGIN:
        return (1 - scores[:, :1] + scores[:, 1:]).clamp(min=0).mean()
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))


def group_taught_loss(name: str, scores: Tensor, wanted: Tensor) -> Tensor:
    """The loss that learns a teacher's scores, [groups, documents] as the network's; the first document is the own one.

    >>> scores, wanted = torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([[4.0, 0.0, 2.0]])
    >>> [group_taught_loss(name, scores, wanted).item() for name in ("mse", "margin-mse")]
    [3.0, 9.0]
    """
    given, wanted = scores, wanted.to(scores.dtype)
    if name == MSE:
        return F.mse_loss(given, wanted)
    if name == KL:
        return F.kl_div(given.log_softmax(1), wanted.log_softmax(1), reduction="batchmean", log_target=True)
    own, others = (one[:, :1] - one[:, 1:] for one in (given, wanted))
    return F.mse_loss(own, others)


def flops(vectors: Tensor) -> Tensor:
    """SPLADE's FLOPS regularizer: the sum over the vocabulary of squared mean weights.

    >>> flops(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).item()
    4.0
    """
    return (vectors.abs().mean(0, dtype=torch.promote_types(vectors.dtype, torch.float32)) ** 2).sum()


def quadratic_rise(step: int, steps: int) -> float:
    """The share of a regularizer's weight at a step: it rises quadratically for `steps` steps, then stays at 1.

    >>> [quadratic_rise(s, 4) for s in (0, 2, 4, 9)]
    [0.0, 0.25, 1.0, 1.0]
    """
    return min(step / steps, 1.0) ** 2 if steps > 0 else 1.0
