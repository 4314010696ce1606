"""Training and dev data of a cross-encoder: queries, each with several documents."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.neural.chunks import packed
from vizsla.neural.heads.cross import LEAST, joint_pairs
from vizsla.neural.lazy_torch import no_grad, torch
from vizsla.training.sources.dev_set import Assemble, Encode, numbered_folders
from vizsla.training.sources.pairs import MinedPairs, ScoredPairs, TrainingBatch, open_pairs
from vizsla.training.sources.token_corpus import TokenCorpus

if TYPE_CHECKING:
    from torch import Tensor

_DEPTH = 10  # of the measures
_TOKENS = 65_536  # of dev pairs, encoded at once
_BLOCK = 4096  # dev pairs, tokenized at once
_TOKENIZER = "tokenizer.json"
_TEXTS = ("queries", "documents", "candidates")


class Group(NamedTuple):
    """The texts of a query in a batch."""

    size: int
    """How many there are: the query with its positive, then with its negatives."""
    wanted: Tensor | None = None
    """[queries, size] a teacher's scores."""


@dataclass(frozen=True, eq=False)
class CrossEncoderPairs:
    """Mined pairs as a cross-encoder reads them: for each query its positive, then its negatives.

    Each text is a query, cut to `max_query_length`, and a document, cut so that both together have at most
    `max_length` tokens.
    """

    source: MinedPairs | ScoredPairs
    max_query_length: int = 64
    max_length: int = 256

    def __post_init__(self) -> None:
        if self.max_query_length < 3 or self.max_length < self.max_query_length + 2:
            raise VizslaError(
                f"max_query_length {self.max_query_length} does not fit max_length {self.max_length}: a query needs 3 "
                "tokens or more, and a document 2 more than the query"
            )

    @property
    def mined(self) -> MinedPairs:
        """The pairs without a teacher's scores."""
        return self.source.pairs if isinstance(self.source, ScoredPairs) else self.source

    def __len__(self) -> int:
        """How many queries are drawn in an epoch."""
        return len(self.source)

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """`size * (1 + negatives_per_query)` texts; `extra` is a `Group`."""
        places = self.mined.draw_places(size, seed, step)
        queries, *sides = self.mined.numbers_at(*places)
        documents = _side_by_side(*sides)
        repeated = np.repeat(queries, documents.shape[1])
        wanted = None
        if isinstance(self.source, ScoredPairs):
            scores = _side_by_side(self.source.positive_scores[places[1]], self.source.negative_scores[places[2]])
            wanted = torch.from_numpy(scores.astype(np.float32)).to(device)
        group = Group(documents.shape[1], wanted)
        return TrainingBatch([self.texts(repeated, documents.ravel(), device)], extra=group)

    def texts(self, queries: np.ndarray, documents: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
        """Token ids and mask of pairs, given the numbers of their queries and documents."""
        lengths = self.max_query_length, self.max_length
        return _joint_texts(self.mined.queries, self.mined.documents, queries, documents, *lengths, device)


def _side_by_side(positives: np.ndarray, negatives: np.ndarray) -> np.ndarray:
    """[queries, 1 + negatives] the values of each query's positive, then those of its negatives."""
    return np.concatenate([positives[:, None], negatives.reshape(len(positives), -1)], 1)


def _joint_texts(
    queries: TokenCorpus, documents: TokenCorpus, query_numbers: np.ndarray, document_numbers: np.ndarray,
    max_query_length: int, max_length: int, device: torch.device,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Token ids and mask of queries with a document each."""
    texts = (queries.ids, queries.offsets), (documents.ids, documents.offsets)
    flat, starts = joint_pairs(*texts, query_numbers, document_numbers, max_query_length, max_length)
    lengths = np.diff(starts)
    mask = np.arange(lengths.max(initial=LEAST)) < lengths[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = flat
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


@dataclass(frozen=True, eq=False)
class CrossEncoderDev:
    """Judged queries with the candidates of a first stage, best first, that a cross-encoder reranks."""

    name: str
    queries: TokenCorpus
    documents: TokenCorpus
    candidates: TokenCorpus
    """For each query, the numbers of its candidates."""
    grades: np.ndarray
    """The grade of each candidate, in their order; 0 without a judgement."""
    ideal: np.ndarray
    """[queries] the highest possible DCG@10, over all judged documents."""
    max_query_length: int = 64
    max_length: int = 256

    @classmethod
    def of(
        cls, name: str, queries: TokenCorpus, documents: TokenCorpus, candidates: TokenCorpus, judgements: np.ndarray,
        *, max_query_length: int, max_length: int,
    ) -> CrossEncoderDev:  # fmt: skip
        """From all documents, of which only candidates are kept, and [judgements, 3] query, document and grade."""
        used, numbers = np.unique(candidates.ids, return_inverse=True)
        grade_of = {(q, d): grade for q, d, grade in judgements.tolist()}
        query_numbers = np.repeat(np.arange(len(candidates)), np.diff(candidates.offsets)).tolist()
        grades = [max(grade_of.get(pair, 0), 0) for pair in zip(query_numbers, candidates.ids.tolist(), strict=True)]
        best = [np.sort(judgements[judgements[:, 0] == q, 2].clip(min=0))[::-1] for q in range(len(queries))]
        return cls(
            name, queries, documents.chosen(used),
            TokenCorpus(numbers.astype(np.int64), candidates.offsets), np.array(grades, np.int64),
            np.array([_dcg(grades) for grades in best]), max_query_length, max_length,
        )  # fmt: skip

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder."""
        path = Path(folder)
        for part in _TEXTS:
            getattr(self, part).narrow().save(path / part)
        lengths = np.array([self.max_query_length, self.max_length])
        np.savez(path / "judged.npz", grades=self.grades, ideal=self.ideal, lengths=lengths, name=np.array(self.name))

    @classmethod
    def open(cls, folder: str | Path) -> CrossEncoderDev:
        """A saved dev set."""
        path = Path(folder)
        try:
            with (path / "judged.npz").open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                name, grades, ideal, lengths = (arrays[part] for part in ("name", "grades", "ideal", "lengths"))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            raise InputError("there are no candidates to rerank here (no judged.npz)", file=str(folder)) from None
        queries, documents, candidates = (TokenCorpus.open(path / part) for part in _TEXTS)
        return cls(str(name), queries, documents, candidates, grades, ideal, int(lengths[0]), int(lengths[1]))

    @no_grad
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """nDCG@10 and MRR@10 of the candidates in the order of the network's scores."""
        query_numbers = np.repeat(np.arange(len(self.candidates)), np.diff(self.candidates.offsets))
        scores = [np.zeros(0, np.float32)]
        for first in range(0, len(query_numbers), _BLOCK):
            part = slice(first, first + _BLOCK)
            texts = _joint_texts(
                self.queries, self.documents, query_numbers[part], np.asarray(self.candidates.ids[part]),
                self.max_query_length, self.max_length, device,
            )  # fmt: skip
            batch = packed(*texts, _TOKENS)
            scores.append(assemble([encode(chunk) for chunk in batch.chunks], batch).squeeze(1).float().cpu().numpy())
        return self.evaluate(np.concatenate(scores))

    def evaluate(self, scores: np.ndarray | None = None) -> dict[str, float]:
        """nDCG@10 and MRR@10 of scores, one per candidate; without scores, of the first stage's order."""
        ndcg, reciprocal_ranks = [], []
        for query in range(len(self.candidates)):
            begin, end = self.candidates.offsets[query : query + 2].tolist()
            order = slice(None) if scores is None else np.argsort(-scores[begin:end], kind="stable")
            grades = self.grades[begin:end][order][:_DEPTH]
            ndcg.append(_dcg(grades) / self.ideal[query] if self.ideal[query] > 0 else 0.0)
            reciprocal_ranks.append(1 / (1 + int(np.argmax(grades > 0))) if (grades > 0).any() else 0.0)
        means = (float(np.mean(each)) if each else 0.0 for each in (ndcg, reciprocal_ranks))
        return dict(zip((f"{self.name} nDCG@{_DEPTH}", f"{self.name} MRR@{_DEPTH}"), means, strict=True))


def _dcg(grades: np.ndarray) -> float:
    """DCG@10 of grades in the order of a ranking."""
    first = grades[:_DEPTH]
    return float((first / np.log2(np.arange(2, len(first) + 2))).sum())


@dataclass(frozen=True, eq=False)
class CrossEncoderData:
    """The complete training data of a cross-encoder, in a folder that can be copied to a machine with a GPU."""

    pairs: MinedPairs | ScoredPairs
    dev: Sequence[CrossEncoderDev]
    tokenizer: bytes
    """The tokenizer.json that made the token ids."""

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder."""
        path = Path(folder)
        self.pairs.narrow().save(path / "pairs")
        for number, dev in enumerate(self.dev):
            dev.save(path / f"dev-{number}")
        (path / _TOKENIZER).write_bytes(self.tokenizer)

    @classmethod
    def open(cls, folder: str | Path, negatives_per_query: int = 7) -> CrossEncoderData:
        """Saved data."""
        path = Path(folder)
        try:
            tokenizer = (path / _TOKENIZER).read_bytes()
        except OSError:
            raise InputError(f"there is no training data here (no {_TOKENIZER})", file=str(folder)) from None
        pairs = open_pairs(path / "pairs", negatives_per_query=negatives_per_query)
        return cls(pairs, [*map(CrossEncoderDev.open, numbered_folders(path, "dev"))], tokenizer)
