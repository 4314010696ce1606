"""Augmenters: small encoders that expand BM25's queries, trained through BM25's own score; and their data."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vizsla.datasets import BeirDataset
from vizsla.errors import InputError, VizslaError
from vizsla.index.storage.corpus_store import CorpusStore
from vizsla.lazy import cached_property
from vizsla.models import BM25, Augmenter, CountedStatistics, LearnedSparse, Model, Reranker, field_text
from vizsla.models.augmenter import read_query
from vizsla.neural.chunks import Batch, packed
from vizsla.neural.heads.augmenter import Adder, AugmentedQueries
from vizsla.neural.heads.augmenter import Augmenter as Network
from vizsla.neural.lazy_torch import no_grad, torch
from vizsla.neural.weights import read_weights
from vizsla.npz import read_arrays, save_arrays
from vizsla.plain_data import parse_json
from vizsla.text import Analyzer
from vizsla.training.kind import TRAINED_KINDS, TrainedKind, TrainingData, TrainingInputs
from vizsla.training.loop.objectives import (
    CONTRASTIVE,
    TAUGHT,
    Objective,
    Step,
    accuracy,
    contrastive_loss,
    distillation_loss,
    quadratic_rise,
)
from vizsla.training.loop.products import SparseMatrix, SparseRows, csr, sparse_product
from vizsla.training.networks import DEFAULT_ENCODER, SAMPLE, Base, base_encoder, write_network
from vizsla.training.settings import TrainingSettings, require_at_least, require_one_of, require_positive, setting
from vizsla.training.sources.dev_set import (
    Assemble,
    BestDocuments,
    Encode,
    judgement_rows,
    numbered_folders,
    weighed_rows,
)
from vizsla.training.sources.judged import ANSWERLESS_HELP, NUMBER, positives_and_negatives
from vizsla.training.sources.pairs import TrainingBatch, epoch_order
from vizsla.training.sources.teacher import (
    MarginSquares,
    TeacherSettings,
    answer_scores,
    check_loss,
    open_teachers,
    teacher_factor,
)
from vizsla.training.sources.token_corpus import TokenCorpus, sample_of, with_special_tokens

if TYPE_CHECKING:
    from torch import Tensor


FREE, TIED, NARROW = "free", "tied", "narrow"


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


@dataclass(frozen=True)
class AugmenterLoss:
    """A contrastive loss over BM25 scores, or one that learns a teacher's, plus a cost for each added term."""

    name: str = setting(CONTRASTIVE, "contrastive (InfoNCE), or margin-mse or kl (of a teacher's scores)")
    temperature: float = setting(1.0, "scores are divided by it")
    added_cost: float = setting(0.0, "cost of the weight of added terms")
    uniform_cost: bool = setting(False, "all terms cost the same; otherwise common terms cost more")
    cost_warmup_steps: int = setting(0, "steps over which the cost rises, quadratically")

    def __post_init__(self) -> None:
        require_one_of("loss", self.name, (CONTRASTIVE, *TAUGHT))
        require_positive(self, "loss", "temperature")


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


MAX_QUERY_LENGTH = 64
"""Tokens of a query that an augmenter reads, special ones included."""
UNREAD = -2
"""The position of a word after the last token that is read; its weight is 1."""


