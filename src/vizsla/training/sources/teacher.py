"""Teachers: models and cross-encoders whose scores a trained model learns (distillation)."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vizsla.datasets import Document
from vizsla.errors import UnknownNameError, VizslaError
from vizsla.index.storage.corpus_store import Contents
from vizsla.lazy import cached_property
from vizsla.models import CollectionStatistics, Fields, Model, Reranker, Sum, TokenComponent, field_text, parse_model
from vizsla.models.reranker import BertPairs
from vizsla.neural.checkpoints.packages import package_of
from vizsla.neural.device import on_gpu
from vizsla.neural.heads.cross import Texts
from vizsla.text import Analyzer
from vizsla.training.loop.objectives import TAUGHT
from vizsla.training.settings import require_at_least, setting
from vizsla.training.sources.pairs import MinedPairs, ScoredPairs
from vizsla.training.sources.token_corpus import TokenCorpus, packed_texts
from vizsla.vectors import DenseVectors, JoinedVectors, SparseVectors, TokenVectors, Vectors

_KEY = 64  # bytes at the beginning of the file: the hash of everything that its scores depend on


def scores_key(*parts: object) -> str:
    """The hash of everything that some scores depend on: texts, and arrays of numbers.

    >>> scores_key("bm25", np.arange(3)) == scores_key("bm25", np.arange(3)) != scores_key("bm25", np.arange(4))
    True
    """
    digest = hashlib.sha256()
    for part in parts:
        content = part.tobytes() if isinstance(part, np.ndarray) else str(part).encode()
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


def kept_scores(file: Path, key: str, count: int, block: int, score: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """`count` scores: those in the file are read, the others are computed and appended to it, `block` at a time.

    `score(first, last)` computes those from `first` up to `last`. A file with another key is overwritten.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    known = _known(file, key, count, block)
    with file.open("r+b" if len(known) else "wb") as opened:
        opened.truncate(_KEY + known.nbytes if len(known) else 0)
        opened.seek(0)
        opened.write(key.encode())
        opened.seek(0, 2)
        parts = [known]
        for first in range(len(known), count, block):
            parts.append(np.asarray(score(first, min(first + block, count)), np.float32))
            opened.write(parts[-1].tobytes())
            opened.flush()
    return np.concatenate(parts)


