"""DeepCT: a network learns how much each word of a document matters to the queries it answers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import BeirDataset
from vizsla.errors import InputError
from vizsla.index.storage.document_store import DocumentStore
from vizsla.models import DeepCT, Model, field_text
from vizsla.models.counts import first_pieces
from vizsla.neural.heads.deepct import TermRegression
from vizsla.neural.layouts import save_layout
from vizsla.scratch import GrowingArray
from vizsla.text import Analyzer
from vizsla.training.arrays.term_targets import TermDev, TermTargets
from vizsla.training.kind import TRAINED_KINDS, TrainedKind, TrainingData, TrainingInputs
from vizsla.training.loop.objectives import Objective, RegressionObjective
from vizsla.training.networks import DEFAULT_ENCODER, Base, base_encoder, known_model, load_network
from vizsla.training.prepare.writing import SAMPLE, write_network
from vizsla.training.settings import CountSettings, TrainingSettings, require_at_least, setting
from vizsla.training.sources.dev_set import numbered_folders
from vizsla.training.sources.judged import judgement_rows
from vizsla.training.sources.texts import FIELDS_SETTING, fields_of
from vizsla.training.sources.token_corpus import TokenCorpus, sample_of


def term_recall(queries: Sequence[Sequence[str]]) -> dict[str, float]:
    """The share of a document's relevant queries that contain each term, given the terms of each query.

    >>> term_recall([["dog", "bark"], ["dog"]])
    {'dog': 1.0, 'bark': 0.5}
    """
    counts = Counter(term for query in queries for term in dict.fromkeys(query))
    return {term: count / len(queries) for term, count in counts.items()}


def term_targets(dataset: BeirDataset, pieces: Analyzer, words: Analyzer, fields: Sequence[str]) -> TermTargets:
    """The documents of a data set that answer a train query, with the targets of their words.

    `pieces` makes the tokens that the network reads, `words` the terms that are compared with those of queries.
    """
    qrels = dataset.qrels("train")
    terms = {query: words(text) for query, text in dataset.queries_of(qrels).items()}
    answered: dict[str, list[list[str]]] = defaultdict(list)
    for query, judgements in qrels.judgements.items():
        for answer, grade in judgements.items():
            if grade > 0 and query in terms:
                answered[answer].append(terms[query])
    numbers: dict[str, int] = pieces.tokenizer.numbers  # type: ignore[attr-defined]
    targets = GrowingArray(np.float16)

    def documents() -> Iterator[np.ndarray]:
        for document in dataset.documents():
            if document.id not in answered:
                continue
            text = field_text(document.content, fields)
            own, at = _aligned(text, pieces, words)
            recall = term_recall(answered[document.id])
            row = np.full(len(own), np.nan, np.float16)
            for term, place in at:
                row[place] = np.fmax(row[place], recall.get(term, 0.0))
            targets.append(row)
            yield np.array([numbers[piece] for piece in own], np.int64)

    packed: TokenCorpus = TokenCorpus.of(documents(), np.uint32)
    if not len(packed):
        raise InputError("none of the train queries has a relevant document here", file=str(dataset.folder))
    return TermTargets(packed, targets.array())


def term_dev(
    dataset: BeirDataset,
    pieces: Analyzer,
    words: Analyzer,
    fields: Sequence[str],
    settings: CountSettings,
    split: str = "dev",
) -> TermDev:
    """A data set's judged queries as terms, and its documents with the term of the word that begins at each token."""
    qrels = dataset.qrels(split)
    queries, documents = dataset.queries_of(qrels), DocumentStore.of(dataset.documents())
    numbers: dict[str, int] = pieces.tokenizer.numbers  # type: ignore[attr-defined]
    columns: dict[str, int] = {}
    terms = GrowingArray(np.int32)

    def ids() -> Iterator[np.ndarray]:
        for text in documents.texts(fields):
            own, at = _aligned(text, pieces, words)
            row = np.full(len(own), -1, np.int32)
            for term, place in at:
                row[place] = columns.setdefault(term, len(columns))
            terms.append(row)
            yield np.array([numbers[piece] for piece in own], np.int64)

    read: TokenCorpus = TokenCorpus.of(ids(), np.uint32)
    asked = [[columns[term] for term in words(text) if term in columns] for text in queries.values()]
    packed: TokenCorpus = TokenCorpus.of([np.array(row, np.int64) for row in asked])
    judged = judgement_rows(documents, queries, qrels)
    return TermDev(dataset.name, read, terms.array(), packed, judged, settings=settings)


