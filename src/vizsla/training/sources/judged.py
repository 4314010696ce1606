"""Judged queries of data sets, with hard negatives, as training pairs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from vizsla.datasets import BeirDataset, Document
from vizsla.datasets.beir import read_hard_negatives
from vizsla.errors import InputError, VizslaError
from vizsla.evaluation.answers import has_answer
from vizsla.index import Index
from vizsla.index.storage.corpus_store import ChosenDocuments, CorpusStore
from vizsla.models import BM25, Model, field_text, parse_model
from vizsla.runs import Qrels, Run
from vizsla.text import Analyzer
from vizsla.training.kind import TrainingInputs
from vizsla.training.settings import require_at_least, setting
from vizsla.training.sources.pairs import BatchSource, MinedPairs, ScoredPairs, open_pairs
from vizsla.training.sources.refresh import Collections, NegativesRefresh, collections_of
from vizsla.training.sources.source import PAIRS, SOURCE_HELP, drawing_options
from vizsla.training.sources.teacher import SumTeacherSettings, open_teachers, scaled, taught_pairs
from vizsla.training.sources.token_corpus import (
    FIELDS,
    FIELDS_SETTING,
    LINE_BREAK,
    GrowingCorpus,
    TokenCorpus,
    fields_of,
    packed_texts,
    read_texts,
)

NUMBER = np.uint32  # of a document, in arrays
_SEARCHED = 4096  # queries whose documents are looked up at once
_LISTS = 2048  # lists of ids that are looked up at once
NEGATIVES_DEPTH = 100  # of the rankings that hard negatives are taken from
NEGATIVES_HELP = "TREC runs or models (separated by ;) whose best documents are hard negatives; by default BM25"
ANSWERLESS_HELP = "hard negatives hold none of the query's answers (metadata.answers), as in DPR"


@dataclass(frozen=True)
class JudgedSource(SumTeacherSettings):
    """Judged queries of data sets, each with a document that answers it and hard negatives."""

    reads_datasets: ClassVar[bool] = True
    source: str = setting("judged", SOURCE_HELP)
    negatives_per_query: int = setting(
        7, "hard negatives drawn for a query in each step; 0 for those of the batch only"
    )
    negatives: str = setting("", NEGATIVES_HELP)
    negatives_depth: int = setting(NEGATIVES_DEPTH, "documents of a ranking that hard negatives are drawn from")
    answerless_negatives: bool = setting(False, ANSWERLESS_HELP)
    refresh_steps: int = setting(0, "steps after which the model itself finds new hard negatives (ANCE); 0 for never")
    max_query_length: int = setting(64, "tokens of a query that are read, special ones included")
    max_document_length: int = setting(256, "tokens of a document that are read, special ones included")
    fields: str = setting(FIELDS_SETTING, "fields of documents that are read, separated by /")

    def __post_init__(self) -> None:
        require_at_least(self, "data", 0, "negatives_per_query", "refresh_steps")
        require_at_least(self, "data", 1, "negatives_depth")
        require_at_least(self, "data", 3, "max_query_length", "max_document_length")
        self.check_teacher(self.negatives_per_query)
        if self.refresh_steps and not self.negatives_per_query:
            raise VizslaError("data.refresh_steps finds hard negatives; set data.negatives_per_query to 1 or more")
        if self.refresh_steps and self.teacher:
            raise VizslaError("data.teacher does not score what data.refresh_steps finds; set only one of them")
        fields_of(self.fields)

    @property
    def document_fields(self) -> tuple[str, ...]:
        """The fields of documents that are read."""
        return fields_of(self.fields)

    @property
    def separator(self) -> str:
        """What is between the fields of a document."""
        return LINE_BREAK

    def prepare(self, inputs: TrainingInputs, analyzer: Analyzer, folder: Path) -> None:
        """Find positives and hard negatives, and a teacher's scores, and pack all texts."""
        self.save(self.read(inputs, analyzer), folder)

    def read(self, inputs: TrainingInputs, analyzer: Analyzer) -> Iterator[JudgedTexts]:
        """The queries of each data set with positives and hard negatives."""
        return judged_texts(
            inputs.datasets,
            analyzer,
            negatives=self.negatives,
            negatives_depth=self.negatives_depth,
            answerless=self.answerless_negatives,
            fields=self.document_fields,
            separator=self.separator,
        )

    def save(self, collections: Iterable[JudgedTexts], folder: Path) -> None:
        """Write the pairs of all data sets into a folder, with the scores of the teacher if there is one."""
        if not self.teacher:
            several = [(one.pairs, one.own_documents()) for one in collections]
            MinedPairs.concatenate([pairs for pairs, _ in several]).save(folder / PAIRS)
            if self.refresh_steps:
                collections_of(several).save(folder / "collections.npz")
            return
        teachers, beside = open_teachers(self.teacher), self.open_beside()
        taught = []
        for number, (documents, queries, pairs) in enumerate(collections):
            file = folder / f"teacher-{number}.scores"
            taught.append(taught_pairs(pairs, documents, list(queries.values()), teachers, file, beside))
        scaled(ScoredPairs.concatenate(taught), self).save(folder / PAIRS)

    def open_refresh(self, folder: Path, *, sparse: bool = False) -> NegativesRefresh | None:
        """The refresh that mines new negatives during training; `sparse`: a query finds only scores above 0."""
        if not self.refresh_steps:
            return None
        collections = Collections.open(folder / "collections.npz")
        return NegativesRefresh(
            self.open_mined(folder), collections, self.refresh_steps, self.negatives_depth, folder, sparse
        )

    def open_mined(self, folder: Path) -> MinedPairs:
        """The pairs without a teacher's scores."""
        return MinedPairs.open(folder / PAIRS, **drawing_options(self))

    def open_pairs(self, folder: Path) -> BatchSource:
        """The queries with their positives and negatives, perhaps with a teacher's scores."""
        return open_pairs(folder / PAIRS, beside=bool(self.beside), **drawing_options(self))

    def open_documents(self, folder: Path) -> TokenCorpus:
        """The documents of the data sets."""
        return TokenCorpus.open(folder / PAIRS / "documents")