def _known(file: Path, key: str, count: int, block: int) -> np.ndarray:
    """The scores in a file: all of them, or as many whole blocks as there are."""
    none = np.zeros(0, np.float32)
    if not file.is_file():
        return none
    with file.open("rb") as opened:
        if opened.read(_KEY) != key.encode():
            return none
        content = opened.read(4 * count)
    whole = len(content) // 4
    return np.frombuffer(content, np.float32, whole if whole == count else whole // block * block).copy()


_PAIRS = 65_536  # scored at once
_ENCODED = 1 << 18  # documents whose vectors are held at once
_READ_PAIRS = 1024  # scored at once by a cross-encoder where there is no GPU


@dataclass(frozen=True)
class TeacherSettings:
    """Whose scores a model learns, if any."""

    teacher: str = setting(
        "", "cross-encoder or model whose scores are learnt, or several, separated by ;, for their mean; empty for none"
    )
    teacher_scale: float = setting(
        0.0, "factor of the teacher's scores; 0 chooses it so that their margins are about 1"
    )

    def check_teacher(self, negatives_per_query: int) -> None:
        """Refuse a teacher without hard negatives to compare."""
        require_at_least(self, "data", 0, "teacher_scale")
        if self.teacher and not negatives_per_query:
            raise VizslaError("a teacher compares a document with hard negatives; set data.negatives_per_query=1")


@dataclass(frozen=True)
class SumTeacherSettings(TeacherSettings):
    """Whose scores a model learns, by itself or in a sum with another model."""

    beside: str = setting(
        "", "model that is searched in a sum with the trained one, such as bm25: their sum learns the teacher's scores"
    )

    def check_teacher(self, negatives_per_query: int) -> None:
        super().check_teacher(negatives_per_query)
        if self.beside and not self.teacher:
            raise VizslaError("data.beside adds to the scores that are compared with data.teacher's; set both")

    def open_beside(self) -> list[Model | Reranker]:
        """The model of the sum, if there is one."""
        return [open_teacher(self.beside)] if self.beside else []


def check_loss(data: object, loss_name: str, losses: tuple[str, ...] = TAUGHT) -> None:
    """Refuse a distillation loss without teacher scores, and teacher scores that the loss does not use.

    `losses`: those that learn from a teacher's scores.
    """
    taught = isinstance(data, TeacherSettings) and bool(data.teacher)
    if taught and loss_name not in losses:
        named = f"{', '.join(losses[:-1])} or {losses[-1]}"
        raise VizslaError(f"loss.name={loss_name} does not read the scores of data.teacher; set loss.name to {named}")
    if not taught and loss_name in losses:
        raise VizslaError(f"loss.name={loss_name} learns the scores of data.teacher, so set both or neither")


def open_teacher(text: str) -> Model | Reranker:
    """A model by its expression or folder, or a cross-encoder by its folder, its ONNX file or its name.

    >>> open_teacher("bm25 + 0.5 * bm25-wp").name
    'bm25 + 0.5 * bm25-wp'
    """
    folder = Path(text)
    if (folder.is_dir() and not (folder / "model.json").is_file()) or text.endswith(".onnx") or package_of(text):
        return Reranker.open(folder)
    try:
        return parse_model(text)
    except UnknownNameError:
        if "/" not in text:
            raise
    return Reranker.open(text)


def open_teachers(text: str) -> list[Model | Reranker]:
    """Teachers by their names, separated by semicolons.

    >>> [teacher.name for teacher in open_teachers("bm25; bm25 + 0.5 * bm25-wp")]
    ['bm25', 'bm25 + 0.5 * bm25-wp']
    """
    names = [name.strip() for name in text.split(";")]
    if not all(names):
        raise VizslaError(f'data.teacher "{text}" has an empty name; name teachers as in "bm25; my-cross-encoder"')
    return [open_teacher(name) for name in names]


def teacher_scores(
    teacher: Model | Reranker,
    documents: Sequence[Document],
    queries: Sequence[str],
    query_numbers: np.ndarray,
    document_numbers: np.ndarray,
    file: Path | None = None,
) -> np.ndarray:
    """[pairs] the score of each query with the document at the same position, both given by their numbers.

    A lexical model uses the statistics of all documents. `file`: where scores are stored, so that they are not computed
    again.
    """
    scorer = PairScorer(teacher, documents, queries, np.unique(document_numbers))
    # Documents that are encoded together come together, and among them the pairs of a query.
    order = np.lexsort((query_numbers, scorer.groups_of(document_numbers)))
    pairs = query_numbers[order], document_numbers[order]

    def score(first: int, last: int) -> np.ndarray:
        return scorer.scores(pairs[0][first:last], pairs[1][first:last])

    scores = np.zeros(len(order), np.float32)
    if file is None:
        scores[order] = score(0, len(order))
    else:
        key = scores_key(scorer.identity(), *(numbers.astype(np.int64) for numbers in pairs))
        scores[order] = kept_scores(file, key, len(order), scorer.block, score)
    return scores


@dataclass(frozen=True)
class PairScorer:
    """A teacher that scores pairs of queries and documents, given by their numbers."""

    teacher: Model | Reranker
    documents: Sequence[Document]
    queries: Sequence[str]
    used: np.ndarray
    """The numbers of the documents that are scored, in order; statistics are those of all documents."""

    @property
    def block(self) -> int:
        """Pairs that are scored at once."""
        return _PAIRS if not isinstance(self.teacher, Reranker) or on_gpu() else _READ_PAIRS

    def identity(self) -> str:
        """The hash of teacher and texts."""
        teacher, fields = self.teacher, self.teacher.fields
        if isinstance(teacher, Reranker):
            about: object = (teacher.network.digest, teacher.query_length, teacher.length)
        else:
            with tempfile.TemporaryDirectory(prefix="vizsla-") as folder:
                about = json.dumps(teacher.describe(Path(folder)))
        texts = (field_text(document.content, fields) for document in self.documents)
        return scores_key(teacher.name, about, *self.queries, len(self.queries), *texts)

    def scores(self, query_numbers: np.ndarray, document_numbers: np.ndarray) -> np.ndarray:
        """[pairs] the score of each query with the document at the same place."""
        teacher = self.teacher
        if isinstance(teacher, Reranker):
            scores = self._read_scores(teacher, query_numbers, document_numbers)
        else:
            scores, groups = np.zeros(len(query_numbers)), self.groups_of(document_numbers)
            for group in np.unique(groups).tolist():
                inside = groups == group
                scores[inside] = self._products(query_numbers[inside], document_numbers[inside], group)
        if not np.isfinite(scores).all():
            raise VizslaError(f"the teacher {teacher.name} gives scores that are not finite")
        return scores

    def groups_of(self, document_numbers: np.ndarray) -> np.ndarray:
        """[documents] which of them a model encodes together."""
        groups: np.ndarray = np.searchsorted(self.used, document_numbers) // _ENCODED
        return groups

    def _products(self, query_numbers: np.ndarray, document_numbers: np.ndarray, group: int) -> np.ndarray:
        """[pairs] the inner products of queries with documents of one group, whose vectors are kept until the next."""
        used, places = np.unique(query_numbers, return_inverse=True)
        vectors, rows = self.query_vectors([self.queries[q] for q in used.tolist()]), self._group_vectors(group)
        numbers = places, np.searchsorted(self.used, document_numbers) - group * _ENCODED
        products = [pair_products(*both, *numbers) for both in zip(vectors, rows, strict=True)]
        total: np.ndarray = np.sum(products, axis=0)
        return total

    def _group_vectors(self, group: int) -> list[Vectors]:
        if group not in self._encoded:
            self._encoded.clear()
            self._encoded[group] = self._vectors(self.used[group * _ENCODED : (group + 1) * _ENCODED])
        return self._encoded[group]

    @cached_property
    def _encoded(self) -> dict[int, list[Vectors]]:
        """The vectors of the group of documents that was scored last."""
        return {}

    def _read_scores(self, teacher: Reranker, query_numbers: np.ndarray, document_numbers: np.ndarray) -> np.ndarray:
        """The scores of a cross-encoder; texts are tokenized once if it reads word pieces."""
        if isinstance(teacher.network, BertPairs):
            places, lengths = np.searchsorted(self.used, document_numbers), (teacher.query_length, teacher.length)
            return teacher.network.numbered_scores(*self._pieces, query_numbers, places, *lengths)
        texts = [field_text(self.documents[d].content, teacher.fields) for d in document_numbers.tolist()]
        return teacher.pair_scores([self.queries[q] for q in query_numbers.tolist()], texts)

    @cached_property
    def _pieces(self) -> tuple[Texts, Texts]:
        """The queries, and the documents that are scored, as token ids."""
        analyzer: Analyzer = self.teacher.network.analyzer  # type: ignore[union-attr]
        contents = (field_text(self.documents[d].content, self.teacher.fields) for d in self.used.tolist())
        queries, documents = (packed_texts(one, analyzer) for one in (self.queries, contents))
        return (queries.ids, queries.offsets), (documents.ids, documents.offsets)

    def query_vectors(self, queries: Sequence[str]) -> list[Vectors]:
        """The vectors that a model gives queries: one group for each of its summands."""
        return [model.encode_queries(queries, self._statistics) for model in self._summands]

    def document_vectors(self) -> list[Vectors]:
        """The vectors that a model gives all documents that are scored: one group for each of its summands."""
        return self._group_vectors(0) if len(self.used) <= _ENCODED else self._vectors(self.used)

    def _vectors(self, numbers: np.ndarray) -> list[Vectors]:
        contents = [self.documents[d].content for d in numbers.tolist()]
        return [model.encode_documents(contents, self._statistics) for model in self._summands]

    @cached_property
    def _summands(self) -> list[Model]:
        """The parts of the model with token vectors, which cannot be concatenated, and all others together."""
        parts = self._model.parts
        alone = [part for part in parts if isinstance(part.component, TokenComponent)]
        others = tuple(part for part in parts if not isinstance(part.component, TokenComponent))
        return [*([Sum(others)] if others else []), *(Sum((part,)) for part in alone)]

    @cached_property
    def _model(self) -> Model:
        model = self.teacher
        assert isinstance(model, Model)
        if model.needs_corpus_statistics or model.needs_fit:
            model = model.fit(self._contents)
        if model.needs_texts:
            raise VizslaError(
                f"{model.name} needs a first search for its queries, so it cannot be a teacher; name another model"
            )
        return model

    @cached_property
    def _contents(self) -> Sequence[Fields]:
        return Contents(self.documents)

    @cached_property
    def _statistics(self) -> CollectionStatistics:
        return self._model.statistics(self._contents)


def answer_scores(
    documents: Sequence[Document], queries: Sequence[str], positives: TokenCorpus, negatives: TokenCorpus,
    teachers: Sequence[Model | Reranker], file: Path,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The scores of each query with its positives and its negatives, in the order of their `ids`.

    The scores of a single teacher are not changed. Those of several are scaled so that the root mean square of each
    teacher's margins is 1, and averaged. Each teacher's scores are stored in their own file.
    """
    sides = positives, negatives
    query_numbers = np.concatenate([np.repeat(np.arange(len(queries)), np.diff(side.offsets)) for side in sides])
    document_numbers = np.concatenate([side.ids for side in sides])
    given = []
    for number, teacher in enumerate(teachers):
        place = file.with_stem(f"{file.stem}-{number}") if number else file
        scores = teacher_scores(teacher, documents, queries, query_numbers, document_numbers, place)
        positive, negative = np.split(scores, [len(positives.ids)])
        if len(teachers) > 1:
            size = MarginSquares.of(positives, negatives, positive, negative)
            scores *= teacher_factor(TeacherSettings(teacher.name), [size])
        given.append((positive, negative))
    return np.mean([one for one, _ in given], axis=0), np.mean([one for _, one in given], axis=0)


def taught_pairs(
    pairs: MinedPairs,
    documents: Sequence[Document],
    queries: Sequence[str],
    teachers: Sequence[Model | Reranker],
    file: Path,
    beside: Sequence[Model | Reranker] = (),
) -> ScoredPairs:
    """Pairs with the scores of teachers, as `answer_scores` gives them; and with those of a model `beside`."""
    given = replace(pairs, negatives_per_query=max(pairs.negatives_per_query, 1))
    texts = documents, queries, pairs.positives, pairs.negatives
    others = answer_scores(*texts, beside, file.with_stem(f"{file.stem}-beside")) if beside else None
    return ScoredPairs(given, *answer_scores(*texts, teachers, file), others)


class MarginSquares(NamedTuple):
    """The sum of a teacher's squared margins, over all pairs of a query's positive and negative, and their number."""

    total: float
    pairs: int

    @classmethod
    def of(
        cls, positives: TokenCorpus, negatives: TokenCorpus, positive_scores: np.ndarray, negative_scores: np.ndarray
    ) -> MarginSquares:
        """From the scores of each query's positives and negatives."""
        counts, sums, squares = [], [], []
        for side, scores in ((positives, positive_scores), (negatives, negative_scores)):
            rows, exact = np.repeat(np.arange(len(side)), np.diff(side.offsets)), scores.astype(np.float64)
            counts.append(np.diff(side.offsets))
            sums.append(np.bincount(rows, exact, len(side)))
            squares.append(np.bincount(rows, exact**2, len(side)))
        total = counts[1] * squares[0] - 2 * sums[0] * sums[1] + counts[0] * squares[1]
        return cls(float(total.sum()), int((counts[0] * counts[1]).sum()))


def teacher_factor(settings: TeacherSettings, collections: Sequence[MarginSquares]) -> float:
    """The factor of a teacher's scores: by default the one that makes the root mean square of its margins 1."""
    count = sum(one.pairs for one in collections)
    if not count:
        raise VizslaError("no query has both an answer and a hard negative among the documents, so there is no margin")
    mean = sum(one.total for one in collections) / count
    if not mean > 0:
        raise VizslaError(f"the teacher {settings.teacher} gives all documents of a query the same score")
    return settings.teacher_scale or float(1 / np.sqrt(mean))


def scaled(pairs: ScoredPairs, settings: TeacherSettings) -> ScoredPairs:
    """Pairs with the teacher's scores multiplied as the settings say."""
    scores = pairs.positive_scores, pairs.negative_scores
    factor = teacher_factor(settings, [MarginSquares.of(pairs.pairs.positives, pairs.pairs.negatives, *scores)])
    positive, negative = ((factor * one).astype(np.float32) for one in scores)
    return replace(pairs, positive_scores=positive, negative_scores=negative)


def pair_products(
    queries: Vectors, documents: Vectors, query_numbers: np.ndarray, document_numbers: np.ndarray
) -> np.ndarray:
    """[pairs] the score of each query with the document at the same place: an inner product, or of late interaction.

    >>> queries = SparseVectors.from_rows([{"dog": 2.0}, {"cat": 1.0, "dog": 1.0}], "words")
    >>> documents = SparseVectors.from_rows([{"cat": 3.0}, {"dog": 4.0}], "words")
    >>> pair_products(queries, documents, np.array([0, 1, 1]), np.array([0, 0, 1])).tolist()
    [0.0, 3.0, 4.0]
    """
    if isinstance(queries, JoinedVectors) and isinstance(documents, JoinedVectors):
        numbers = query_numbers, document_numbers
        total: np.ndarray = _sparse_products(queries.sparse, documents.sparse, *numbers)
        total += _dense_products(queries.dense, documents.dense, *numbers)
        return total
    if isinstance(queries, DenseVectors) and isinstance(documents, DenseVectors):
        return _dense_products(queries, documents, query_numbers, document_numbers)
    if isinstance(queries, TokenVectors) and isinstance(documents, TokenVectors):
        return queries.pair_scores(documents, query_numbers, document_numbers)
    assert isinstance(queries, SparseVectors)
    assert isinstance(documents, SparseVectors)
    return _sparse_products(queries, documents, query_numbers, document_numbers)


def _dense_products(
    queries: DenseVectors, documents: DenseVectors, query_numbers: np.ndarray, document_numbers: np.ndarray
) -> np.ndarray:
    products = np.zeros(len(query_numbers))
    for first in range(0, len(query_numbers), _PAIRS):
        part = slice(first, first + _PAIRS)
        for name, matrix in queries.parts.items():
            rows, others = matrix[query_numbers[part]], documents.parts[name][document_numbers[part]]
            products[part] += np.einsum("ij,ij->i", rows, others)
    return products


def _sparse_products(
    queries: SparseVectors, documents: SparseVectors, query_numbers: np.ndarray, document_numbers: np.ndarray
) -> np.ndarray:
    """Each query becomes a dense array over all terms once, in which the terms of its documents are looked up."""
    known = documents.vocabulary
    numbers = [known.number(*queries.vocabulary[i]) for i in range(len(queries.vocabulary))]
    columns = np.array([len(known) if n is None else n for n in numbers], np.int64)
    weights, products = np.zeros(len(known) + 1), np.zeros(len(query_numbers))
    order = np.argsort(query_numbers, kind="stable")
    bounds = np.searchsorted(query_numbers[order], np.arange(len(queries) + 1)).tolist()
    for query in np.unique(query_numbers).tolist():
        own = slice(queries.pointers[query], queries.pointers[query + 1])
        weights[columns[queries.indices[own]]] = queries.values[own]
        weights[-1] = 0.0  # terms that occur in no document
        for pair in order[bounds[query] : bounds[query + 1]].tolist():
            row = slice(*documents.pointers[document_numbers[pair] : document_numbers[pair] + 2].tolist())
            products[pair] = weights[documents.indices[row]] @ documents.values[row]
        weights[columns[queries.indices[own]]] = 0.0
    return products