def _aligned(text: str, pieces: Analyzer, words: Analyzer) -> tuple[list[str], list[tuple[str, int]]]:
    """The pieces of a text, and each of its terms with the place of its first piece."""
    own, found = pieces.tokens(text), words.tokens(text)
    places = zip(found, first_pieces(found, own), strict=True)
    return [piece.term for piece in own], [(word.term, place) for word, place in places if place >= 0]


_TARGETS = "targets"


@dataclass(frozen=True)
class DeepCTNetwork:
    """The network of DeepCT."""

    base_model: str = setting(DEFAULT_ENCODER, "shipped network, saved model, or transformers encoder (folder or name)")


@dataclass(frozen=True)
class DeepCTData:
    """Which documents are learnt from, and how they are read."""

    max_length: int = setting(512, "tokens of a document that are read, special ones included")
    fields: str = setting(FIELDS_SETTING, "fields of documents that are read, separated by /")
    analyzer: str = setting("lucene-english", "how words become terms, to find those of queries and to search")

    def __post_init__(self) -> None:
        require_at_least(self, "data", 3, "max_length")
        fields_of(self.fields)


@dataclass(frozen=True)
class DeepCTSettings:
    """The settings of DeepCT."""

    network: DeepCTNetwork = field(default_factory=DeepCTNetwork)
    data: DeepCTData = field(default_factory=DeepCTData)
    counts: CountSettings = field(default_factory=CountSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)


@TRAINED_KINDS.register(
    "deepct", help="DeepCT: counts for the words of documents.", needs=("torch", "transformers", "onnx")
)
class DeepCTKind(TrainedKind[DeepCTSettings]):
    """Trains a network by regression: the target of a word is the share of its document's queries that have it."""

    settings_class = DeepCTSettings

    @property
    def reads_datasets(self) -> bool:
        """It learns from judged queries."""
        return True

    @property
    def reads_corpus(self) -> bool:
        """It does not learn from documents by themselves."""
        return False

    def load_base(self) -> Base:
        """The base model with DeepCT's head; its own if it has one."""
        name, seed = self.settings.network.base_model, self.settings.training.seed
        model = known_model(name)
        if isinstance(model, DeepCT):
            assert isinstance(model.pieces, Analyzer)
            return Base(load_network(model.network), model.pieces, new_head=False)
        encoder, analyzer, *_ = base_encoder(name, seed)
        return Base(TermRegression(encoder), analyzer)

    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:
        """Find the targets of words, and pack documents and dev sets."""
        words, fields = Analyzer.parse(self.settings.data.analyzer), fields_of(self.settings.data.fields)
        found = [term_targets(dataset, base.analyzer, words, fields) for dataset in inputs.datasets]
        TermTargets.concatenate(found).save(folder / _TARGETS)
        for number, dataset in enumerate(inputs.dev):
            dev = term_dev(dataset, base.analyzer, words, fields, self.settings.counts)
            dev.save(folder / f"dev-{number}")

    def open_data(self, folder: Path) -> TrainingData:
        """The documents with their targets, and the dev sets."""
        length, counts = self.settings.data.max_length, self.settings.counts
        dev = [TermDev.open(place, counts, length) for place in numbered_folders(folder, "dev")]
        return TrainingData(TermTargets.open(folder / _TARGETS, length), dev)

    def objective(self) -> Objective:
        """The squared error at the first pieces of words."""
        return RegressionObjective()

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:
        """Write the model in 8 bits to index with, and in floats as other libraries open it."""
        network = network.cpu().eval()
        data, counts = self.settings.data, self.settings.counts
        positions = network.encoder.config.max_position_embeddings
        sample = sample_of(TokenCorpus.open(folder / _TARGETS / "documents"), SAMPLE, data.max_length)
        written = write_network(network, output, max_weight=1.0, length=positions, sample=sample)
        DeepCT(
            network=written,
            pieces=base.analyzer,
            analyzer=data.analyzer,
            k1=counts.k1,
            b=counts.b,
            scale=counts.scale,
            smoothing=counts.smoothing,
            keep_all=counts.keep_all,
            length=min(data.max_length, positions),
            fields=fields_of(data.fields),
            namespace=self.name,
            name=self.name,
        ).save(output)
        save_layout(network, base.analyzer.tokenizer.content, output)

    def open_model(self, output: Path) -> Model:
        """The written model."""
        return Model.load(output)

    def usage(self, output: Path) -> str:
        """A command that indexes with the model."""
        return f'vizsla index SOURCE -o DIR --model {output}, or "deepct(network={output})"'
