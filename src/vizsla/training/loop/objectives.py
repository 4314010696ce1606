"""What training minimizes: the loss of a batch, from what the network made of its texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from vizsla.neural.chunks import Batch
from vizsla.neural.heads.augmenter import AugmentedQueries
from vizsla.neural.heads.colbert import TokenTexts
from vizsla.training.arrays.augmenter import BatchRows
from vizsla.training.arrays.batch import TrainingBatch
from vizsla.training.arrays.bm25_rows import query_vectors
from vizsla.training.arrays.cross_encoder import Group
from vizsla.training.arrays.max_sim import scores_of
from vizsla.training.arrays.products import sparse_product
from vizsla.training.arrays.scored_pairs import Margins
from vizsla.training.loop.distributed import Distributed
from vizsla.training.loop.losses import (
    contrastive_loss,
    flops,
    group_loss,
    group_taught_loss,
    in_batch_margin_mse_loss,
    margin_loss,
    quadratic_rise,
    taught_loss,
)
from vizsla.training.settings import MARGIN, TAUGHT, AugmenterLoss, ContrastiveLoss, DenseLoss, GroupLoss, SparseLoss


class Step(NamedTuple):
    """One step of training, after the texts of its batch are encoded."""

    number: int
    """How many steps were made before."""
    network: Any
    distributed: Distributed
    batch: TrainingBatch
    packed: list[Batch]
    """This process's share of the texts, as they were encoded."""
    outputs: tuple[list[Tensor], ...]
    """What the network made of each chunk."""

    def vectors(self, side: int) -> Any:
        """What the network made of the queries (0), of their documents (1) or of more documents, of all processes."""
        own = self.network.vectors(self.outputs[side], self.packed[side])
        gather = self.distributed.all_gather_tokens if isinstance(own, TokenTexts) else self.distributed.all_gather
        return gather(own)


