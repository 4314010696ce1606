"""What training minimizes: losses of scores, and the loss of a batch from what the network made of its texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from vizsla.errors import VizslaError
from vizsla.neural.chunks import Batch
from vizsla.neural.heads.colbert import TokenTexts
from vizsla.neural.lazy_torch import F, no_grad, torch
from vizsla.training.loop.distributed import Distributed
from vizsla.training.loop.products import scores_of
from vizsla.training.settings import require_at_least, require_one_of, require_positive, setting
from vizsla.training.sources.pairs import Margins, TrainingBatch

if TYPE_CHECKING:
    from torch import Tensor


CONTRASTIVE, MARGIN = "contrastive", "margin"
MARGIN_MSE, KL = "margin-mse", "kl"
TAUGHT = (MARGIN_MSE, KL)
"""The losses that distill a teacher's margins."""


@dataclass(frozen=True)
class ContrastiveLoss:
    """The loss that separates a query's own document from the other documents of the batch.

    With a teacher, margin-mse is the mean square of (s+ - s-) of the network minus (s+ - s-) of the teacher, where s+
    is the score of a query's document and s- that of one of its hard negatives; kl is the divergence of the network's
    softmax over a query's document and its hard negatives from the teacher's.
    """

    name: str = setting(
        CONTRASTIVE,
        "contrastive (InfoNCE), margin (RepBERT's hinge of 1), or margin-mse or kl (of a teacher's scores)",
    )
    temperature: float = setting(1.0, "scores are divided by it")
    symmetric: bool = setting(True, "also separate each document's own query from the other queries")
    in_batch_negatives: bool = setting(
        True,
        "documents of the batch's other queries are negatives, too; otherwise only a query's hard negatives are",
    )
    mask_other_answers: bool = setting(
        True,
        "other documents of the batch that answer a query are not its negatives, as they are in most papers",
    )
    contrastive_weight: float = setting(
        0.0, "weight of the contrastive loss that is added to margin-mse or kl, as ColBERTv2 does; 0 for none"
    )

    def __post_init__(self) -> None:
        require_one_of("loss", self.name, (CONTRASTIVE, MARGIN, *TAUGHT))
        require_positive(self, "loss", "temperature")
        require_at_least(self, "loss", 0, "contrastive_weight")
        if self.contrastive_weight and self.name not in TAUGHT:
            raise VizslaError(f"loss.contrastive_weight adds to margin-mse or kl, not to loss.name={self.name}")
        if not self.mask_other_answers and self.name == MARGIN:
            raise VizslaError("loss.name=margin takes all answers as positives, so loss.mask_other_answers stays true")
        if not self.in_batch_negatives and (self.name != CONTRASTIVE or self.symmetric):
            raise VizslaError(
                "loss.in_batch_negatives=false leaves a query only its hard negatives, which needs "
                "loss.name=contrastive and loss.symmetric=false"
            )


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
        return contrast(self.loss, step, metrics).loss


class Contrast(NamedTuple):
    """The loss of a step, its scores, its query vectors, and its document vectors side by side."""

    loss: Tensor
    scores: Tensor
    queries: Any
    documents: list[Any]


def contrast(settings: ContrastiveLoss, step: Step, metrics: dict[str, Tensor]) -> Contrast:
    queries, *documents = (step.vectors(side) for side in range(len(step.outputs)))
    scores = scores_of(queries, documents)
    if settings.temperature != 1:
        scores = scores / settings.temperature
    return Contrast(loss_of(settings, scores, step, metrics), scores, queries, documents)


def loss_of(settings: ContrastiveLoss, scores: Tensor, step: Step, metrics: dict[str, Tensor]) -> Tensor:
    """The loss of [queries, documents] scores; logs the share of queries whose own document has the highest."""
    metrics["accuracy"] = accuracy(scores)
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


@no_grad
def accuracy(scores: Tensor) -> Tensor:
    """The share of queries whose own document has the highest score."""
    return (scores.argmax(1) == torch.arange(len(scores), device=scores.device)).float().mean()