SEP_HELP = "title and text of a document have [SEP] between them, as in DPR; otherwise a line break"


def separator_of(after_title: bool) -> str:
    """What is between title and text."""
    return " [SEP] " if after_title else LINE_BREAK


@dataclass(frozen=True)
class DenseJudgedSource(JudgedSource):
    """Judged queries of data sets, and how title and text become one."""

    sep_after_title: bool = setting(False, SEP_HELP)

    @property
    def separator(self) -> str:
        """What is between the fields of a document."""
        return separator_of(self.sep_after_title)


@contextmanager
def temporary_index(documents: CorpusStore, model: Model) -> Iterator[Index]:
    """An index of documents that is deleted afterwards; a model that needs it is fitted to them."""
    if model.needs_corpus_statistics:
        model = model.fit(documents.contents)
    with (
        tempfile.TemporaryDirectory(prefix="vizsla-") as folder,
        Index.create(f"{folder}/index", model, store=False) as index,
    ):
        index.add(documents)
        index.commit()
        yield index


class AnsweredQueries(NamedTuple):
    """The texts of queries, and for each the numbers of documents that answer it (positives) and that do not."""

    documents: Sequence[Document]
    queries: Sequence[str]
    positives: TokenCorpus
    negatives: TokenCorpus

    def thinned(self, kept_negatives: int, rng: np.random.Generator) -> AnsweredQueries:
        """The same with `kept_negatives` random negatives per query; 0 keeps all. Unused documents are left out."""
        negatives = self.negatives
        if kept_negatives:
            rows = (np.asarray(negatives[query]) for query in range(len(negatives)))
            kept = (row[np.sort(rng.permutation(len(row))[:kept_negatives])] for row in rows)
            negatives = TokenCorpus.of(kept, negatives.ids.dtype)
        used = np.union1d(self.positives.ids, negatives.ids).astype(np.int64)
        sides = (TokenCorpus(np.searchsorted(used, side.ids), side.offsets) for side in (self.positives, negatives))
        return AnsweredQueries(ChosenDocuments(self.documents, used), self.queries, *sides)

    def packed(self, analyzer: Analyzer) -> MinedPairs:
        """The same as token ids."""
        contents = (field_text(document.content, FIELDS) for document in self.documents)
        queries, documents = (packed_texts(one, analyzer) for one in (self.queries, contents))
        return MinedPairs(queries, documents, self.positives, self.negatives)


class JudgedTexts(NamedTuple):
    """The train queries of a data set, its documents, and both as pairs."""

    documents: CorpusStore
    queries: dict[str, str]
    pairs: MinedPairs

    def own_documents(self) -> np.ndarray:
        """[queries] the number of the document that has the id of a query; -1 for none."""
        return self.documents.numbers(list(self.queries))


