"""Augmenters: small encoders that expand BM25's queries, trained through BM25's own score; and their data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vizsla.datasets import BeirDataset
from vizsla.errors import InputError, VizslaError
from vizsla.index.storage.document_store import DocumentStore
from vizsla.lazy import cached_property
from vizsla.models import BM25, Augmenter, CountedStatistics, LearnedSparse, Model, Reranker, field_text
from vizsla.models.augmenter import read_query
from vizsla.neural.chunks import Batch, packed
from vizsla.neural.heads.augmenter import Adder
from vizsla.neural.heads.augmenter import Augmenter as Network
from vizsla.neural.lazy_torch import torch
from vizsla.neural.weights import read_weights
from vizsla.text import Analyzer
from vizsla.training.arrays.augmenter import (
    MAX_QUERY_LENGTH,
    UNREAD,
    AugmenterData,
    AugmenterDev,
    AugmenterPairs,
    BM25Rows,
    MixedPairs,
    QueryTerms,
)
from vizsla.training.kind import TRAINED_KINDS, TrainedKind, TrainingData, TrainingInputs
from vizsla.training.loop.objectives import AugmenterObjective, Objective
from vizsla.training.networks import DEFAULT_ENCODER, Base, base_encoder
from vizsla.training.prepare.writing import SAMPLE, write_network
from vizsla.training.settings import AugmenterLoss, TrainingSettings, require_at_least, require_one_of, setting
from vizsla.training.sources.judged import (
    ANSWERLESS_HELP,
    NUMBER,
    judgement_rows,
    positives_and_negatives,
    weighed_rows,
)
from vizsla.training.sources.teacher import (
    MarginSquares,
    TeacherSettings,
    answer_scores,
    check_loss,
    open_teachers,
    teacher_factor,
)
from vizsla.training.sources.token_corpus import TokenCorpus, sample_of, with_special_tokens

_SAMPLED_DOCUMENTS = 20_000  # of a data set, to find the most frequent word of each term
_UNKNOWN_PIECE = 100
_SCORES = ("positive_scores", "negative_scores")


@dataclass(frozen=True)
class TermVocabulary:
    """The terms that an augmenter can add to queries, and the scoring function it is trained with."""

    unit: str = setting("words", "words as BM25's analyzer makes them, or BERT's pieces")
    analyzer: str = setting("lucene-english", "analyzer of the index, for words")
    scoring: str = setting("bm25", "bm25, or bag for plain bags of words, to compare with")
    k1_factor: bool = setting(False, "multiply scores by k1 + 1, as the paper does: same ranking, sharper loss")
    size: int = setting(30_000, "terms that can be added, the most frequent")
    min_df: int = setting(2, "documents that a term must be in at least")
    max_df: float = setting(0.2, "share of documents that a term may be in at most")

    def __post_init__(self) -> None:
        require_one_of("vocabulary.unit", self.unit, ("words", "pieces"))
        require_one_of("vocabulary.scoring", self.scoring, ("bm25", "bag"))
        if self.k1_factor and self.scoring == "bag":
            raise VizslaError("vocabulary.k1_factor is a factor of BM25; set vocabulary.scoring=bm25")
        require_at_least(self, "vocabulary", 1, "size", "min_df")
        require_at_least(self, "vocabulary", 0, "max_df")

    @property
    def is_word_pieces(self) -> bool:
        """Whether terms are word pieces."""
        return self.unit == "pieces"

    @property
    def factor(self) -> float:
        """The factor of BM25 scores in training: unlike Lucene's, the paper's formula has a factor k1 + 1."""
        return self.bm25.k1 + 1 if self.k1_factor else 1.0

    @cached_property
    def bm25(self) -> BM25:
        """The model whose queries are augmented."""
        variant = "bag" if self.scoring == "bag" else "lucene"
        if self.is_word_pieces:
            return BM25(analyzer="wordpiece", namespace="pieces", name="bm25-wp", variant=variant)
        return BM25(analyzer=self.analyzer, variant=variant)


@dataclass(frozen=True)
class AugmenterDataSettings(TeacherSettings):
    """Which queries and hard negatives of data sets are used, and whose scores are learnt."""

    negatives_per_query: int = setting(4, "hard negatives drawn for a query in each step; 0 for none")
    negatives_depth: int = setting(0, "hard negatives of a query that are used, the best; 0 for all")
    answerless_negatives: bool = setting(False, ANSWERLESS_HELP)
    max_queries: int = setting(0, "train queries of a data set that are used, at random; 0 for all")

    def __post_init__(self) -> None:
        require_at_least(self, "data", 0, "negatives_per_query", "negatives_depth", "max_queries")
        self.check_teacher(self.negatives_per_query)


@dataclass(frozen=True, eq=False)
class CountedDataset:
    """A data set as BM25 reads it, with the document frequency of each term."""

    dataset: BeirDataset
    documents: DocumentStore
    terms: list[str]
    frequencies: np.ndarray
    statistics: CountedStatistics

    @classmethod
    def read(cls, dataset: BeirDataset, bm25: BM25) -> CountedDataset:
        """Read all documents of a data set."""
        documents = DocumentStore.of(dataset.documents())
        statistics = bm25.count(documents.contents)
        terms = list(statistics.frequencies)
        frequencies = np.fromiter(statistics.frequencies.values(), np.int64, len(terms))
        return cls(dataset, documents, terms, frequencies, statistics)


def chosen_terms(datasets: Sequence[CountedDataset], vocabulary: TermVocabulary, pieces: Analyzer) -> list[str]:
    """The terms that can be added."""
    if vocabulary.is_word_pieces:
        return list(pieces.tokenizer.vocabulary)  # type: ignore[attr-defined]
    total: dict[str, float] = defaultdict(float)
    for one in datasets:
        count = one.statistics.documents
        for term, frequency in zip(one.terms, one.frequencies.tolist(), strict=True):
            frequent_enough = vocabulary.min_df <= frequency <= vocabulary.max_df * count
            if frequent_enough and len(term) > 1 and not term.isdigit():
                total[term] += frequency / count**0.5  # so that a large collection does not provide all terms
    return sorted(total, key=lambda term: -total[term])[: vocabulary.size]


def surface_pieces(
    datasets: Sequence[CountedDataset], terms: Sequence[str], vocabulary: TermVocabulary, pieces: Analyzer
) -> list[list[int]]:
    """For each term the word pieces of its most frequent word, since encoders do not know stems."""
    if vocabulary.is_word_pieces:
        return [[i] for i in range(len(terms))]
    wanted = set(terms)
    words: dict[str, Counter[str]] = {}
    analyzer, fields = vocabulary.bm25.text_analyzer, vocabulary.bm25.fields
    for one in datasets:
        step = max(1, len(one.documents) // _SAMPLED_DOCUMENTS)
        for document in one.documents.chosen(np.arange(0, len(one.documents), step)):
            text = field_text(document.content, fields)
            for token in analyzer.tokens(text):
                if token.term in wanted:
                    words.setdefault(token.term, Counter())[text[token.start : token.end].lower()] += 1
    surface = [words[t].most_common(1)[0][0] if t in words else t for t in terms]
    return [ids or [_UNKNOWN_PIECE] for ids in pieces.tokenizer.ids(surface)]  # type: ignore[attr-defined]


def bm25_rows(dataset: CountedDataset, bm25: BM25, columns: Mapping[str, int], factor: float = 1.0) -> BM25Rows:
    """The documents of a data set over the terms that have a column; their weights are multiplied by `factor`."""
    rows = weighed_rows(dataset.documents, bm25, dataset.statistics, columns, factor)
    column_of = np.array([columns.get(term, -1) for term in dataset.terms], np.int64)
    idf, document_share = (np.zeros(len(columns), np.float32) for _ in range(2))
    used, count = (column_of >= 0) & (dataset.frequencies > 0), dataset.statistics.documents
    idf[column_of[used]] = bm25.term_factors(dataset.frequencies[used], count)
    document_share[column_of[used]] = dataset.frequencies[used] / count
    return BM25Rows(rows, idf, document_share)


def sampled_queries(texts: dict[str, str], count: int) -> dict[str, str]:
    """`count` random queries in their order; 0 for all."""
    if not 0 < count < len(texts):
        return texts
    chosen = np.sort(np.random.default_rng(0).permutation(len(texts))[:count])
    names = list(texts)
    return {names[i]: texts[names[i]] for i in chosen}


class SplitQueries(NamedTuple):
    """The queries of a split: their texts by id, their token ids, and the terms in them."""

    texts: dict[str, str]
    tokens: TokenCorpus
    terms: QueryTerms


class DatasetArrays:
    """The queries and documents of one data set over the same terms.

    The first columns are the terms that can be added; other terms of queries get the columns after them.
    """

    def __init__(
        self, dataset: CountedDataset, terms: Sequence[str], vocabulary: TermVocabulary,
        settings: AugmenterDataSettings, pieces: Analyzer, splits: Sequence[str],
    ) -> None:  # fmt: skip
        self.dataset, self.vocabulary, self.settings, self.pieces = dataset, vocabulary, settings, pieces
        self.columns = {term: i for i, term in enumerate(terms)}
        self.queries: dict[str, SplitQueries] = {}
        for split in splits:
            texts = dataset.dataset.queries_of(dataset.dataset.qrels(split))
            if split == "train":
                texts = sampled_queries(texts, settings.max_queries)
            self.queries[split] = self._read_queries(texts)
        self.collection = bm25_rows(dataset, vocabulary.bm25, self.columns, vocabulary.factor)

    def _read_queries(self, texts: dict[str, str]) -> SplitQueries:
        ids, pairs = [], []
        for text in texts.values():
            tokens, own = read_query(text, self.vocabulary.bm25.text_analyzer, self.pieces, MAX_QUERY_LENGTH)
            ids.append(np.array(tokens, np.int64))
            columns = [(self.columns.setdefault(term, len(self.columns)), places) for term, places in own.items()]
            pairs.append([(place, column) for column, places in columns for place in places or [UNREAD]])
        return SplitQueries(texts, TokenCorpus.of(ids), QueryTerms.of(pairs))

    def pairs(
        self, split: str = "train", teachers: Sequence[Model | Reranker] = (), scores: Path = Path()
    ) -> AugmenterPairs:
        """The judged queries with their positives and hard negatives; other documents are left out.

        `teachers`: models that score the queries with both; their scores are stored beside the file `scores`.
        """
        texts, queries, own = self.queries[split]
        bm25 = replace(self.vocabulary.bm25, variant="lucene")
        positives, ranked = positives_and_negatives(
            self.dataset.documents, texts, self.dataset.dataset, split, bm25,
            answerless=self.settings.answerless_negatives,
        )  # fmt: skip
        firsts = (ranked[i][: self.settings.negatives_depth or None] for i in range(len(ranked)))
        negatives: TokenCorpus = TokenCorpus.of(firsts, NUMBER)
        given: tuple[np.ndarray | None, np.ndarray | None] = None, None
        if teachers:
            given = answer_scores(self.dataset.documents, list(texts.values()), positives, negatives, teachers, scores)
        used, numbers = np.unique(np.concatenate([positives.ids, negatives.ids]), return_inverse=True)
        positive_numbers, negative_numbers = np.split(numbers, [len(positives.ids)])
        return AugmenterPairs(
            self.collection.only(used),
            queries,
            own,
            TokenCorpus(positive_numbers, positives.offsets),
            TokenCorpus(negative_numbers, negatives.offsets),
            self.settings.negatives_per_query,
            *given,
        )

    def dev(self, max_added_terms: int, split: str = "dev") -> AugmenterDev:
        """The judged queries of a dev split."""
        texts, queries, own = self.queries[split]
        judgements = judgement_rows(self.dataset.documents, texts, self.dataset.dataset.qrels(split))
        return AugmenterDev(self.dataset.dataset.name, self.collection, queries, own, judgements, max_added_terms)


def augmenter_data(
    inputs: TrainingInputs,
    vocabulary: TermVocabulary,
    settings: AugmenterDataSettings,
    pieces: Analyzer,
    *,
    max_added_terms: int,
    tied_head: bool,
    folder: Path = Path(),
) -> AugmenterData:
    """The train queries of data sets, the dev queries of the same or others, and the terms that can be added.

    The scores of a teacher are stored in the folder, so that an interrupted run continues from there.
    """
    by_folder = {d.folder.resolve(): d for d in [*inputs.datasets, *inputs.dev]}
    counted_sets = {path: CountedDataset.read(d, vocabulary.bm25) for path, d in by_folder.items()}
    train, dev = ([d.folder.resolve() for d in datasets] for datasets in (inputs.datasets, inputs.dev))
    train_sets = [counted_sets[path] for path in train]
    terms = chosen_terms(train_sets, vocabulary, pieces)
    if not terms:
        raise VizslaError(
            f"no word is in {vocabulary.min_df} documents or more and in at most {vocabulary.max_df:g} of all, so none "
            "can be added; try --set vocabulary.max_df=1.0"
        )
    arrays = {}
    for path, one in counted_sets.items():
        splits = [split for split, folders in (("train", train), ("dev", dev)) if path in folders]
        arrays[path] = DatasetArrays(one, terms, vocabulary, settings, pieces, splits)
    words = None if tied_head else TokenCorpus.pack(surface_pieces(train_sets, terms, vocabulary, pieces))
    teachers = open_teachers(settings.teacher) if settings.teacher else ()
    pairs = [
        arrays[path].pairs(teachers=teachers, scores=folder / f"teacher-{number}.scores")
        for number, path in enumerate(train)
    ]
    _check_answers(train, pairs)
    pairs = _scaled(pairs, settings) if settings.teacher else pairs
    return AugmenterData(terms, words, pairs, [arrays[path].dev(max_added_terms) for path in dev])


def _check_answers(folders: Sequence[Path], pairs: Sequence[AugmenterPairs]) -> None:
    for path, one in zip(folders, pairs, strict=True):
        if not len(one.usable):
            raise VizslaError(f"{path}: no train query has an answer among the documents")


def _scaled(pairs: Sequence[AugmenterPairs], settings: AugmenterDataSettings) -> list[AugmenterPairs]:
    """Pairs of all data sets with the teacher's scores multiplied as the settings say."""
    sizes = [
        MarginSquares.of(one.positives, one.negatives, one.positive_scores, one.negative_scores)
        for one in pairs
        if one.positive_scores is not None and one.negative_scores is not None
    ]
    factor = teacher_factor(settings, sizes)
    return [
        replace(one, **{name: (factor * getattr(one, name)).astype(np.float32) for name in _SCORES}) for one in pairs
    ]


