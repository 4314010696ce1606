"""Data sets in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/<split>.tsv; and their statistics."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from vizsla.datasets.files import COMPRESSIONS, find_file, read_json_lines
from vizsla.datasets.irds import beir_folder
from vizsla.datasets.questions import Questions, read_answers, read_queries, read_questions
from vizsla.errors import InputError
from vizsla.runs import Qrels
from vizsla.runs.documents import Document, Origin, document_id


def is_beir(folder: Path) -> bool:
    """Whether a folder has a corpus in BEIR's layout."""
    return any((folder / ("corpus.jsonl" + ending)).is_file() for ending in ("", *COMPRESSIONS))


class TrainingDocuments(NamedTuple):
    """The training documents of a query: positives answer it, hard negatives only look relevant.

    `negatives` is None if the data set does not name them.
    """

    positives: tuple[str, ...]
    negatives: tuple[str, ...] | None


EXPANDED = "expanded.jsonl"
"""The file beside a corpus with generated queries of its documents, as `vizsla queries generate` writes it."""


@dataclass(frozen=True)
class BeirDataset:
    """A data set in a folder of BEIR's layout: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp(), "pets")
    >>> folder.mkdir()
    >>> _ = (folder / "corpus.jsonl").write_text('{"_id": "1", "title": "Dogs", "text": "Dogs bark."}\\n')
    >>> _ = (folder / "queries.jsonl").write_text('{"_id": "q", "text": "dog"}\\n')
    >>> dataset = BeirDataset.open(folder)
    >>> dataset.name, dataset.queries(), [document.id for document in dataset.documents()]
    ('pets', {'q': 'dog'}, ['1'])
    """

    folder: Path
    with_queries: bool = False
    """Whether its documents have the queries of `expanded.jsonl` as a field."""

    @classmethod
    def open(cls, folder: str | Path) -> BeirDataset:
        """The data set in a folder, or of the package ir_datasets, as in `irds:beir/scifact/test`."""
        path = beir_folder(folder)
        if not path.is_dir():
            raise InputError("this folder does not exist; expected a data set in BEIR's layout", file=str(path))
        find_file(path, "queries.jsonl")
        return cls(path)

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def document_files(self) -> list[Path]:
        """The files that its documents are read from."""
        return [find_file(self.folder, name) for name in ("corpus.jsonl", *([EXPANDED] if self.with_queries else []))]

    def documents(self) -> Iterator[Document]:
        corpus, *queries = self.document_files
        documents = (
            Document.from_record(record, Origin(str(corpus), line)) for line, record in read_json_lines(corpus)
        )
        return _with_queries(documents, queries[0]) if queries else documents

    def reading(self, fields: Collection[str]) -> BeirDataset:
        """The data set for a model that reads these fields: with the queries of `expanded.jsonl` if it reads `queries`.

        That file has the documents in the order of `corpus.jsonl`; only their ids and queries are read. Without it
        documents are as they are.
        """
        if "queries" not in fields:
            return self
        has_file = any((self.folder / f"{EXPANDED}{ending}").is_file() for ending in ("", *COMPRESSIONS))
        return replace(self, with_queries=True) if has_file else self

    def queries(self) -> dict[str, str]:
        """All queries by id."""
        return read_queries(find_file(self.folder, "queries.jsonl"))

    def queries_of(self, qrels: Qrels) -> dict[str, str]:
        """The texts of the judged queries by id, in the order of the judgements."""
        if not qrels.judgements:
            raise InputError("this split has no judgements", file=str(self.folder))
        texts = self.queries()
        missing = [q for q in qrels.judgements if q not in texts]
        if len(missing) == len(qrels.judgements):
            raise InputError("none of the judged queries is in queries.jsonl", file=str(self.folder))
        return {q: texts[q] for q in qrels.judgements if q in texts}

    @property
    def splits(self) -> list[str]:
        return sorted(p.stem for p in (self.folder / "qrels").glob("*.tsv"))

    def answers(self) -> dict[str, list[str]]:
        """The answers (`metadata.answers`) by query id, for the questions that have answers."""
        return read_answers(find_file(self.folder, "queries.jsonl"))

    def questions(self, split: str) -> Questions:
        """The questions with answers of a split: those it judges, or without judgements those that name the split."""
        path = find_file(self.folder, "queries.jsonl")
        if split not in self.splits:
            return read_questions(path, split)
        judged = self.qrels(split).judgements
        texts, answers, relations = read_questions(path)
        return Questions({q: text for q, text in texts.items() if q in judged}, answers, relations)

    def hard_negatives(self, split: str = "train") -> dict[str, TrainingDocuments]:
        """The positives and hard negatives of a split by query id, from `train_hard_negatives.jsonl` for `train`.

        A line is `{"query-id": ..., "pos": [document ids], "neg": [document ids]}`; `neg` may be left out. Without
        the file the result is empty.
        """
        return dict(read_hard_negatives(self.folder, split))

    @property
    def has_corpus(self) -> bool:
        return is_beir(self.folder)

    def document_ids(self) -> Iterator[str]:
        """The ids of all documents."""
        corpus = find_file(self.folder, "corpus.jsonl")
        for line, record in read_json_lines(corpus):
            yield Document.from_record(record, Origin(str(corpus), line)).id

    def qrels(self, split: str = "test") -> Qrels:
        """The judgements of a split."""
        path = self.folder / "qrels" / f"{split}.tsv"
        if not path.is_file():
            hint = f"known: {', '.join(self.splits)}" if self.splits else "the data set has no judgements"
            raise InputError(f"unknown split {split!r}; {hint}", file=str(self.folder))
        return Qrels.read(path)


