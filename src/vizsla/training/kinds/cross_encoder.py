"""Cross-encoders: rerankers that read a query and a document together."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.datasets import BeirDataset
from vizsla.encoders.checkpoint import find_checkpoint
from vizsla.errors import VizslaError
from vizsla.models import Reranker, field_text
from vizsla.text import Analyzer
from vizsla.training.inputs import TrainingData, TrainingInputs
from vizsla.training.kind import TRAINED_KINDS, TrainedKind
from vizsla.training.prepare.base_model import DEFAULT_ENCODER, Base, base_encoder, known_model
from vizsla.training.prepare.judged import (
    NEGATIVES_DEPTH,
    check_run_has_one_dataset,
    first_stage_rankings,
    judged_pairs,
    judgement_rows,
)
from vizsla.training.prepare.texts import FIELDS, packed_texts
from vizsla.training.schema import setting
from vizsla.training.settings import GroupLoss, TrainingSettings, require_at_least

if TYPE_CHECKING:
    from vizsla.training.arrays.cross_encoder import CrossEncoderData, CrossEncoderDev
    from vizsla.training.loop.objectives import Objective


@dataclass(frozen=True)
class CrossEncoderNetwork:
    """The network of a cross-encoder."""

    base_model: str = setting(DEFAULT_ENCODER, "saved model, or transformers encoder or cross-encoder (folder or name)")


@dataclass(frozen=True)
class CrossEncoderDataSettings:
    """Which documents a query is trained with, and which are reranked in dev sets."""

    negatives_per_query: int = setting(7, "hard negatives drawn for a query in each step")
    negatives: str = setting("", "TREC run or model whose best documents are the hard negatives; else BM25")
    negatives_depth: int = setting(1000, "documents of a ranking that hard negatives are drawn from")
    candidates: str = setting("", "TREC run or model whose documents are reranked in dev sets; else as for negatives")
    candidates_depth: int = setting(NEGATIVES_DEPTH, "candidates of a dev query")
    max_query_length: int = setting(64, "tokens of a query that are read, special ones included")
    max_length: int = setting(256, "tokens of query and document together, special ones included")

    def __post_init__(self) -> None:
        require_at_least(self, "data", 1, "negatives_per_query", "negatives_depth", "candidates_depth")

    @property
    def dev_first_stage(self) -> str:
        """What ranks the candidates of dev queries."""
        return self.candidates or self.negatives or "bm25"


@dataclass(frozen=True)
class CrossEncoderSettings:
    """The settings of a cross-encoder."""

    network: CrossEncoderNetwork = field(default_factory=CrossEncoderNetwork)
    data: CrossEncoderDataSettings = field(default_factory=CrossEncoderDataSettings)
    loss: GroupLoss = field(default_factory=GroupLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)


@TRAINED_KINDS.register(
    "cross-encoder", help="A reranker that reads query and document together.", needs=("torch", "transformers")
)
class CrossEncoderKind(TrainedKind[CrossEncoderSettings]):
    """Trains a cross-encoder on judged queries with hard negatives of a first stage."""

    settings_class = CrossEncoderSettings

    @property
    def reads_datasets(self) -> bool:
        """It learns from judged queries."""
        return True

    @property
    def reads_corpus(self) -> bool:
        """It does not learn from documents by themselves."""
        return False

    def load_base(self) -> Base:
        """A cross-encoder; the head is the base model's if it has one."""
        base = cross_encoder_network(self.settings.network.base_model, self.settings.training.seed)
        data, positions = self.settings.data, base.network.encoder.config.max_position_embeddings
        if not data.max_query_length + 2 <= data.max_length <= positions or data.max_query_length < 3:
            raise VizslaError(
                f"data.max_query_length {data.max_query_length} and data.max_length {data.max_length} do not fit: this "
                f"encoder reads {positions} tokens at most, a query needs 3 or more, and a document 2 more than the "
                "query"
            )
        return base

    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:
        """Pack queries with hard negatives, and dev queries with candidates."""
        cross_encoder_data(self.settings.data, base.analyzer, inputs).save(folder)

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs and the dev sets."""
        from vizsla.training.arrays.cross_encoder import CrossEncoderData, CrossEncoderPairs

        settings = self.settings.data
        data = CrossEncoderData.open(folder, settings.negatives_per_query)
        return TrainingData(CrossEncoderPairs(data.pairs, settings.max_query_length, settings.max_length), data.dev)

    def objective(self) -> Objective:
        """A loss over the documents of each query."""
        from vizsla.training.loop.objectives import GroupObjective

        return GroupObjective(self.settings.loss)

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:  # noqa: ARG002
        """Write the reranker as transformers opens it."""
        from vizsla.networks.layout import save_reranker
        from vizsla.training.arrays.cross_encoder import CrossEncoderData

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
        return f"vizsla rerank DIR --run RUN --queries QUERIES --reranker {output} -o OUT"


def cross_encoder_network(base_model: str, seed: int = 0) -> Base:
    """A cross-encoder to train and the analyzer that makes its word pieces."""
    from vizsla.networks import Cross
    from vizsla.networks.cross import head_arrays

    if known_model(base_model) is not None:
        encoder, analyzer, _ = base_encoder(base_model, seed)
        return Base(Cross(encoder), analyzer)
    folder = find_checkpoint(base_model)
    encoder, analyzer, _ = base_encoder(str(folder), seed)
    network = Cross(encoder)
    head = head_arrays(folder)
    if "pre_classifier.weight" not in head:  # DistilBERT's head is of another shape
        network.take_head(head)
    return Base(network, analyzer)


def cross_encoder_data(
    settings: CrossEncoderDataSettings, analyzer: Analyzer, inputs: TrainingInputs
) -> CrossEncoderData:
    """Train queries of data sets with hard negatives, and dev queries with candidates, as arrays."""
    from vizsla.training.arrays.cross_encoder import CrossEncoderData

    check_run_has_one_dataset(settings.dev_first_stage, inputs.dev)
    pairs = judged_pairs(
        inputs.datasets, analyzer, negatives=settings.negatives, negatives_depth=settings.negatives_depth
    )
    dev = [cross_encoder_dev(dataset, analyzer, settings) for dataset in inputs.dev]
    return CrossEncoderData(pairs, dev, analyzer.tokenizer.content)  # type: ignore[attr-defined]


def cross_encoder_dev(
    dataset: BeirDataset, analyzer: Analyzer, settings: CrossEncoderDataSettings, split: str = "dev"
) -> CrossEncoderDev:
    """A data set's judged queries with the candidates of a first stage."""
    from vizsla.training.arrays.cross_encoder import CrossEncoderDev
    from vizsla.training.arrays.token_corpus import TokenCorpus

    qrels = dataset.qrels(split)
    queries, documents = dataset.queries_of(qrels), list(dataset.documents())
    rankings = first_stage_rankings(settings.dev_first_stage, documents, queries, settings.candidates_depth)
    numbers = {d.id: i for i, d in enumerate(documents)}
    candidates = [np.array([numbers[d] for d in rankings[q] if d in numbers and d != q], np.int64) for q in queries]
    return CrossEncoderDev.of(
        dataset.name,
        packed_texts(list(queries.values()), analyzer),
        packed_texts([field_text(d.content, FIELDS) for d in documents], analyzer),
        TokenCorpus.of(candidates),
        judgement_rows(documents, queries, qrels),
        max_query_length=settings.max_query_length,
        max_length=settings.max_length,
    )
