"""Training and dev data of an augmenter: queries, and documents as rows of BM25 weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.lazy import cached_property
from vizsla.neural.chunks import packed
from vizsla.neural.heads.augmenter import AugmentedQueries
from vizsla.neural.lazy_torch import no_grad, torch
from vizsla.npz import read_arrays, save_arrays
from vizsla.plain_data import parse_json
from vizsla.training.loop.products import SparseMatrix, SparseRows, csr
from vizsla.training.sources.dev_set import Assemble, BestDocuments, Encode, numbered_folders
from vizsla.training.sources.pairs import TrainingBatch
from vizsla.training.sources.token_corpus import TokenCorpus, with_special_tokens

if TYPE_CHECKING:
    from torch import Tensor

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


_TOKENS = 16_384  # of dev queries, encoded at once
_BLOCK = 256  # dev queries, scored at once
_ROWS = 1 << 16  # documents, scored at once
_DEPTH = 10
_SCORES = ("positive_scores", "negative_scores")
_TERMS, _WORDS = "terms.json", "words.npz"


class BatchRows(NamedTuple):
    """What the loss of a batch of queries needs besides the network's output."""

    own: Tensor
    documents: SparseMatrix
    idf: Tensor
    document_share: Tensor
    margins: Tensor | None = None
    """[queries, negatives] the teacher's margins: its score of a query's document minus those of its negatives."""


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
        order = np.random.default_rng((seed, epoch)).permutation(len(self.usable))
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


def _tensors(collection: BM25Rows, device: torch.device) -> tuple[Tensor, Tensor]:
    """idf and document shares on a device."""
    idf, share = (torch.from_numpy(x.astype(np.float32)) for x in (collection.idf, collection.document_share))
    return idf.to(device), share.to(device)
