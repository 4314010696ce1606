"""What training minimizes: losses and regularizers, and the loss of a batch from what the network made of its texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from vizsla.errors import VizslaError
from vizsla.neural.chunks import Batch
from vizsla.neural.heads.augmenter import AugmentedQueries
from vizsla.neural.heads.colbert import TokenTexts
from vizsla.neural.lazy_torch import F, no_grad, torch
from vizsla.training.arrays.augmenter import BatchRows, query_vectors
from vizsla.training.arrays.cross_encoder import Group
from vizsla.training.loop.distributed import Distributed
from vizsla.training.loop.products import inner_products, scores_of, sparse_product
from vizsla.training.settings import (
    BINARY,
    CONTRASTIVE,
    KL,
    MARGIN,
    MSE,
    TAUGHT,
    AugmenterLoss,
    ContrastiveLoss,
    DenseLoss,
    GroupLoss,
    SparseLoss,
)
from vizsla.training.sources.pairs import Margins, TrainingBatch

if TYPE_CHECKING:
    from torch import Tensor


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


def own_negatives_loss(scores: Tensor) -> Tensor:
    """The cross-entropy of finding each query's document among its own hard negatives, as ColBERT and ANCE have it.

    `scores`: [queries, documents]. Document i belongs to query i; the documents of all queries are followed by the
    negatives of the first query, of the second, and so on.

    >>> scores = torch.tensor([[0.0, 9.0, 0.0, 9.0], [9.0, 0.0, 9.0, 0.0]])
    >>> round(own_negatives_loss(scores).item(), 4)
    0.6931
    """
    count = scores.shape[1] // len(scores) - 1
    if not count:
        raise VizslaError(
            "loss.in_batch_negatives=false leaves a query only its hard negatives; set data.negatives_per_query to 1 "
            "or more"
        )
    logits = F.pad(-own_margins(scores, count), (1, 0))
    return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device=logits.device))


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
    """The mean squared difference of a network's and a teacher's margins, over all queries and their negatives.

    `scores`: [queries, documents]. Document i belongs to query i; the documents of all queries are followed by the
    negatives of the first query, of the second, and so on. `margins`: [queries, negatives] the teacher's score of a
    query's document minus those of its negatives.

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
    """[queries, negatives] the score of each query's document minus those of its negatives.

    Document i belongs to query i; the documents of all queries are followed by the negatives of the first, and so on.
    """
    own = torch.arange(len(scores), device=scores.device)[:, None]
    places = len(scores) + own * negatives + torch.arange(negatives, device=scores.device)
    return scores.gather(1, own) - scores.gather(1, places)


def in_batch_margin_mse_loss(scores: Tensor, margins: Tensor) -> Tensor:
    """The mean squared difference of a network's and a teacher's margins over all other documents of the batch.

    `scores` and `margins`: [queries, documents]. Document i belongs to query i.
    """
    own = scores.diagonal()[:, None] - scores
    others = torch.ones_like(own, dtype=torch.bool).fill_diagonal_(False)
    return F.mse_loss(own[others], margins.to(scores.dtype)[others])


def distillation_loss(name: str, scores: Tensor, margins: Tensor, beside: Tensor | None = None) -> Tensor:
    """A distillation loss by its name; `beside`: margins of another model, which are added to those of the network.

    >>> scores, margins = torch.tensor([[3.0, 1.0]]), torch.tensor([[5.0]])
    >>> [distillation_loss("margin-mse", scores, margins, beside).item() for beside in (None, torch.tensor([[3.0]]))]
    [9.0, 0.0]
    """
    if beside is not None:  # subtracting it from the scores of negatives increases the margins
        scores = torch.cat([scores[:, : len(scores)], _lowered(scores, beside)], dim=1)
    return kl_loss(scores, margins) if name == KL else margin_mse_loss(scores, margins)


def _lowered(scores: Tensor, beside: Tensor) -> Tensor:
    """The scores, with those of each query's own negatives lowered by `beside`."""
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