FREE, TIED, NARROW = "free", "tied", "narrow"
_NEVER = -1e4  # the bias of a term that no document contains
_INIT_QUERIES = 200  # used to initialise the head
_CHUNK = 1 << 14  # tokens


@dataclass(frozen=True)
class AugmenterNetwork:
    """The network of an augmenter."""

    base_model: str = setting(DEFAULT_ENCODER, "transformers encoder (folder or name), or a model with a network")
    head: str = setting(FREE, "free: a matrix of its own, narrow: of low rank, tied: the input embeddings (for pieces)")
    rank: int = setting(128, "rank of a narrow head")
    weigh_query_terms: bool = setting(True, "also learn weights for the query's own terms")
    trust: float = setting(1.0, "how much of the learned weights is used, from 0 (BM25's) to 1")
    max_added_terms: int = setting(0, "terms that are added at most, the strongest; 0 for all")
    frozen_embeddings: str = setting("", "shipped network whose word embeddings are used and not trained")

    def __post_init__(self) -> None:
        require_one_of("network.head", self.head, (FREE, TIED, NARROW))
        require_at_least(self, "network", 1, "rank")
        require_at_least(self, "network", 0, "max_added_terms")
        if not 0 <= self.trust <= 1:
            raise VizslaError(f"network.trust must be between 0 and 1, not {self.trust:g}")
        if self.trust < 1 and not self.weigh_query_terms:
            raise VizslaError(
                "network.trust scales the weights of a query's own terms, which need network.weigh_query_terms=true"
            )
        if self.is_tied and self.frozen_embeddings:
            raise VizslaError("frozen embeddings cannot be the head, which is trained; set network.head=narrow")

    @property
    def is_tied(self) -> bool:
        """Whether the head is the input embeddings."""
        return self.head == TIED

    @property
    def head_rank(self) -> int:
        """The rank of the head; 0 for full rank."""
        return self.rank if self.head == NARROW else 0