@dataclass(frozen=True, eq=False)
class BM25Rows:
    """Documents as BM25 weighs them. The first columns are the terms that can be added; the others occur in queries."""

    rows: SparseRows
    idf: np.ndarray
    """[columns] the idf of each term."""
    document_share: np.ndarray
    """[columns] the share of documents that contain the term."""

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that `read` takes."""
        rows = {f"rows_{name}": array for name, array in self.rows._asdict().items()}
        return {**rows, "idf": self.idf, "document_share": self.document_share}

    @classmethod
    def read(cls, file: str | Path) -> BM25Rows:
        """From a file with these arrays."""
        names = (*(f"rows_{name}" for name in SparseRows._fields), "idf", "document_share")
        *rows, idf, document_share = read_arrays(file, *names)
        return cls(SparseRows(*rows), idf, document_share)

    def only(self, documents: np.ndarray) -> BM25Rows:
        """Some of the documents, with the idf of all of them."""
        begins = self.rows.pointers[documents].astype(np.int64)
        ends = np.cumsum(self.rows.pointers[documents + 1].astype(np.int64) - begins)
        pointers = np.concatenate([[0], ends])
        places = np.repeat(begins - pointers[:-1], np.diff(pointers)) + np.arange(pointers[-1])
        return replace(self, rows=SparseRows(pointers, self.rows.terms[places], self.rows.weights[places]))

    def blocks(self, device: torch.device) -> Iterator[Tensor]:
        """[documents, columns] the documents in CSR, some at a time."""
        count = len(self.rows.pointers) - 1
        for first in range(0, count, _ROWS):
            last = min(first + _ROWS, count)
            begin, end = int(self.rows.pointers[first]), int(self.rows.pointers[last])
            rows = np.repeat(np.arange(last - first), np.diff(self.rows.pointers[first : last + 1]))
            shape = last - first, len(self.idf)
            yield csr(rows, self.rows.terms[begin:end], self.rows.weights[begin:end], shape, device)

    def matrix(self, device: torch.device) -> SparseMatrix:
        """[documents, columns] the documents as a sparse matrix."""
        pointers, terms, weights = self.rows
        rows = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
        return SparseMatrix.of(rows, terms, weights, (len(pointers) - 1, len(self.idf)), device)


class QueryTerms(NamedTuple):
    """The terms in queries: [queries, most, 2] pairs of a token's position and a term's column, -1 as padding."""

    pairs: np.ndarray

    @classmethod
    def of(cls, pairs: Sequence[Sequence[tuple[int, int]]]) -> QueryTerms:
        """From each query's pairs of a position, special tokens counted, and a column."""
        padded = np.full((len(pairs), max(1, *map(len, pairs), 1), 2), -1, np.int32)
        for row, query_pairs in zip(padded, pairs, strict=True):
            if query_pairs:
                row[: len(query_pairs)] = query_pairs
        return cls(padded)


class BatchRows(NamedTuple):
    """What the loss of a batch of queries needs besides the network's output."""

    own: Tensor
    documents: SparseMatrix
    idf: Tensor
    document_share: Tensor
    margins: Tensor | None = None
    """[queries, negatives] the teacher's margins: its score of a query's document minus those of its negatives."""


_SCORES = ("positive_scores", "negative_scores")


