"""Dense models: DPR, RepBERT, TAS-B, models trained next to a frozen one as in SPAR, and SPAR's Lambda."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.models import Dense, Model, Reranker, Spar, parse_model
from vizsla.neural.device import torch_device
from vizsla.neural.heads.dense import Pooled, Towers, WithFrozenCompanion
from vizsla.neural.layouts import save_layout
from vizsla.neural.lazy_torch import torch
from vizsla.text import Analyzer
from vizsla.training.kind import TRAINED_KINDS, KindSettings, TrainingData, TrainingInputs
from vizsla.training.kinds.pairs import PairKind
from vizsla.training.loop.objectives import ContrastiveObjective, DualObjective, Objective
from vizsla.training.loop.products import SparseRows
from vizsla.training.networks import DEFAULT_ENCODER, Base, base_encoder, known_model, load_network
from vizsla.training.prepare.distillation import NONE
from vizsla.training.prepare.writing import SAMPLE, write_network
from vizsla.training.settings import (
    TAUGHT,
    ContrastiveLoss,
    DenseLoss,
    TrainingSettings,
    require_at_least,
    require_positive,
    setting,
)
from vizsla.training.sources.dev_set import text_vectors
from vizsla.training.sources.judged import JudgedTexts
from vizsla.training.sources.pairs import BatchSource, ScoredPairs
from vizsla.training.sources.source import (
    SOURCE_HELP,
    CropSource,
    GeneratedSource,
    JudgedSource,
    PairSource,
    TeacherSource,
    open_dev,
)
from vizsla.training.sources.teacher import (
    MarginSquares,
    PairScorer,
    TeacherSettings,
    check_loss,
    open_teacher,
    teacher_factor,
)
from vizsla.training.sources.texts import LINE_BREAK
from vizsla.training.sources.token_corpus import TokenCorpus, sample_of
from vizsla.training.sources.topics import TeacherTokens, TeacherVectors, TopicPairs, k_means
from vizsla.vectors import DenseVectors, JoinedVectors, SparseVectors, TokenVectors, Vectors

_CLUSTERS, _VECTORS = "clusters.npy", "in_batch"
_QUERIES_PER_CLUSTER = 200


_SEP_HELP = "title and text of a document have [SEP] between them, as in DPR; otherwise a line break"


def _separator(after_title: bool) -> str:
    """What is between title and text."""
    return " [SEP] " if after_title else LINE_BREAK


@dataclass(frozen=True)
class DenseJudgedSource(JudgedSource):
    """Judged queries of data sets, and how title and text become one."""

    sep_after_title: bool = setting(False, _SEP_HELP)

    @property
    def separator(self) -> str:
        """What is between the fields of a document."""
        return _separator(self.sep_after_title)


@dataclass(frozen=True)
class DenseTeacherSource(TeacherSource):
    """Sentences and questions with a teacher's rankings, and how title and text become one."""

    sep_after_title: bool = setting(False, _SEP_HELP)

    @property
    def separator(self) -> str:
        """What is between the fields of a document."""
        return _separator(self.sep_after_title)