@dataclass(frozen=True)
class AugmenterSettings:
    """The settings of an augmenter."""

    network: AugmenterNetwork = field(default_factory=AugmenterNetwork)
    vocabulary: TermVocabulary = field(default_factory=TermVocabulary)
    data: AugmenterDataSettings = field(default_factory=AugmenterDataSettings)
    loss: AugmenterLoss = field(default_factory=AugmenterLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        if self.network.is_tied and not self.vocabulary.is_word_pieces:
            raise VizslaError(
                "only word pieces can be tied to the input embeddings; set network.head to free or narrow"
            )
        check_loss(self.data, self.loss.name)


@TRAINED_KINDS.register("augmenter", help="Expands the queries of BM25.", needs=("torch", "transformers", "onnx"))
class AugmenterKind(TrainedKind[AugmenterSettings]):
    """Trains a network that adds terms to queries and weighs them, on judged queries."""

    settings_class = AugmenterSettings
    wants_gpu = False

    def __init__(self, name: str, settings: AugmenterSettings) -> None:
        super().__init__(name, settings)
        self._data: dict[Path, AugmenterData] = {}

    @property
    def reads_datasets(self) -> bool:
        """It learns from judged queries."""
        return True

    @property
    def reads_corpus(self) -> bool:
        """It does not learn from documents by themselves."""
        return False

    def check_inputs(self, inputs: TrainingInputs) -> None:
        """Refuse data sets without the splits they are needed for, before anything is read."""
        super().check_inputs(inputs)
        for split, datasets in (("train", inputs.datasets), ("dev", inputs.dev)):
            for dataset in datasets:
                dataset.qrels(split)

    def load_base(self) -> Base:
        """The encoder, perhaps with frozen embeddings."""
        base = base_encoder(self.settings.network.base_model, self.settings.training.seed)
        if self.settings.network.frozen_embeddings:
            freeze_embeddings(base.network, self.settings.network.frozen_embeddings, base.analyzer)
        return base

    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:
        """Choose the terms, and pack queries and BM25's rows."""
        network = self.settings.network
        data = augmenter_data(
            inputs,
            self.settings.vocabulary,
            self.settings.data,
            base.analyzer,
            max_added_terms=network.max_added_terms,
            tied_head=network.is_tied,
            folder=folder,
        )
        embeddings, hidden = base.network.embeddings.word_embeddings.weight.shape
        if network.is_tied and len(data.terms) != embeddings:
            raise VizslaError(
                f"the encoder has {embeddings:,} embeddings for {len(data.terms):,} word pieces; set network.head=free"
            )
        if network.head_rank > min(hidden, len(data.terms)):
            raise VizslaError(f"network.rank can be {min(hidden, len(data.terms))} at most here, not {network.rank}")
        data.save(folder)

    def open_data(self, folder: Path) -> TrainingData:
        """The queries of all data sets, and the dev sets."""
        data = self._open(folder)
        return TrainingData(MixedPairs(data.pairs), data.dev)

    def build_network(self, base: Base, folder: Path) -> Any:
        """The encoder with a head for the chosen terms."""
        return augmenter_network(base.network, self._open(folder), self.settings.network)

    def objective(self) -> Objective:
        """A contrastive loss over BM25 scores, plus the cost of added terms."""
        return AugmenterObjective(self.settings.loss)

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:
        """Write the augmenter in 8 bits."""
        data, bm25 = self._open(folder), self.settings.vocabulary.bm25
        network = network.cpu().eval()
        network.settle()
        shares = [pairs.collection.document_share[: len(data.terms)] for pairs in data.pairs]
        in_no_document = np.all([share == 0 for share in shares], axis=0)
        with torch.no_grad():
            network.add.out.bias[torch.from_numpy(in_no_document)] = _NEVER
        sample = sample_of(data.pairs[0].queries, SAMPLE, MAX_QUERY_LENGTH)
        written = write_network(network, output, max_weight=1.0, length=MAX_QUERY_LENGTH, sample=sample)
        most = self.settings.network.max_added_terms
        terms, analyzer = tuple(data.terms), bm25.text_analyzer
        Augmenter(written, terms, analyzer, base.analyzer, most, bm25.variant, self.name).save(output)

    def open_model(self, output: Path) -> Augmenter:
        """The written augmenter."""
        return Augmenter.load(output)

    def usage(self, output: Path) -> str:
        """A command that searches with the augmenter."""
        return f"vizsla search INDEX --expand {output}"

    def _open(self, folder: Path) -> AugmenterData:
        """The arrays of a run, read once."""
        if folder not in self._data:
            self._data[folder] = AugmenterData.open(folder)
        return self._data[folder]


def augmenter_network(encoder: Any, data: AugmenterData, settings: AugmenterNetwork) -> Any:
    """An augmenter that is initialised close to BM25, calibrated on some of the queries.

    The row of a term is initialised with the encoder's state of its word alone, so that at first words similar to those
    of the query are added.
    """
    tied = encoder.embeddings.word_embeddings if data.words is None else None
    adder = Adder(len(data.terms), encoder.hidden, settings.head_rank, tied)
    network = Network(encoder, adder, settings.weigh_query_terms, settings.trust)
    if data.words is not None:
        network.add.start_from(network.first_states(_texts(data.words, len(data.words))))
    network.add.sparsify(network.first_states(_texts(data.pairs[0].queries, _INIT_QUERIES)))
    return network


def _texts(corpus: TokenCorpus, count: int) -> Batch:
    chosen = range(min(len(corpus), count))
    return packed(*with_special_tokens(corpus, chosen, "cpu", max_length=MAX_QUERY_LENGTH), _CHUNK)


def freeze_embeddings(encoder: Any, name: str, pieces: Analyzer) -> None:
    """Give an encoder the word embeddings of a shipped network, and do not train them."""
    try:
        model = LearnedSparse.shipped(name)
    except InputError:
        raise VizslaError(f"no network called {name!r} comes with Vizsla, so its embeddings cannot be used") from None
    table = encoder.embeddings.word_embeddings.weight
    shipped = read_weights(model.network.folder)["embeddings.word_embeddings.weight"]
    same_pieces = list(model.pieces.vocabulary) == list(pieces.tokenizer.vocabulary)  # type: ignore[attr-defined]
    if shipped.shape != tuple(table.shape) or not same_pieces:
        raise VizslaError(f"the word embeddings of {name} do not fit this encoder")
    with torch.no_grad():
        table.copy_(torch.from_numpy(shipped))
    table.requires_grad_(False)