@dataclass(frozen=True, eq=False)
class AugmenterPairs:
    """Judged queries of one collection: documents that answer each, and documents that BM25 confuses with them.

    The documents of the other queries of a batch are negatives as well, unless they answer the query. With teacher
    scores, in the order of `positives.ids` and `negatives.ids`, a query has only its own negatives.
    """

    collection: BM25Rows
    queries: TokenCorpus
    own: QueryTerms
    positives: TokenCorpus
    negatives: TokenCorpus
    negatives_per_query: int = 1
    positive_scores: np.ndarray | None = None
    negative_scores: np.ndarray | None = None

    def save(self, file: str | Path) -> None:
        """Write all arrays into one file."""
        texts = {name: getattr(self, name) for name in ("queries", "positives", "negatives")}
        parts = {f"{name}_{part}": getattr(c, part) for name, c in texts.items() for part in ("ids", "offsets")}
        parts["negatives_per_query"] = np.array(self.negatives_per_query)
        for name in _SCORES:
            parts[name] = np.zeros(0, np.float32) if getattr(self, name) is None else getattr(self, name)
        save_arrays(file, **self.collection.arrays(), **parts, own=self.own.pairs)

    @classmethod
    def open(cls, file: str | Path) -> AugmenterPairs:
        """Saved pairs."""
        queries, positives, negatives = (
            TokenCorpus(*read_arrays(file, f"{name}_ids", f"{name}_offsets"))
            for name in ("queries", "positives", "negatives")
        )
        own, count, *scores = read_arrays(file, "own", "negatives_per_query", *_SCORES)
        given = scores if len(scores[0]) else (None, None)
        return cls(BM25Rows.read(file), queries, QueryTerms(own), positives, negatives, int(count), *given)

    def __len__(self) -> int:
        """How many queries an epoch has."""
        return len(self.usable)

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """`size` queries to encode; `extra` has their documents as BM25 rows."""
        if size > len(self.usable):
            raise VizslaError(
                f"a batch of {size:,} needs as many queries with an answer among the documents, and there are "
                f"{len(self.usable):,}; use a smaller batch, as in --set training.batch_size=32"
            )
        epoch, place = divmod(step, len(self.usable) // size)
        order = epoch_order(len(self.usable), seed, epoch)
        chosen = self.usable[order[place * size : (place + 1) * size]]
        drawn = self._draw_places(chosen, np.random.default_rng((seed, epoch, place)))
        sides = zip((self.positives, self.negatives), drawn, strict=True)
        documents = np.concatenate([side.ids[places].astype(np.int64) for side, places in sides])
        rows = BatchRows(
            torch.from_numpy(self.own.pairs[chosen]).to(device),
            self.collection.only(documents).matrix(device),
            *_tensors(self.collection, device),
            self._margins(*drawn, device),
        )
        texts = [with_special_tokens(self.queries, chosen, device, max_length=MAX_QUERY_LENGTH)]
        return TrainingBatch(texts, self._false_negatives(chosen, documents).to(device), rows)

    @cached_property
    def usable(self) -> np.ndarray:
        """The queries that have an answer and, with a teacher, a negative to compare it with."""
        answered = np.diff(self.positives.offsets) > 0
        return np.flatnonzero(answered & (np.diff(self.negatives.offsets) >= (self.positive_scores is not None)))

    def _draw_places(self, queries: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The position of a positive of each query in `positives.ids`, and of negatives in `negatives.ids`."""
        first, last = self.positives.offsets[queries], self.positives.offsets[queries + 1]
        positives = np.array([rng.integers(count) for count in (last - first).tolist()], np.int64) + first
        first, last = self.negatives.offsets[queries], self.negatives.offsets[queries + 1]
        sizes = zip(first.tolist(), (last - first).tolist(), strict=True)
        drawn = [begin + rng.integers(count, size=self.negatives_per_query) for begin, count in sizes if count]
        return positives, np.concatenate(drawn or [np.zeros(0, np.int64)])

    def _margins(self, positives: np.ndarray, negatives: np.ndarray, device: torch.device) -> Tensor | None:
        """[queries, negatives_per_query] the teacher's margins of the drawn documents; None without a teacher."""
        if self.positive_scores is None or self.negative_scores is None:
            return None
        others = self.negative_scores[negatives].reshape(len(positives), -1)
        margins = self.positive_scores[positives][:, None] - others
        return torch.from_numpy(margins.astype(np.float32)).to(device)

    def _false_negatives(self, queries: np.ndarray, documents: np.ndarray) -> Tensor:
        """[queries, documents] True where a document answers a query but is not the positive drawn for it."""
        answers = [set(self.positives[q].tolist()) for q in queries]
        answering = np.array([[d in answer for d in documents.tolist()] for answer in answers], bool)
        answering[np.arange(len(queries)), np.arange(len(queries))] = False
        return torch.from_numpy(answering)


@dataclass(frozen=True, eq=False)
class MixedPairs:
    """Batches of several collections in turn, each with its own idf; larger collections come more often."""

    collections: Sequence[AugmenterPairs]
    exponent: float = 0.5
    """1 draws a collection in proportion to its queries, 0 draws all equally often."""

    def __len__(self) -> int:
        """How many queries an epoch has, over all collections."""
        return sum(len(pairs) for pairs in self.collections)

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """A batch of one collection; a collection with fewer than `size` queries gives a smaller batch."""
        if len(self.collections) == 1:
            return self.collections[0].batch(size, seed, step, device)
        counts = np.array([len(pairs.usable) for pairs in self.collections], float) ** self.exponent
        if not counts.all():
            raise VizslaError("one of the data sets has no query with an answer among its documents")
        draws = np.random.default_rng((seed, 7)).choice(len(counts), step + 1, p=counts / counts.sum())
        pairs = self.collections[int(draws[step])]
        own_step = int((draws[:step] == draws[step]).sum())  # so that each collection goes through all its queries
        return pairs.batch(min(size, len(pairs.usable)), seed, own_step, device)


_TOKENS = 16_384  # of dev queries, encoded at once
_BLOCK = 256  # dev queries, scored at once
_ROWS = 1 << 16  # documents, scored at once
_DEPTH = 10


@dataclass(frozen=True, eq=False)
class AugmenterDev:
    """Judged queries of a collection that an augmenter is evaluated on."""

    name: str
    collection: BM25Rows
    queries: TokenCorpus
    own: QueryTerms
    judgements: np.ndarray
    max_added_terms: int = 0
    """How many terms are added at most, the strongest; 0 for all."""

    def save(self, file: str | Path) -> None:
        """Write all arrays into one file."""
        parts = {
            "queries_ids": self.queries.ids,
            "queries_offsets": self.queries.offsets,
            "judgements": self.judgements,
            "max_added_terms": np.array(self.max_added_terms),
        }
        save_arrays(file, **self.collection.arrays(), **parts, own=self.own.pairs, name=np.array(self.name))

    @classmethod
    def open(cls, file: str | Path) -> AugmenterDev:
        """A saved dev set."""
        queries = TokenCorpus(*read_arrays(file, "queries_ids", "queries_offsets"))
        name, own, judgements, most = read_arrays(file, "name", "own", "judgements", "max_added_terms")
        return cls(str(name), BM25Rows.read(file), queries, QueryTerms(own), judgements, int(most))

    @no_grad
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """nDCG@10 of BM25 with the network's expanded queries."""
        documents = self._documents(device)
        idf, document_share = _tensors(self.collection, device)
        means = []
        for first in range(0, len(self.queries), _BLOCK):
            chosen = np.arange(first, min(first + _BLOCK, len(self.queries)))
            texts = with_special_tokens(self.queries, chosen, device, max_length=MAX_QUERY_LENGTH)
            batch = packed(*texts, _TOKENS)
            added, weights = assemble([encode(chunk) for chunk in batch.chunks], batch)
            own = torch.from_numpy(self.own.pairs[chosen]).to(device)
            added = strongest(added.float() * (document_share[: added.shape[1]] > 0), own, self.max_added_terms)
            queries = query_vectors(AugmentedQueries(added, weights.float()), own, len(idf)) * idf
            in_block = (self.judgements[:, 0] >= first) & (self.judgements[:, 0] < first + len(chosen))
            judged = self.judgements[in_block] - np.array([first, 0, 0])
            if len(judged):
                best, begin = BestDocuments(_DEPTH), 0
                for block in documents:
                    best.add((block @ queries.T.contiguous()).T, begin)
                    begin += len(block)
                means.append((best.ndcg(judged), len(np.unique(judged[:, 0]))))
        total = sum(count for _, count in means)
        return {f"{self.name} nDCG@10": sum(mean * count for mean, count in means) / max(total, 1)}

    def _documents(self, device: torch.device) -> list[Tensor]:
        by_device: dict[torch.device, list[Tensor]] = self.__dict__.setdefault("_by_device", {})
        if device not in by_device:
            by_device[device] = list(self.collection.blocks(device))
        return by_device[device]


def _tensors(collection: BM25Rows, device: torch.device) -> tuple[Tensor, Tensor]:
    """idf and document shares on a device."""
    idf, share = (torch.from_numpy(x.astype(np.float32)) for x in (collection.idf, collection.document_share))
    return idf.to(device), share.to(device)


_TERMS, _WORDS = "terms.json", "words.npz"


@dataclass(frozen=True, eq=False)
class AugmenterData:
    """The complete training data of an augmenter, in a folder that can be copied to a machine with a GPU."""

    terms: Sequence[str]
    """The terms that can be added."""
    words: TokenCorpus | None
    """The word pieces of each term's most frequent word; None where the head is tied to the input embeddings."""
    pairs: Sequence[AugmenterPairs]
    dev: Sequence[AugmenterDev]

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder, replacing data that was prepared there before."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for old in [path / _WORDS, *path.glob("pairs-*.npz"), *path.glob("dev-*.npz")]:
            old.unlink(missing_ok=True)
        (path / _TERMS).write_text(json.dumps(list(self.terms)), "utf-8")
        if self.words is not None:
            np.savez(path / _WORDS, ids=self.words.ids, offsets=self.words.offsets)
        for number, pairs in enumerate(self.pairs):
            pairs.save(path / f"pairs-{number}.npz")
        for number, dev in enumerate(self.dev):
            dev.save(path / f"dev-{number}.npz")

    @classmethod
    def open(cls, folder: str | Path) -> AugmenterData:
        """Saved data."""
        path = Path(folder)
        try:
            terms = parse_json((path / _TERMS).read_text("utf-8"))
        except (OSError, ValueError):
            raise InputError(f"there is no training data here (no {_TERMS})", file=str(folder)) from None
        words = TokenCorpus(*read_arrays(path / _WORDS, "ids", "offsets")) if (path / _WORDS).exists() else None
        pairs, dev = (numbered_folders(path, name) for name in ("pairs", "dev"))
        if not pairs:
            raise InputError("there are no packed queries here", file=str(folder))
        return cls(terms, words, [*map(AugmenterPairs.open, pairs)], [*map(AugmenterDev.open, dev)])


_SAMPLED_DOCUMENTS = 20_000  # of a data set, to find the most frequent word of each term
_UNKNOWN_PIECE = 100


@dataclass(frozen=True, eq=False)
class CountedDataset:
    """A data set as BM25 reads it, with the document frequency of each term."""

    dataset: BeirDataset
    documents: CorpusStore
    terms: list[str]
    frequencies: np.ndarray
    statistics: CountedStatistics

    @classmethod
    def read(cls, dataset: BeirDataset, bm25: BM25) -> CountedDataset:
        """Read all documents of a data set."""
        documents = CorpusStore.of(dataset.documents())
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


def query_vectors(augmented: AugmentedQueries, own: Tensor, columns: int) -> Tensor:
    """[queries, columns] the query vectors, not yet multiplied by idf.

    A term of the query has the weight w * (1 + a), any other term a, where w is the weight of the term's token and a
    the weight that the network adds. If a term has several tokens, w is their highest weight.
    """
    added, weights = augmented
    queries = torch.nn.functional.pad(added, (0, columns - added.shape[1])).flatten()
    exists = own[..., 1] >= 0
    row = torch.arange(len(own), device=own.device)[:, None].expand_as(exists)[exists]
    position, column = own[..., 0][exists].long(), own[..., 1][exists].long()
    keys, repeats = torch.unique(row * columns + column, return_inverse=True)
    token_weights = torch.where(position == UNREAD, 1.0, weights[row, position.clamp(min=0)])
    highest = weights.new_zeros(len(keys)).scatter_reduce(0, repeats, token_weights, "amax")
    return queries.index_copy(0, keys, highest * (1 + queries[keys])).view(len(own), columns)


def strongest(added: Tensor, own: Tensor, count: int) -> Tensor:
    """The added weights with all but the `count` highest of each query at 0; the query's own terms are not counted.

    A `count` of 0 keeps all.
    """
    if not 0 < count < added.shape[1]:
        return added
    columns = own[..., 1].long()
    is_own = torch.zeros(len(added), added.shape[1] + 1, dtype=torch.bool, device=added.device)
    is_own.scatter_(1, torch.where((columns >= 0) & (columns < added.shape[1]), columns, added.shape[1]), True)
    is_own = is_own[:, :-1]
    return added * is_own.scatter(1, added.masked_fill(is_own, 0).topk(count, 1).indices, True)


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
            metrics["accuracy"] = accuracy(masked)
            metrics["query_terms"] = (queries > 0).sum(1).float().mean()
            metrics["added_terms"] = (added > 0).sum(1).float().mean()
            metrics["cost"] = cost.detach()
        total: Tensor = loss + cost
        return total


_NEVER = -1e4  # the bias of a term that no document contains
_INIT_QUERIES = 200  # used to initialise the head
_CHUNK = 1 << 14  # tokens


@TRAINED_KINDS.register("augmenter", help="Expands the queries of BM25.", needs=("torch", "transformers", "onnx"))
class AugmenterKind(TrainedKind[AugmenterSettings]):
    """Trains a network that adds terms to queries and weighs them, on judged queries."""

    settings_class = AugmenterSettings
    wants_gpu = False

    def __init__(self, name: str, settings: AugmenterSettings) -> None:
        super().__init__(name, settings)
        self._data: dict[Path, AugmenterData] = {}

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
