"""Cross-encoders: rerankers that read a query and a document together; and the pairs they learn from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import BeirDataset, Document
from vizsla.errors import VizslaError
from vizsla.index.storage.document_store import DocumentStore
from vizsla.models import BM25, QUERIES, Model, Reranker
from vizsla.models.reranker import reranker_folder
from vizsla.neural.checkpoints.checkpoint import find_checkpoint
from vizsla.neural.heads.cross import Cross, head_arrays, keep_layers
from vizsla.neural.layouts import save_reranker
from vizsla.neural.lazy_torch import torch
from vizsla.neural.network import ABOUT, Network
from vizsla.text import Analyzer
from vizsla.training.arrays.cross_encoder import CrossEncoderData, CrossEncoderDev, CrossEncoderPairs
from vizsla.training.kind import TRAINED_KINDS, TrainedKind, TrainingData, TrainingInputs
from vizsla.training.loop.objectives import GroupObjective, Objective
from vizsla.training.networks import DEFAULT_ENCODER, Base, base_encoder, known_model, load_network
from vizsla.training.settings import GROUP_TAUGHT, GroupLoss, TrainingSettings, require_at_least, setting
from vizsla.training.sources.generated import GeneratedQueries, generated_queries
from vizsla.training.sources.judged import (
    NEGATIVES_DEPTH,
    NEGATIVES_HELP,
    AnsweredQueries,
    check_run_has_one_dataset,
    first_stage_rankings,
    judgement_rows,
    positives_and_negatives,
)
from vizsla.training.sources.pairs import MinedPairs, ScoredPairs
from vizsla.training.sources.teacher import TeacherSettings, check_loss, open_teachers, scaled, taught_pairs
from vizsla.training.sources.texts import FIELDS, packed_texts
from vizsla.training.sources.token_corpus import TokenCorpus


@dataclass(frozen=True)
class CrossEncoderDataSettings(TeacherSettings):
    """Which documents a query is trained with, whose scores are learnt, and what is reranked in dev sets."""

    max_queries: int = setting(0, "train queries of a data set; of more a random sample is taken; 0 for all")
    queries_per_document: int = setting(5, "generated queries of a document of --corpus that are learnt from")
    max_documents: int = setting(100_000, "documents of --corpus with queries; of more a random sample is taken")
    negatives_per_query: int = setting(7, "hard negatives drawn for a query in each step")
    negatives: str = setting("", NEGATIVES_HELP)
    negatives_depth: int = setting(1000, "documents of a ranking that hard negatives are drawn from")
    kept_negatives: int = setting(0, "hard negatives of a query that are kept, drawn at random once; 0 for all")
    candidates: str = setting("", "TREC run or model whose documents are reranked in dev sets; by default negatives")
    candidates_depth: int = setting(NEGATIVES_DEPTH, "candidates of a dev query")
    max_query_length: int = setting(64, "tokens of a query that are read, special ones included")
    max_length: int = setting(256, "tokens of query and document together, special ones included")
    seed: int = setting(0, "seed of the samples of queries, documents and negatives")

    def __post_init__(self) -> None:
        positive = "negatives_per_query", "negatives_depth", "candidates_depth", "queries_per_document", "max_documents"
        require_at_least(self, "data", 1, *positive)
        require_at_least(self, "data", 0, "max_queries", "kept_negatives")
        self.check_teacher(self.negatives_per_query)

    @property
    def dev_first_stage(self) -> str:
        """The first stage that ranks the candidates of dev queries."""
        return self.candidates or self.negatives or "bm25"

    @property
    def generated(self) -> GeneratedQueries:
        """How generated queries are read, and which negatives they get."""
        return GeneratedQueries(
            queries_per_document=self.queries_per_document, max_documents=self.max_documents,
            negatives_per_query=self.negatives_per_query, negatives=self.negatives or "bm25",
            negatives_depth=self.negatives_depth, seed=self.seed,
        )  # fmt: skip

    def open_teachers(self) -> list[Model | Reranker]:
        """The teachers; a cross-encoder reads no more of a pair than the one that learns from it."""
        return [self._as_short(one) if isinstance(one, Reranker) else one for one in open_teachers(self.teacher)]

    def _as_short(self, teacher: Reranker) -> Reranker:
        lengths = min(teacher.query_length, self.max_query_length), min(teacher.length, self.max_length)
        return replace(teacher, query_length=lengths[0], length=lengths[1])


def cross_encoder_data(
    settings: CrossEncoderDataSettings, analyzer: Analyzer, inputs: TrainingInputs, folder: Path
) -> CrossEncoderData:
    """Train queries with hard negatives and a teacher's scores, and dev queries with candidates, as arrays.

    A teacher's scores are stored in the folder, so that an interrupted run continues from there.
    """
    check_run_has_one_dataset(settings.dev_first_stage, inputs.dev)
    pairs = cross_encoder_pairs(settings, analyzer, inputs, folder)
    dev = [cross_encoder_dev(dataset, analyzer, settings) for dataset in inputs.dev]
    return CrossEncoderData(pairs, dev, analyzer.tokenizer.content)  # type: ignore[attr-defined]


def cross_encoder_pairs(
    settings: CrossEncoderDataSettings, analyzer: Analyzer, inputs: TrainingInputs, folder: Path
) -> MinedPairs | ScoredPairs:
    """All train queries, judged and generated ones together."""
    collections = _collections(settings, inputs, folder)
    if not settings.teacher:
        return MinedPairs.concatenate([one.packed(analyzer) for one in collections])
    teachers = settings.open_teachers()
    taught = [
        taught_pairs(one.packed(analyzer), one.documents, one.queries, teachers, folder / f"teacher-{number}.scores")
        for number, one in enumerate(collections)
    ]
    return scaled(ScoredPairs.concatenate(taught), settings)


def _collections(settings: CrossEncoderDataSettings, inputs: TrainingInputs, folder: Path) -> Iterator[AnsweredQueries]:
    """The queries of each data set, then the generated ones."""
    check_run_has_one_dataset(settings.negatives, inputs.datasets)
    corpus = None if inputs.corpus is None else _expanded(inputs.corpus, settings)
    for dataset in inputs.datasets:
        rng = np.random.default_rng(settings.seed)
        yield _judged(dataset, settings, rng).thinned(settings.kept_negatives, rng)
    if corpus is not None:
        rng = np.random.default_rng(settings.seed)
        yield generated_queries(corpus, settings.generated, folder).thinned(settings.kept_negatives, rng)


def _expanded(corpus: Iterable[Document], settings: CrossEncoderDataSettings) -> DocumentStore:
    """The documents, which must have generated queries, and no run as their first stage."""
    documents = DocumentStore.of(corpus)
    if Path(settings.negatives).is_file():
        raise VizslaError(
            f"{settings.negatives}: a run does not have the generated queries of --corpus; name a model instead"
        )
    if not any(QUERIES in document.content for document in documents):
        raise VizslaError(
            f"the documents have no field {QUERIES!r} with generated queries; write it with vizsla queries generate or "
            "name judged queries with --dataset"
        )
    return documents


def _judged(dataset: BeirDataset, settings: CrossEncoderDataSettings, rng: np.random.Generator) -> AnsweredQueries:
    queries, documents = dataset.queries_of(dataset.qrels("train")), DocumentStore.of(dataset.documents())
    if settings.max_queries and len(queries) > settings.max_queries:
        names = list(queries)
        chosen = np.sort(rng.permutation(len(names))[: settings.max_queries])
        queries = {names[i]: queries[names[i]] for i in chosen.tolist()}
    bm25, depth = BM25(fields=FIELDS), settings.negatives_depth
    numbers = positives_and_negatives(documents, queries, dataset, "train", bm25, settings.negatives, depth)
    return AnsweredQueries(documents, list(queries.values()), *numbers)


def cross_encoder_dev(
    dataset: BeirDataset, analyzer: Analyzer, settings: CrossEncoderDataSettings, split: str = "dev"
) -> CrossEncoderDev:
    """A data set's judged queries with the candidates of a first stage."""
    qrels = dataset.qrels(split)
    queries, documents = dataset.queries_of(qrels), DocumentStore.of(dataset.documents())
    rankings = first_stage_rankings(settings.dev_first_stage, documents, queries, settings.candidates_depth)
    own = documents.numbers(list(queries))
    candidates = (ranked[ranked != own[i]] for i, ranked in enumerate(rankings[q] for q in range(len(rankings))))
    return CrossEncoderDev.of(
        dataset.name,
        packed_texts(list(queries.values()), analyzer),
        packed_texts(documents.texts(FIELDS), analyzer),
        TokenCorpus.of(candidates),
        judgement_rows(documents, queries, qrels),
        max_query_length=settings.max_query_length,
        max_length=settings.max_length,
    )