def _with_queries(documents: Iterator[Document], file: Path) -> Iterator[Document]:
    """Documents with the queries of a file that has the same documents in the same order."""
    lines = read_json_lines(file)
    advice = "'vizsla queries generate' with the same options continues the file"
    for number, document in enumerate(documents):
        line, record = next(lines, (0, None))
        if record is None:
            message = f"this file ends after {number:,} documents, before {document.id!r} of the corpus; {advice}"
            raise InputError(message, file=str(file))
        beside = Document.from_record(record, Origin(str(file), line))
        queries = beside.get("queries")
        if beside.id != document.id:
            message = (
                f"expected the document {document.id!r}, as in the corpus, not {beside.id!r}; write the file again"
            )
            raise InputError(message, file=str(file), line=line)
        if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
            raise InputError("expected a list of texts 'queries'", file=str(file), line=line)
        yield replace(document, content={**document.content, "queries": queries})
    if (rest := next(lines, None)) is not None:
        raise InputError("this document is not in the corpus; write the file again", file=str(file), line=rest[0])


def read_hard_negatives(folder: Path, split: str = "train") -> Iterator[tuple[str, TrainingDocuments]]:
    """The queries of a split with their documents, line by line; see `BeirDataset.hard_negatives`."""
    try:
        path = find_file(folder, f"{split}_hard_negatives.jsonl")
    except InputError:
        return
    met: set[str] = set()
    for line, record in read_json_lines(path):
        entry = record if isinstance(record, dict) else {}
        query, positives, negatives = (entry.get(name) for name in ("query-id", "pos", "neg"))
        if query is None or not isinstance(positives, list) or not isinstance(negatives, list | None):
            raise InputError("expected a query-id, a list 'pos' and a list 'neg'", file=str(path), line=line)
        origin = Origin(str(path), line)
        query_id = document_id(query, origin)
        if query_id in met:
            raise InputError(f"the query id {query_id!r} appears a second time", file=str(path), line=line)
        met.add(query_id)
        negative_ids = None if negatives is None else tuple(document_id(d, origin) for d in negatives)
        yield query_id, TrainingDocuments(tuple(document_id(d, origin) for d in positives), negative_ids)


@dataclass(frozen=True)
class DatasetStatistics:
    """The columns of table 1 of the BEIR paper, counted from a data set."""

    name: str
    documents: int
    with_titles: float
    """The share of documents with a title."""
    document_words: float
    """The average number of words in text and title, separated by white space."""
    query_words: float
    splits: dict[str, int] = field(default_factory=dict)
    """The number of judged queries of each split."""
    pairs: dict[str, int] = field(default_factory=dict)
    """The number of judgements above 0 of each split."""
    per_query: dict[str, float] = field(default_factory=dict)
    grades: dict[str, list[int]] = field(default_factory=dict)

    @property
    def relevance(self) -> str:
        """`binary`, or the number of levels: the highest grade plus one for "not relevant"."""
        highest = max((max(g, default=0) for g in self.grades.values()), default=0)
        return "binary" if highest <= 1 else f"{highest + 1}-level"


def count_dataset(dataset: BeirDataset) -> DatasetStatistics:
    """Count the statistics of a data set. On SciFact and NFCorpus the averages are within 1% of the paper's."""
    documents = titled = words = 0
    for document in dataset.documents():
        title, text = str(document.get("title") or ""), str(document.get("text") or "")
        documents += 1
        titled += bool(title)
        words += len(title.split()) + len(text.split())
    queries = [len(text.split()) for text in dataset.queries().values()]
    splits, pairs, per_query, grades = {}, {}, {}, {}
    for name in dataset.splits:
        judged = dataset.qrels(name).judgements
        positive = sum(grade > 0 for judgements in judged.values() for grade in judgements.values())
        splits[name], pairs[name] = len(judged), positive
        per_query[name] = positive / max(len(judged), 1)
        grades[name] = sorted({grade for judgements in judged.values() for grade in judgements.values()})
    return DatasetStatistics(
        dataset.name, documents, titled / max(documents, 1), words / max(documents, 1),
        sum(queries) / max(len(queries), 1), splits, pairs, per_query, grades,
    )  # fmt: skip
