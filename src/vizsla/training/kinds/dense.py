"""Dense models: DPR, RepBERT, TAS-B, and models trained next to a frozen one as in SPAR."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from vizsla.errors import InputError, VizslaError
from vizsla.models import Dense, Spar, parse_model
from vizsla.neural.checkpoints.writing import save_layout
from vizsla.neural.heads.dense import Pooled, Towers, WithFrozenCompanion
from vizsla.text import Analyzer
from vizsla.training.kind import TRAINED_KINDS, KindSettings, TrainingData, TrainingInputs
from vizsla.training.loop.objectives import ContrastiveLoss, ContrastiveObjective, Objective
from vizsla.training.networks import (
    DEFAULT_ENCODER,
    SAMPLE,
    Base,
    base_encoder,
    known_model,
    load_network,
    write_network,
)
from vizsla.training.settings import TrainingSettings, require_positive, setting
from vizsla.training.sources.crops import CropSource
from vizsla.training.sources.dev_set import DevSet
from vizsla.training.sources.generated import GeneratedSource
from vizsla.training.sources.judged import DenseJudgedSource, JudgedSource
from vizsla.training.sources.source import PairKind, PairSource
from vizsla.training.sources.teacher import check_loss
from vizsla.training.sources.token_corpus import TokenCorpus, sample_of
from vizsla.training.sources.topics import DenseLoss, DualObjective, TopicSource, check_in_batch


@dataclass(frozen=True)
class DenseNetwork:
    """The network of a dense model."""

    base_model: str = setting(DEFAULT_ENCODER, "shipped network, saved model, or transformers encoder (folder or name)")
    pooling: str = setting("mean", "how the states of a text's tokens become one vector")
    normalize: bool = setting(True, "scale vectors to length 1")
    tied_encoders: bool = setting(True, "one encoder for queries and documents; otherwise each has its own")
    use_token_types: bool = setting(False, "documents have BERT's token type 1, to distinguish them from queries")
    companion: str = setting("", "dense model whose frozen vectors are concatenated, by name or folder")
    companion_weight: float = setting(1.0, "weight of the companion's scores at first; it is trained")

    def __post_init__(self) -> None:
        if self.use_token_types and not self.tied_encoders:
            raise VizslaError(
                "network.use_token_types is for one encoder that reads queries and documents; set "
                "network.tied_encoders=true"
            )
        require_positive(self, "network", "companion_weight")


@dataclass(frozen=True)
class DenseCropSource(CropSource):
    """Crops of documents, with the lengths that the trained model reads."""

    max_query_length: int = setting(64, "tokens of a query that the model reads, special ones included")
    max_document_length: int = setting(256, "tokens of a document that the model reads, special ones included")


class DensePairSource(PairSource, Protocol):
    """Where the pairs of a dense model come from, and how many tokens of a text are read."""

    @property
    def max_query_length(self) -> int:
        """Tokens of a query."""

    @property
    def max_document_length(self) -> int:
        """Tokens of a document."""


class DenseKindSettings(KindSettings, Protocol):
    """What the settings of all kinds of dense models have."""

    @property
    def network(self) -> DenseNetwork:
        """The network."""

    @property
    def data(self) -> DensePairSource:
        """Where pairs come from."""

    @property
    def loss(self) -> ContrastiveLoss:
        """The loss."""


@dataclass(frozen=True)
class DenseSettings:
    """The settings of a dense model."""

    network: DenseNetwork = field(default_factory=DenseNetwork)
    data: DenseJudgedSource | DenseCropSource | GeneratedSource | TopicSource = field(default_factory=DenseJudgedSource)
    loss: DenseLoss = field(default_factory=DenseLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        check_loss(self.data, self.loss.name)
        check_in_batch(self.data, self.loss)


D = TypeVar("D", bound=DenseKindSettings)


class DenseKindBase(PairKind[D]):
    """How the kinds of dense models are trained and written."""

    def load_base(self) -> Base:
        """The network to train: one or two encoders, perhaps with a frozen companion."""
        network, analyzer = dense_network(self.settings.network, self.settings.training.seed)
        return Base(network, analyzer, new_head=False)

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs and the dev sets, and what mines new negatives."""
        data = self.settings.data
        refresh = data.open_refresh(folder) if isinstance(data, JudgedSource) else None
        return TrainingData(data.open_pairs(folder), DevSet.open_all(folder), refresh)

    def objective(self) -> Objective:
        """A contrastive or margin loss."""
        return ContrastiveObjective(self.settings.loss)

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:
        """Write the model in 8 bits to search with, and in floats as other libraries open it.

        A model that was trained with a companion is written as SPAR of both.
        """
        network = network.cpu().eval()
        has_companion = isinstance(network, WithFrozenCompanion)
        trained = network.trained if has_companion else network
        documents = self.settings.data.open_documents(folder)
        model = self._write_encoders(_encoders(trained), base.analyzer, documents, output)
        if has_companion:
            self.with_companion(model, network.weight.item()).save(output)
        else:
            model.save(output)

    def _write_encoders(
        self, encoders: list[Pooled], analyzer: Analyzer, documents: TokenCorpus, output: Path
    ) -> Dense:
        """Write the encoder of both sides, or those of queries and documents."""
        data, count = self.settings.data, len(encoders)
        written = []
        sides = ("query", data.max_query_length), ("document", data.max_document_length)
        for encoder, (side, length) in zip(encoders, sides[-count:], strict=True):
            config: Any = encoder.encoder.config
            sample = sample_of(documents, SAMPLE, length)
            positions = config.max_position_embeddings
            written.append(
                write_network(encoder, output, max_weight=1.0, length=positions, sample=sample, pooling=encoder.pooling)
            )
            place = output if count == 1 else output / side
            save_layout(encoder, analyzer.tokenizer.content, place)  # type: ignore[attr-defined]
        return Dense(
            written[-1],
            analyzer,
            encoders[0].normalize,
            query_network=written[0] if count == 2 else None,
            length=min(data.max_document_length, written[-1].length),
            query_length=min(data.max_query_length, written[0].length),
            fields=data.document_fields,
            separator=data.separator,
            namespace=self.name,
            name=self.name,
        )

    def with_companion(self, model: Dense, weight: float) -> Spar:
        """The model and its frozen companion as one model, with the companion's scores times `weight`."""
        return Spar(model, self.companion(weight), weight, namespace=self.name, name=self.name)

    def companion(self, weight: float) -> Dense:
        """The frozen companion; an error if its trained weight is not above 0."""
        name = self.settings.network.companion
        if not weight > 0:
            raise VizslaError(f"the weight of {name} has become {weight:g}, so it does not help; train without it")
        return _companion(name)