@dataclass(frozen=True)
class CrossEncoderNetwork:
    """The network of a cross-encoder."""

    base_model: str = setting(DEFAULT_ENCODER, "saved model, or transformers encoder or cross-encoder (folder or name)")
    layers: int = setting(0, "layers of the base model that are kept, evenly spaced, the last included; 0 for all")

    def __post_init__(self) -> None:
        require_at_least(self, "network", 0, "layers")


@dataclass(frozen=True)
class CrossEncoderSettings:
    """The settings of a cross-encoder."""

    network: CrossEncoderNetwork = field(default_factory=CrossEncoderNetwork)
    data: CrossEncoderDataSettings = field(default_factory=CrossEncoderDataSettings)
    loss: GroupLoss = field(default_factory=GroupLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        check_loss(self.data, self.loss.name, GROUP_TAUGHT)


@TRAINED_KINDS.register(
    "cross-encoder", help="A reranker that reads query and document together.", needs=("torch", "transformers")
)
class CrossEncoderKind(TrainedKind[CrossEncoderSettings]):
    """Trains a cross-encoder on judged and generated queries with hard negatives of a first stage."""

    settings_class = CrossEncoderSettings

    @property
    def reads_datasets(self) -> bool:
        """It learns from judged queries."""
        return True

    @property
    def reads_corpus(self) -> bool:
        """It also learns from documents with a field of generated queries."""
        return True

    def check_inputs(self, inputs: TrainingInputs) -> None:
        """Refuse inputs without judged and without generated queries."""
        if not inputs.datasets and inputs.corpus is None:
            raise VizslaError(
                f"{self.name} learns from judged or generated queries; name a data set with --dataset, or documents "
                "with a field queries with --corpus"
            )

    def load_base(self) -> Base:
        """A cross-encoder; the head is the base model's if it has one."""
        chosen = self.settings.network
        base = cross_encoder_network(chosen.base_model, self.settings.training.seed, chosen.layers)
        data, positions = self.settings.data, base.network.encoder.config.max_position_embeddings
        if not data.max_query_length + 2 <= data.max_length <= positions or data.max_query_length < 3:
            raise VizslaError(
                f"data.max_query_length {data.max_query_length} and data.max_length {data.max_length} do not fit: this "
                f"encoder reads {positions} tokens at most, a query needs 3 or more, and a document 2 more than the "
                "query"
            )
        return base

    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:
        """Pack queries with hard negatives and a teacher's scores, and dev queries with candidates."""
        cross_encoder_data(self.settings.data, base.analyzer, inputs, folder).save(folder)

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs and the dev sets."""
        settings = self.settings.data
        data = CrossEncoderData.open(folder, settings.negatives_per_query)
        return TrainingData(CrossEncoderPairs(data.pairs, settings.max_query_length, settings.max_length), data.dev)

    def objective(self) -> Objective:
        """A loss over the documents of each query, or one that learns a teacher's scores."""
        return GroupObjective(self.settings.loss)

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:  # noqa: ARG002
        """Write the reranker as transformers opens it."""
        data = self.settings.data
        save_reranker(
            network.cpu().eval(),
            CrossEncoderData.open(folder).tokenizer,
            output,
            name=self.name,
            query_length=data.max_query_length,
            length=data.max_length,
        )

    def open_model(self, output: Path) -> Reranker:
        """The written reranker."""
        return Reranker.open(output)

    def usage(self, output: Path) -> str:
        """A command that reranks with the model."""
        return f"vizsla run rerank DIR --run RUN --queries QUERIES --reranker {output} -o OUT"


def cross_encoder_network(base_model: str, seed: int = 0, layers: int = 0) -> Base:
    """A cross-encoder to train and the analyzer that makes its word pieces.

    `layers`: how many of the encoder's layers are kept; 0 for all.
    """
    exported = Path(reranker_folder(base_model))
    if (exported / ABOUT).is_file() and Network.open(exported).kind == "cross":
        torch.manual_seed(seed)
        network = load_network(Network.open(exported))
        return Base(keep_layers(network, layers), Analyzer.parse(f"wordpiece:{exported}"), new_head=False)
    if known_model(base_model) is not None:
        encoder, analyzer, *_ = base_encoder(base_model, seed)
        return Base(keep_layers(Cross(encoder), layers), analyzer)
    folder = find_checkpoint(base_model)
    encoder, analyzer, *_ = base_encoder(str(folder), seed)
    network = keep_layers(Cross(encoder), layers)
    head = head_arrays(folder)
    if "pre_classifier.weight" not in head:  # DistilBERT's head is of another shape
        network.take_head(head)
    return Base(network, analyzer)