@dataclass(frozen=True)
class TopicSource(DenseJudgedSource):
    """Judged queries in batches of one topic, with balanced margins and perhaps a second teacher, as in TAS-B."""

    source: str = setting("topics", SOURCE_HELP)
    clusters: int = setting(0, f"clusters of queries; 0 for one of {_QUERIES_PER_CLUSTER} queries each")
    margin_bins: int = setting(10, "bins of a query's margins, from each of which negatives are drawn equally often")
    in_batch_teacher: str = setting("", "model whose scores of all documents of a batch are learnt; empty for none")
    in_batch_scale: float = setting(
        0.0, "factor of its scores; 0 chooses it so that the margins of mined pairs are about 1"
    )
    seed: int = setting(0, "seed of the clusters")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, "data", 0, "clusters", "in_batch_scale")
        require_at_least(self, "data", 1, "margin_bins")
        if not self.teacher:
            raise VizslaError("data.source=topics balances the margins of a teacher; set data.teacher")

    def prepare(self, inputs: TrainingInputs, analyzer: Analyzer, folder: Path) -> None:
        """Find positives and hard negatives, and the scores of both teachers, and pack all texts."""
        texts = list(self.read(inputs, analyzer))
        self.save(texts, folder)
        if self.in_batch_teacher:
            teacher = TeacherSettings(self.in_batch_teacher, self.in_batch_scale)
            teacher_vectors(texts, teacher).save(folder / _VECTORS)

    def prepare_clusters(self, network: Any, folder: Path) -> None:
        """Group the queries by the vectors that the network to train gives them."""
        queries = self.open_mined(folder).queries
        device, training = torch_device(), network.training
        network.to(device).eval()
        vectors = torch.cat([*text_vectors(queries, 0, self.max_query_length, network, network.vectors, device)])
        network.cpu().train(training)
        count = self.clusters or max(len(queries) // _QUERIES_PER_CLUSTER, 1)
        np.save(folder / _CLUSTERS, k_means(vectors, count, self.seed), allow_pickle=False)

    def open_pairs(self, folder: Path) -> BatchSource:
        """The queries with their clusters, positives and negatives, and the teachers' scores."""
        scored = super().open_pairs(folder)
        assert isinstance(scored, ScoredPairs)
        in_batch = TeacherVectors.open(folder / _VECTORS) if self.in_batch_teacher else None
        return TopicPairs(scored, np.load(folder / _CLUSTERS, allow_pickle=False), self.margin_bins, in_batch)


def check_in_batch(data: object, loss: DenseLoss) -> None:
    """Refuse a second teacher whose loss has no weight, and a weight without such a teacher."""
    taught = isinstance(data, TopicSource) and bool(data.in_batch_teacher)
    if taught != (loss.in_batch_weight > 0):
        raise VizslaError(
            "loss.in_batch_weight is the weight of data.in_batch_teacher (data.source=topics), so set both or neither"
        )


def teacher_vectors(collections: Sequence[JudgedTexts], settings: TeacherSettings) -> TeacherVectors:
    """The vectors of a model for all train queries, and for the documents that are drawn for them."""
    teacher = open_teacher(settings.teacher)
    if isinstance(teacher, Reranker):
        raise VizslaError(
            f"data.in_batch_teacher {settings.teacher} is a cross-encoder, which would have to read all pairs of every "
            "batch; name a model"
        )
    numbers, first, sizes = [], 0, []
    encoded: list[tuple[list[Vectors], list[Vectors]]] = []
    for documents, queries, pairs in collections:
        used = np.unique(np.concatenate([pairs.positives.ids, pairs.negatives.ids]))
        scorer = PairScorer(teacher, documents, list(queries.values()), used)
        encoded.append((scorer.query_vectors(scorer.queries), scorer.document_vectors()))
        numbers.append(used + first)
        first += len(documents)
        scores = [
            scorer.scores(np.repeat(np.arange(len(queries)), np.diff(side.offsets)), side.ids)
            for side in (pairs.positives, pairs.negatives)
        ]
        sizes.append(MarginSquares.of(pairs.positives, pairs.negatives, scores[0], scores[1]))
    factor = teacher_factor(settings, sizes)
    tokens = _tokens([_with_tokens(both) for both in encoded], factor, settings.teacher)
    queries_of, documents_of = ([_without_tokens(both[side]) for both in encoded] for side in (0, 1))
    columns: dict[tuple[str, str], int] = {}
    sparse = _sparse_rows([factor * one for one in queries_of], columns, add=True), _sparse_rows(documents_of, columns)
    dense = _dense_rows([factor * one for one in queries_of]), _dense_rows(documents_of)
    return TeacherVectors(np.concatenate(numbers), dense, sparse, tokens)


_TokenPair = tuple[TokenVectors, TokenVectors]


def _with_tokens(both: tuple[list[Vectors], list[Vectors]]) -> list[_TokenPair]:
    """The groups of queries and documents that have token vectors."""
    pairs = zip(*both, strict=True)
    return [(q, d) for q, d in pairs if isinstance(q, TokenVectors) and isinstance(d, TokenVectors)]


def _without_tokens(groups: list[Vectors]) -> Vectors:
    """The group of sparse and dense vectors; empty vectors if there is none."""
    others = [vectors for vectors in groups if not isinstance(vectors, TokenVectors)]
    return others[0] if others else DenseVectors({"": np.zeros((len(groups[0]), 0), np.float32)})


def _tokens(collections: Sequence[list[_TokenPair]], factor: float, teacher: str) -> TeacherTokens | None:
    """The token vectors of all data sets, in 16 bits as an index stores them."""
    if not collections[0]:
        return None
    if len(collections[0]) > 1:
        raise VizslaError(f"data.in_batch_teacher {teacher} has several parts with token vectors; name one with one")
    arrays: list[np.ndarray] = []
    for side in (0, 1):
        several = [groups[0][side] for groups in collections]
        sizes = np.concatenate([np.diff(vectors.starts) for vectors in several])
        arrays.append(np.concatenate([vectors.rows for vectors in several]).astype(np.float16))
        arrays.append(np.append(0, np.cumsum(sizes)))
    first = collections[0][0]
    weight = np.array(factor * first[0].weight * first[1].weight, np.float32)
    return TeacherTokens(arrays[0], arrays[1], arrays[2], arrays[3], weight)


def _dense_rows(several: Sequence[Vectors]) -> np.ndarray:
    """The dense parts of vectors, side by side."""
    rows = []
    for vectors in several:
        dense = vectors.dense if isinstance(vectors, JoinedVectors) else vectors
        parts = list(dense.parts.values()) if isinstance(dense, DenseVectors) else [np.zeros((len(vectors), 0))]
        rows.append(np.concatenate(parts, 1).astype(np.float32))
    return np.concatenate(rows)


def _sparse_rows(several: Sequence[Vectors], columns: dict[tuple[str, str], int], *, add: bool = False) -> SparseRows:
    """The sparse parts of vectors over the terms that have a column; with `add`, all terms get one."""
    pointers, terms, weights = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    for vectors in several:
        sparse = vectors.sparse if isinstance(vectors, JoinedVectors) else vectors
        if not isinstance(sparse, SparseVectors):
            pointers.append(np.full(len(vectors), pointers[-1][-1]))
            continue
        names = (sparse.vocabulary[i] for i in range(len(sparse.vocabulary)))
        known = np.array([columns.setdefault(n, len(columns)) if add else columns.get(n, -1) for n in names], np.int64)
        kept = known[sparse.indices] >= 0
        ends = np.concatenate([[0], np.cumsum(kept)])[sparse.pointers[1:]]
        pointers.append(ends + pointers[-1][-1])
        terms.append(known[sparse.indices][kept])
        weights.append(sparse.values[kept].astype(np.float32))
    return SparseRows(np.concatenate(pointers), np.concatenate(terms), np.concatenate(weights))


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

    @property
    def separator(self) -> str:
        """What is between the fields of a document."""


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
        return TrainingData(data.open_pairs(folder), open_dev(folder), refresh)

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

    def open_model(self, output: Path) -> Model:
        """The written model."""
        return Model.load(output)

    def usage(self, output: Path) -> str:
        """A command that indexes with the model."""
        return f"vizsla index SOURCE -o DIR --model {output}"


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


@dataclass(frozen=True)
class LambdaSettings:
    """The settings of a dense model that imitates a teacher."""

    network: DenseNetwork = field(default_factory=DenseNetwork)
    data: DenseTeacherSource = field(default_factory=DenseTeacherSource)
    loss: ContrastiveLoss = field(default_factory=ContrastiveLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        if self.loss.name in TAUGHT:
            raise VizslaError(f"loss.name={self.loss.name} learns a teacher's scores, but lambda learns its ranking")


@TRAINED_KINDS.register(
    "lambda", help="A dense model that imitates a lexical one (SPAR).", needs=("torch", "transformers", "onnx")
)
class LambdaKind(DenseKindBase[LambdaSettings]):
    """Trains a dense model on sentences of documents with a teacher's ranking."""

    settings_class = LambdaSettings

    def check_inputs(self, inputs: TrainingInputs) -> None:
        """Refuse settings without queries, before anything is read."""
        super().check_inputs(inputs)
        if self.settings.data.sentences == NONE and not self.settings.data.questions:
            raise VizslaError(
                f"{self.name} learns from questions; name them, as in --set data.questions=train.jsonl, or take "
                "sentences of the documents with --set data.sentences=sampled"
            )

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs, the dev sets, and the dev questions on which the model is compared with its teacher."""
        data = super().open_data(folder)
        return TrainingData(data.pairs, [*data.dev, *self.settings.data.open_imitation(folder)])

    def with_companion(self, model: Dense, weight: float) -> Spar:
        """The frozen companion and the model as one; the companion is the first part and weighs 1."""
        return Spar(self.companion(weight), model, 1 / weight, namespace=self.name, name=self.name)

    def usage(self, output: Path) -> str:
        """A command that indexes with the model."""
        alone = super().usage(output)
        return alone if self.settings.network.companion else f'{alone}, or "spar(dense=minilm, lexical={output})"'