def judged_texts(
    datasets: Sequence[BeirDataset],
    analyzer: Analyzer,
    *,
    negatives: str = "",
    negatives_depth: int = NEGATIVES_DEPTH,
    answerless: bool = False,
    fields: Sequence[str] = FIELDS,
    separator: str = LINE_BREAK,
) -> Iterator[JudgedTexts]:
    """The train queries of each data set with their answers and hard negatives; see `positives_and_negatives`.

    `separator`: what is between the fields of a document.
    """
    check_run_has_one_dataset(negatives, datasets)
    for dataset in datasets:
        queries = dataset.queries_of(dataset.qrels("train"))
        documents = CorpusStore.of(dataset.reading(fields).documents())
        numbers = positives_and_negatives(
            documents, queries, dataset, "train", BM25(fields=tuple(fields)), negatives, negatives_depth, answerless
        )
        packed_queries = packed_texts(queries.values(), analyzer)
        packed_documents = packed_texts(read_texts(documents, fields, separator), analyzer)
        yield JudgedTexts(documents, queries, MinedPairs(packed_queries, packed_documents, *numbers))


def check_run_has_one_dataset(first_stage: str, datasets: Sequence[BeirDataset]) -> None:
    """Refuse a TREC run as the first stage of several data sets."""
    runs = [name for name in first_stages(first_stage) if Path(name).is_file()]
    if runs and len(datasets) > 1:
        raise VizslaError(f"{runs[0]}: a run belongs to one data set, not to {len(datasets)}; name a model instead")


def positives_and_negatives(
    documents: CorpusStore,
    queries: Mapping[str, str],
    dataset: BeirDataset,
    split: str,
    bm25: BM25,
    negatives: str = "",
    depth: int = NEGATIVES_DEPTH,
    answerless: bool = False,
) -> tuple[TokenCorpus, TokenCorpus]:
    """For each query the numbers of its positives, and of its hard negatives.

    Positives are judged relevant, or named in the data set's `train_hard_negatives.jsonl`. Hard negatives are named
    there, too; for other queries they are the best documents of BM25 that are not positives. `negatives`: a TREC run
    or a model whose best documents are the hard negatives of all queries instead, or several, separated by semicolons.
    `answerless`: negatives whose text holds an answer of the query are left out.
    """
    qrels, names = dataset.qrels(split), list(queries)
    named = _Named.read(dataset, split, documents, queries, qrels)
    takes_named = [not negatives and query in named.has_negatives for query in names]
    others = {query: queries[query] for query, taken in zip(names, takes_named, strict=True) if not taken}
    relevant = numbers_of(documents, ([d for d, g in qrels.judgements[q].items() if g > 0] for q in names))
    positives: TokenCorpus = TokenCorpus.of(
        (_unique(np.concatenate([named.positives_of(query), relevant[i]])) for i, query in enumerate(names)), NUMBER
    )
    if negatives:
        rankings = _joined([first_stage_rankings(name, documents, others, depth) for name in first_stages(negatives)])
    else:
        rankings = _model_rankings(documents, list(others.values()), bm25, depth)

    def wrong() -> Iterator[np.ndarray]:
        own, ranking = documents.numbers(names), 0
        answers = _answers(dataset, names) if answerless else {}
        for i, query in enumerate(names):
            candidates = named.negatives_of(query) if takes_named[i] else rankings[ranking]
            ranking += not takes_named[i]
            others = candidates[~np.isin(candidates, positives[i]) & (candidates != own[i])]
            yield _without_answers(documents, others, answers[query]) if answers.get(query) else others

    return positives, TokenCorpus.of(wrong(), NUMBER)


def _answers(dataset: BeirDataset, queries: Sequence[str]) -> dict[str, list[str]]:
    """The answers of a data set's questions; an error if none of these queries has some."""
    answers = dataset.answers()
    if not any(answers.get(query) for query in queries):
        raise InputError(
            "data.answerless_negatives needs answers, and no train query has some (metadata.answers in queries.jsonl)",
            file=str(dataset.folder),
        )
    return answers


def _without_answers(documents: CorpusStore, numbers: np.ndarray, answers: Sequence[str]) -> np.ndarray:
    """The documents among these whose text, title not included, holds none of the answers."""
    texts = (field_text(documents[number].content, ("text",)) for number in numbers.tolist())
    kept: np.ndarray = numbers[np.array([not has_answer(text, answers) for text in texts], bool)]
    return kept