class Objective(Protocol):
    """A loss; a frozen dataclass of plain settings, so that a resumed run can be compared with its checkpoint."""

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; what is to be logged besides goes into `metrics`."""


@dataclass(frozen=True)
class ContrastiveObjective:
    """Each query's document must score higher than all other documents of the batch, or by as much as for a teacher."""

    loss: ContrastiveLoss = field(default_factory=ContrastiveLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; logs the share of queries whose own document has the highest score."""
        return _contrast(self.loss, step, metrics).loss


@dataclass(frozen=True)
class DualObjective:
    """As `ContrastiveObjective`, plus the loss of a second teacher, which scores all documents of the batch."""

    loss: DenseLoss = field(default_factory=DenseLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; logs also both parts of it."""
        pairs = _contrast(self.loss, step, metrics)
        in_batch = in_batch_margin_mse_loss(pairs.scores, step.batch.extra.in_batch)
        metrics["pair_loss"], metrics["in_batch_loss"] = pairs.loss.detach(), in_batch.detach()
        return pairs.loss + self.loss.in_batch_weight * in_batch


@dataclass(frozen=True)
class SparseObjective:
    """As `ContrastiveObjective`, with SPLADE's FLOPS regularizer."""

    loss: SparseLoss = field(default_factory=SparseLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; logs also how many terms vectors have."""
        settings = self.loss
        loss, _, queries, documents = _contrast(settings, step, metrics)
        with torch.no_grad():
            metrics["query_terms"] = (queries > 0).sum(1).float().mean()
            metrics["document_terms"] = (documents[0] > 0).sum(1).float().mean()
        if not settings.flops_queries and not settings.flops_documents:
            return loss
        share = quadratic_rise(step.number, settings.flops_warmup_steps)
        cost = settings.flops_queries * flops(queries) + settings.flops_documents * flops(torch.cat(documents))
        metrics["flops"] = (share * cost).detach()
        return loss + share * cost


class _Contrast(NamedTuple):
    """The loss of a step, its scores, its query vectors, and its document vectors side by side."""

    loss: Tensor
    scores: Tensor
    queries: Any
    documents: list[Any]


def _contrast(settings: ContrastiveLoss, step: Step, metrics: dict[str, Tensor]) -> _Contrast:
    queries, *documents = (step.vectors(side) for side in range(len(step.outputs)))
    scores = scores_of(queries, documents)
    if settings.temperature != 1:
        scores = scores / settings.temperature
    return _Contrast(loss_of(settings, scores, step, metrics), scores, queries, documents)


def loss_of(settings: ContrastiveLoss, scores: Tensor, step: Step, metrics: dict[str, Tensor]) -> Tensor:
    """The loss of [queries, documents] scores; logs the share of queries whose own document has the highest."""
    metrics["accuracy"] = _accuracy(scores)
    false_negatives = step.batch.false_negatives
    if settings.name == MARGIN:
        return margin_loss(scores, false_negatives)
    if settings.name in TAUGHT:
        given: Margins = step.batch.extra
        beside = None if given.beside is None else given.beside / settings.temperature
        taught = taught_loss(settings.name, scores, given.pairs, beside)
        if not settings.contrastive_weight:
            return taught
        contrastive = contrastive_loss(scores, symmetric=settings.symmetric, false_negatives=false_negatives)
        return taught + settings.contrastive_weight * contrastive
    return contrastive_loss(scores, symmetric=settings.symmetric, false_negatives=false_negatives)


@dataclass(frozen=True)
class GroupObjective:
    """A cross-encoder must score a query's document higher than the query's negatives, or score all as a teacher."""

    loss: GroupLoss = field(default_factory=GroupLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step, and the share of queries whose own document has the highest score."""
        group: Group = step.batch.extra
        scores = step.vectors(0).view(-1, group.size)
        with torch.no_grad():
            metrics["accuracy"] = (scores[:, 0] > scores[:, 1:].amax(1)).float().mean()
        scaled = scores / self.loss.temperature
        if group.wanted is None:
            return group_loss(scaled, self.loss.name)
        return group_taught_loss(self.loss.name, scaled, group.wanted)


@dataclass(frozen=True)
class LikelihoodObjective:
    """A generator must write each token of a text, given the tokens before it: cross-entropy over all tokens."""

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step, and the share of tokens that were the likeliest."""
        loss, tokens, right = step.vectors(0).sum(0)
        metrics["accuracy"] = (right / tokens).detach()
        mean: Tensor = loss / tokens.detach()
        return mean


@dataclass(frozen=True)
class RegressionObjective:
    """The weight of each token that has a target must come close to it: the mean of squared differences."""

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step, and the mean of the targets and of the weights that they are compared with."""
        targets: Tensor = step.batch.extra
        own = step.network.vectors(step.outputs[0], step.packed[0])
        weights = step.distributed.all_gather(F.pad(own, (0, targets.shape[1] - own.shape[1])))
        known = ~targets.isnan()
        given, wanted = weights[known].float(), targets[known]
        metrics["mean_target"], metrics["mean_weight"] = wanted.mean(), given.detach().mean()
        return F.mse_loss(given, wanted)


@dataclass(frozen=True)
class AugmenterObjective:
    """An augmenter's queries must find their documents by BM25's score, or as a teacher does; added terms have a cost.

    A term costs the square root of the share of documents that contain it, so common terms are expensive; with
    `uniform_cost` all terms cost the same. A term that no document contains is never added.
    """

    loss: AugmenterLoss = field(default_factory=AugmenterLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step, and how many terms queries have."""
        rows: BatchRows = step.batch.extra
        added, weights = step.network.vectors(step.outputs[0], step.packed[0])
        shares = rows.document_share[: added.shape[1]]
        own = step.distributed.share(rows.own)
        added = added.to(torch.promote_types(added.dtype, torch.float32)) * (shares > 0)
        queries = query_vectors(AugmentedQueries(added, weights.to(added.dtype)), own, len(rows.idf))
        queries, added = step.distributed.all_gather(queries), step.distributed.all_gather(added)
        scores = sparse_product(rows.documents, (queries * rows.idf).T.contiguous()).T
        false_negatives = step.batch.false_negatives
        scaled = scores / self.loss.temperature
        if rows.margins is None:
            loss = contrastive_loss(scaled, symmetric=False, false_negatives=false_negatives)
        else:
            loss = taught_loss(self.loss.name, scaled, rows.margins)
        prices = (shares > 0).to(added.dtype) if self.loss.uniform_cost else shares.sqrt().to(added.dtype)
        rise = quadratic_rise(step.number + 1, self.loss.cost_warmup_steps)
        cost = self.loss.added_cost * rise * (added @ prices).mean()
        with torch.no_grad():
            masked = scores if false_negatives is None else scores.masked_fill(false_negatives, -torch.inf)
            metrics["accuracy"] = _accuracy(masked)
            metrics["query_terms"] = (queries > 0).sum(1).float().mean()
            metrics["added_terms"] = (added > 0).sum(1).float().mean()
            metrics["cost"] = cost.detach()
        total: Tensor = loss + cost
        return total


@torch.no_grad()
def _accuracy(scores: Tensor) -> Tensor:
    """The share of queries whose own document has the highest score."""
    return (scores.argmax(1) == torch.arange(len(scores), device=scores.device)).float().mean()