def group_distillation_loss(name: str, scores: Tensor, wanted: Tensor) -> Tensor:
    """The loss that learns a teacher's scores `wanted`, [groups, documents]; the first document is the positive.

    >>> scores, wanted = torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([[4.0, 0.0, 2.0]])
    >>> [group_distillation_loss(name, scores, wanted).item() for name in ("mse", "margin-mse")]
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


class Step(NamedTuple):
    """One step of training, after the texts of its batch are encoded."""

    number: int
    """How many steps came before this one."""
    network: Any
    distributed: Distributed
    batch: TrainingBatch
    packed: list[Batch]
    """This process's share of the texts, as they were encoded."""
    outputs: tuple[list[Tensor], ...]
    """The network's output for each chunk."""

    def vectors(self, side: int) -> Any:
        """The vectors of queries (0), of their documents (1) or of further documents, from all processes."""
        own = self.network.vectors(self.outputs[side], self.packed[side])
        gather = self.distributed.all_gather_tokens if isinstance(own, TokenTexts) else self.distributed.all_gather
        return gather(own)


class Objective(Protocol):
    """A loss; a frozen dataclass of plain settings, so that a resumed run can be compared with its checkpoint."""

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; further values to log are added to `metrics`."""


@dataclass(frozen=True)
class ContrastiveObjective:
    """Each query's document must score higher than all other documents of the batch, or match a teacher's margins."""

    loss: ContrastiveLoss = field(default_factory=ContrastiveLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; logs the share of queries whose own document has the highest score."""
        return _contrast(self.loss, step, metrics).loss


@dataclass(frozen=True)
class DualObjective:
    """Like `ContrastiveObjective`, plus the loss of a second teacher, which scores all documents of the batch."""

    loss: DenseLoss = field(default_factory=DenseLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; also logs both parts of it."""
        pairs = _contrast(self.loss, step, metrics)
        in_batch = in_batch_margin_mse_loss(pairs.scores, step.batch.extra.in_batch)
        metrics["pair_loss"], metrics["in_batch_loss"] = pairs.loss.detach(), in_batch.detach()
        return pairs.loss + self.loss.in_batch_weight * in_batch


@dataclass(frozen=True)
class SparseObjective:
    """Like `ContrastiveObjective`, with SPLADE's FLOPS regularizer."""

    loss: SparseLoss = field(default_factory=SparseLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; also logs how many terms vectors have."""
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
    false_negatives = step.batch.false_negatives if settings.mask_other_answers else None
    if settings.name == MARGIN:
        return margin_loss(scores, false_negatives)
    if settings.name in TAUGHT:
        given: Margins = step.batch.extra
        beside = None if given.beside is None else given.beside / settings.temperature
        taught = distillation_loss(settings.name, scores, given.pairs, beside)
        if not settings.contrastive_weight:
            return taught
        contrastive = contrastive_loss(scores, symmetric=settings.symmetric, false_negatives=false_negatives)
        return taught + settings.contrastive_weight * contrastive
    if not settings.in_batch_negatives:
        return own_negatives_loss(scores)
    return contrastive_loss(scores, symmetric=settings.symmetric, false_negatives=false_negatives)


@dataclass(frozen=True)
class GroupObjective:
    """A cross-encoder must score a query's document higher than its negatives, or match a teacher's scores."""

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
        return group_distillation_loss(self.loss.name, scaled, group.wanted)


@dataclass(frozen=True)
class LikelihoodObjective:
    """A generator must write each token of a text, given the tokens before it: cross-entropy over all tokens."""

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; logs the share of target tokens that the network ranks first."""
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
    """Augmented queries must find their documents by BM25's score or match a teacher's; added terms have a cost.

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
            loss = distillation_loss(self.loss.name, scaled, rows.margins)
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


@no_grad
def _accuracy(scores: Tensor) -> Tensor:
    """The share of queries whose own document has the highest score."""
    return (scores.argmax(1) == torch.arange(len(scores), device=scores.device)).float().mean()