class _Named(NamedTuple):
    """The documents that a data set names for training, by number: a row for each query that its file has."""

    rows: dict[str, int]
    has_negatives: set[str]
    positives: TokenCorpus
    negatives: TokenCorpus

    @classmethod
    def read(
        cls, dataset: BeirDataset, split: str, documents: CorpusStore, queries: Mapping[str, str], qrels: Qrels
    ) -> _Named:
        """The lines of those queries that are trained on; an error if the file has none that is judged."""
        rows: dict[str, int] = {}
        has_negatives: set[str] = set()
        sides = _Rows(documents), _Rows(documents)
        known = judged = False
        for query, entry in read_hard_negatives(dataset.folder, split):
            known, judged = True, judged or query in qrels.judgements
            if query in queries:
                rows[query] = len(rows)
                for side, ids in zip(sides, (entry.positives, entry.negatives or ()), strict=True):
                    side.append(ids)
                if entry.negatives is not None:
                    has_negatives.add(query)
        if known and not judged:
            raise InputError(f"none of the queries in {split}_hard_negatives.jsonl is judged", file=str(dataset.folder))
        return cls(rows, has_negatives, *(side.corpus() for side in sides))

    def positives_of(self, query: str) -> np.ndarray:
        """The documents that answer a query, as far as they are named."""
        return self.positives[self.rows[query]] if query in self.rows else np.zeros(0, NUMBER)

    def negatives_of(self, query: str) -> np.ndarray:
        """The hard negatives of a query that is here."""
        return self.negatives[self.rows[query]]


class _Rows:
    """Lists of ids that become lists of numbers, some thousand at a time; ids that no document has are left out."""

    def __init__(self, documents: CorpusStore) -> None:
        self._documents = documents
        self._waiting: list[Sequence[str]] = []
        self._numbers = GrowingCorpus(NUMBER)

    def append(self, ids: Sequence[str]) -> None:
        """Add a list."""
        self._waiting.append(ids)
        if len(self._waiting) == _LISTS:
            self._look_up()

    def _look_up(self) -> None:
        numbers = self._documents.numbers([doc_id for ids in self._waiting for doc_id in ids])
        owners = np.repeat(np.arange(len(self._waiting)), [len(ids) for ids in self._waiting])
        known = numbers >= 0
        self._numbers.append(numbers[known], np.bincount(owners[known], minlength=len(self._waiting)))
        self._waiting = []

    def corpus(self) -> TokenCorpus:
        """The numbers of all lists."""
        self._look_up()
        return self._numbers.corpus()


def numbers_of(documents: CorpusStore, lists: Iterable[Sequence[str]]) -> TokenCorpus:
    """For each list of ids the numbers of the documents that have them; other ids are left out."""
    rows = _Rows(documents)
    for ids in lists:
        rows.append(ids)
    return rows.corpus()


def _unique(numbers: np.ndarray) -> np.ndarray:
    """Each number once, in the order of first sight."""
    return numbers[np.sort(np.unique(numbers, return_index=True)[1])]


def first_stages(names: str) -> list[str]:
    """TREC runs or models by their names, separated by semicolons.

    >>> first_stages("bm25; run.trec"), first_stages("")
    (['bm25', 'run.trec'], [])
    """
    return [name.strip() for name in names.split(";") if name.strip()]


def _joined(rankings: Sequence[TokenCorpus]) -> TokenCorpus:
    """The documents of several rankings of the same queries, each once."""
    if len(rankings) == 1:
        return rankings[0]
    rows = (_unique(np.concatenate([ranking[i] for ranking in rankings])) for i in range(len(rankings[0])))
    return TokenCorpus.of(rows, NUMBER)


def first_stage_rankings(
    first_stage: str, documents: CorpusStore, queries: Mapping[str, str], depth: int
) -> TokenCorpus:
    """The numbers of the best documents for each query, from the file of a TREC run or from a model.

    A query that a run does not have gets no documents.
    """
    if not Path(first_stage).is_file():
        return _model_rankings(documents, list(queries.values()), parse_model(first_stage), depth)
    run = Run.read(first_stage)
    rankings = numbers_of(documents, (run[q].documents[:depth] if q in run else () for q in queries))
    if not len(rankings.ids):
        raise InputError("this run has none of the queries, or none of the documents, it is used for", file=first_stage)
    return rankings


def _model_rankings(documents: CorpusStore, queries: Sequence[str], model: Model, depth: int) -> TokenCorpus:
    if not len(queries):
        return numbers_of(documents, ())
    with temporary_index(documents, model) as index:
        return numbers_of(documents, ranked_ids(index, queries, depth))


def ranked_ids(index: Index, queries: Sequence[str], depth: int) -> Iterator[Sequence[str]]:
    """The ids of the best documents for each query, best first; some thousand queries are searched at once."""
    for first in range(0, len(queries), _SEARCHED):
        block = {str(i): query for i, query in enumerate(queries[first : first + _SEARCHED])}
        run = index.run(block, depth)
        yield from (run[query].documents if query in run else () for query in block)
