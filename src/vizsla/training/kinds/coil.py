"""COIL: vectors of tokens that are compared where the tokens are equal, with or without a vector for the whole text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from vizsla.errors import VizslaError
from vizsla.models import Coil, Model
from vizsla.neural.checkpoints.writing import save_layout
from vizsla.neural.heads.coil import Coil as Network
from vizsla.neural.heads.coil import CoilVectors
from vizsla.neural.lazy_torch import no_grad, torch
from vizsla.neural.onnx_graph import Precision
from vizsla.training.kind import TRAINED_KINDS, TrainingData
from vizsla.training.kinds.dense import DenseCropSource
from vizsla.training.loop.objectives import ContrastiveLoss, Objective, Step, loss_of
from vizsla.training.loop.products import inner_products
from vizsla.training.networks import DEFAULT_ENCODER, SAMPLE, Base, base_encoder, load_network, write_network
from vizsla.training.settings import TrainingSettings, require_at_least, require_one_of, setting
from vizsla.training.sources.dev_set import Assemble, DevSet, Encode
from vizsla.training.sources.generated import GeneratedSource
from vizsla.training.sources.judged import JudgedSource
from vizsla.training.sources.source import PairKind
from vizsla.training.sources.teacher import check_loss
from vizsla.training.sources.token_corpus import sample_of

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CoilNetwork:
    """The network of COIL."""

    base_model: str = setting(DEFAULT_ENCODER, "shipped network, saved model, or transformers encoder (folder or name)")
    token_dimensions: int = setting(32, "numbers of a token's vector")
    cls_dimensions: int = setting(768, "numbers of a text's vector, from the state of [CLS]; 0 for COIL-tok")
    precision: str = setting("float32", f"of the weights that are written: {', '.join(get_args(Precision))}")

    def __post_init__(self) -> None:
        require_at_least(self, "network", 1, "token_dimensions")
        require_at_least(self, "network", 0, "cls_dimensions")
        require_one_of("precision", self.precision, get_args(Precision))


@dataclass(frozen=True)
class CoilSettings:
    """The settings of COIL."""

    network: CoilNetwork = field(default_factory=CoilNetwork)
    data: JudgedSource | DenseCropSource | GeneratedSource = field(default_factory=JudgedSource)
    loss: ContrastiveLoss = field(default_factory=ContrastiveLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        check_loss(self.data, self.loss.name)
        if isinstance(self.data, JudgedSource) and self.data.refresh_steps:
            raise VizslaError("data.refresh_steps is for models with one vector a text, and COIL has one a token")


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


@TRAINED_KINDS.register(
    "coil", help="COIL-full or COIL-tok from judged queries.", needs=("torch", "transformers", "onnx")
)
class CoilKind(PairKind[CoilSettings]):
    """Trains COIL on judged or generated queries, or on crops of documents."""

    settings_class = CoilSettings

    def load_base(self) -> Base:
        """The encoder of the base model with COIL's head; the base model's own head if it has these widths."""
        settings, seed = self.settings.network, self.settings.training.seed
        widths = settings.token_dimensions, settings.cls_dimensions
        saved = _saved_coil(settings.base_model)
        if saved is None:
            encoder, analyzer, *_ = base_encoder(settings.base_model, seed)
            return Base(Network(encoder, *widths), analyzer)
        network = load_network(saved.network)
        if (network.width, network.cls_width) == widths:
            return Base(network, saved.analyzer, new_head=False)
        torch.manual_seed(seed)
        return Base(Network(network.encoder, *widths), saved.analyzer)

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs and the dev sets."""
        data = self.settings.data
        return TrainingData(data.open_pairs(folder), CoilDevSet.open_all(folder, max_length=data.max_document_length))

    def objective(self) -> Objective:
        """A contrastive or margin loss over COIL's scores, or a distillation loss."""
        return CoilObjective(self.settings.loss)

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:
        """Write the model to search with, and its encoder in floats as other libraries open it."""
        data = self.settings.data
        network = network.cpu().eval()
        positions = network.encoder.config.max_position_embeddings
        sample = sample_of(data.open_documents(folder), SAMPLE, data.max_document_length)
        precision: Any = self.settings.network.precision
        written = write_network(network, output, max_weight=1.0, length=positions, sample=sample, precision=precision)
        Coil(
            written,
            base.analyzer,
            length=min(data.max_document_length, positions),
            query_length=min(data.max_query_length, positions),
            fields=data.document_fields,
            namespace=self.name,
            name=self.name,
        ).save(output)
        save_layout(network, base.analyzer.tokenizer.content, output)


def _saved_coil(base_model: str) -> Coil | None:
    """The COIL that was saved to a folder; None if the folder has another kind of model."""
    model = Model.load(base_model) if (Path(base_model) / "model.json").is_file() else None
    return model if isinstance(model, Coil) else None