@TRAINED_KINDS.register(
    "dense",
    help="A dense model from judged or generated queries, or from crops.",
    needs=("torch", "transformers", "onnx"),
)
class DenseKind(DenseKindBase[DenseSettings]):
    """Trains a dense model on judged or generated queries, or on crops of documents."""

    settings_class = DenseSettings

    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:
        """Pack pairs and dev sets, and cluster queries if batches are drawn from one topic."""
        super().prepare(inputs, base, folder)
        if isinstance(self.settings.data, TopicSource):
            self.settings.data.prepare_clusters(base.network, folder)

    def objective(self) -> Objective:
        """A contrastive or margin loss, or a distillation loss with one or two teachers."""
        return DualObjective(self.settings.loss) if self.settings.loss.in_batch_weight else super().objective()


def dense_network(settings: DenseNetwork, seed: int = 0) -> tuple[Pooled | Towers | WithFrozenCompanion, Analyzer]:
    """The network of a dense model, and the analyzer that makes its word pieces."""
    base_model = known_model(settings.base_model)
    encoder, analyzer, *_ = base_encoder(settings.base_model, seed)
    if settings.use_token_types and encoder.config.type_vocab_size < 2:
        raise InputError("network.use_token_types needs a BERT with two token types", file=settings.base_model)
    encoder.token_types = settings.use_token_types
    documents = Pooled(encoder, settings.pooling, settings.normalize)
    trained: Pooled | Towers = documents
    if not settings.tied_encoders:
        saved = base_model.query_network if isinstance(base_model, Dense) else None
        queries = deepcopy(encoder) if saved is None else load_network(saved).encoder
        trained = Towers(Pooled(queries, settings.pooling, settings.normalize), documents)
    if not settings.companion:
        return trained, analyzer
    companion = _companion(settings.companion)
    if companion.analyzer != analyzer:
        raise InputError("this model has another tokenizer than the model to train", file=settings.companion)
    return WithFrozenCompanion(trained, network_of(companion), settings.companion_weight), analyzer


def network_of(model: Dense) -> Pooled | Towers:
    """The network of a dense model, in torch."""
    encoders = []
    for network in (model.query_network, model.network):
        if network is None:
            continue
        encoder = load_network(network)
        assert isinstance(encoder, Pooled)
        encoder.normalize = model.normalize
        encoders.append(encoder)
    return encoders[0] if len(encoders) == 1 else Towers(*encoders)


def _companion(name: str) -> Dense:
    model = parse_model(name)
    if not isinstance(model, Dense):
        raise InputError("this is not a dense model, as a companion must be", file=name)
    return model


def _encoders(network: Pooled | Towers) -> list[Pooled]:
    """The encoders at inference: one that reads token types becomes two that do not need them."""
    if isinstance(network, Towers):
        return [network.queries, network.documents]
    if not getattr(network.encoder, "token_types", False):
        return [network]
    documents = deepcopy(network)
    embeddings: Any = documents.encoder.embeddings
    embeddings.token_type_embeddings.weight.data[0] = embeddings.token_type_embeddings.weight.data[1]
    return [network, documents]
