"""COIL while it is trained: products of vectors of equal tokens and of whole texts, and the loss of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vizsla.neural.heads.coil import CoilVectors
from vizsla.neural.lazy_torch import no_grad, torch
from vizsla.training.loop.objectives import Step, loss_of
from vizsla.training.loop.products import inner_products
from vizsla.training.settings import ContrastiveLoss
from vizsla.training.sources.dev_set import Assemble, DevSet, Encode

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 2048  # documents of a dev set that are encoded and scored at once
_PAIRS = 1 << 21  # pairs of equal tokens whose products are made at once


def coil_scores(queries: CoilVectors, documents: CoilVectors) -> Tensor:
    """[queries, documents] the sum over query tokens of the best product with an equal token, and the texts' product.

    Which token is the best is found without gradients, some pairs at a time; then only the best are multiplied again.
    """
    count = len(documents.cls)
    best = [_best_pairs(queries, documents, *pairs) for pairs in _pairs(queries, documents)]
    shape = len(queries.cls), count
    scores = inner_products(queries.cls, documents.cls) if queries.cls.shape[1] else queries.cls.new_zeros(shape)
    if not best:
        return scores
    own, other = (torch.cat(some) for some in zip(*best, strict=True))
    products = _products(queries.tokens[own], documents.tokens[other])
    places = queries.texts[own] * count + documents.texts[other]
    return scores + products.new_zeros(scores.numel()).index_add(0, places, products).view_as(scores)


def _products(a: Tensor, b: Tensor) -> Tensor:
    """The product of each row of `a` with that of `b`, in 32 bits at least."""
    dtype = torch.promote_types(a.dtype, torch.float32)
    return (a.to(dtype) * b.to(dtype)).sum(1)


@no_grad
def _pairs(queries: CoilVectors, documents: CoilVectors) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of a query token and an equal document token, by query token and then by document."""
    order = torch.argsort(documents.ids * len(documents.cls) + documents.texts, stable=True)
    sorted_ids = documents.ids[order]
    first = torch.searchsorted(sorted_ids, queries.ids)
    counts = torch.searchsorted(sorted_ids, queries.ids, right=True) - first
    ends = torch.cumsum(counts, 0)
    begin = 0
    while begin < len(counts):
        done = int(ends[begin - 1]) if begin else 0
        end = max(int(torch.searchsorted(ends, done + _PAIRS, right=True)), begin + 1)
        sizes = counts[begin:end]
        own = torch.repeat_interleave(torch.arange(begin, end, device=sizes.device), sizes)
        inside = torch.arange(len(own), device=sizes.device) - torch.repeat_interleave(
            ends[begin:end] - sizes - done, sizes
        )
        if len(own):
            yield own, order[first[own] + inside]
        begin = end


@no_grad
def _best_pairs(queries: CoilVectors, documents: CoilVectors, own: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Of the pairs of a query token and the tokens of a document the one with the highest product."""
    products = _products(queries.tokens[own], documents.tokens[other])
    keys = own * len(documents.cls) + documents.texts[other]
    groups, group = torch.unique_consecutive(keys, return_inverse=True)
    highest = products.new_full((len(groups),), -torch.inf).scatter_reduce(0, group, products, "amax")
    places = torch.arange(len(group), device=group.device)
    first = torch.full_like(groups, len(group))
    first = first.scatter_reduce(0, group, places.where(products == highest[group], len(group)), "amin")
    return own[first], other[first]


@dataclass(frozen=True, eq=False)
class CoilDevSet(DevSet):
    """A dev set for a network whose scores are those of COIL."""

    @no_grad
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """nDCG@10 of the network, and of the sum of its scores and BM25's after scaling both to the same spread."""
        queries: Any = self._vectors(self.queries, 0, len(self.queries), 0, encode, assemble, device)

        def blocks() -> Iterator[Tensor]:
            for first in range(0, len(self.documents), _BLOCK):
                last = min(first + _BLOCK, len(self.documents))
                documents: Any = self._vectors(self.documents, first, last, 1, encode, assemble, device)
                yield coil_scores(queries, documents)

        return self.figures_of(blocks(), device)


@dataclass(frozen=True)
class CoilObjective:
    """Like `ContrastiveObjective`, with COIL's scores."""

    loss: ContrastiveLoss = field(default_factory=ContrastiveLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; logs the share of queries whose own document has the highest score."""
        queries, *documents = (_vectors(step, side) for side in range(len(step.outputs)))
        scores = torch.cat([coil_scores(queries, some) for some in documents], 1)
        return loss_of(self.loss, scores / self.loss.temperature, step, metrics)


def _vectors(step: Step, side: int) -> CoilVectors:
    """The vectors of the texts of one side, from all processes."""
    own: CoilVectors = step.network.vectors(step.outputs[side], step.packed[side])
    gather = step.distributed.all_gather
    numbers = step.distributed.share(torch.arange(len(step.batch.texts[side][0]), device=own.texts.device))
    ids, texts = gather(torch.stack([own.ids, numbers[own.texts]], 1)).T.contiguous()
    return CoilVectors(gather(own.tokens), ids, texts, gather(own.cls))
