"""The data that cells of a paper's table are measured on: documents, and queries with judgements or answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vizsla.datasets import (
    BeirDataset,
    DatasetEntry,
    DatasetGroup,
    DatasetStatistics,
    Document,
    count_dataset,
    known_datasets,
    open_datasets,
    preparation_of,
)
from vizsla.datasets.beir import EXPANDED
from vizsla.datasets.files import find_file
from vizsla.errors import InputError, VizslaError
from vizsla.evaluation import QuestionSet
from vizsla.recipes.paper_tables import Column, TrainedPart
from vizsla.runs import Qrels

if TYPE_CHECKING:
    from vizsla.training import TrainingInputs

_BYTES_A_WORD = 6.2  # of English text, for estimates of what is not here


class NotHereError(VizslaError):
    """Data that a cell needs is not on this machine; the message names it and how to get it."""


@dataclass(frozen=True)
class Searched:
    """Documents and the queries that are searched in them."""

    corpus: BeirDataset
    queries: Mapping[str, str]
    qrels: Qrels | None = None
    answers: Mapping[str, Sequence[str]] | None = None
    regex: bool = False
    relations: Mapping[str, str] = field(default_factory=dict)
    """What each question asks for, where its file says so, as EntityQuestions does."""
    stamp: tuple[Any, ...] = ()
    """Changes when the files of the queries change."""

    @property
    def corpus_stamp(self) -> tuple[Any, ...]:
        """Changes when the documents change."""
        return stamp_of(self.corpus.document_files)

    def with_field(self, name: str) -> Searched:
        """The same with the generated queries of its documents, if a system reads the field `name`."""
        return replace(self, corpus=self.corpus.reading((name,)))


def stamp_of(files: Sequence[Path]) -> tuple[Any, ...]:
    """The names, sizes and modification times of files."""
    return tuple((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files)


def is_here(name: str, data: Path) -> bool:
    """Whether a data set lies in the folder of data sets."""
    return (data / name).is_dir()


def how_to_get(name: str, data: Path) -> str:
    """The command that fetches or prepares a data set, or what its owner asks for."""
    entry = known_datasets().get(name)
    if entry is not None and can_be_fetched(name):
        return f"vizsla datasets fetch {name} --data {data}"
    prepare = f"vizsla datasets prepare {name} FILE... --data {data}"
    if entry is not None and entry.how:
        return f"{entry.how} Then: {prepare}" if preparation_of(name) is not None else entry.how
    return prepare


def missing_field(name: str, data: Path, field: str) -> str:
    """What to do where documents lack the generated queries that a model reads; empty where they have them."""
    try:
        for member in open_datasets(data / name).members:
            first = next(iter(member.reading((field,)).documents()), None)
            if first is not None and first.get(field) is None:
                return (
                    f"its documents have no generated queries: vizsla queries generate {member.document_files[0]} "
                    f"-o {member.folder}/{EXPANDED} --model castorini/doc2query-t5-base-msmarco"
                )
    except VizslaError as e:  # a folder of that name that is no data set
        return str(e)
    return ""


def can_be_fetched(name: str) -> bool:
    """Whether a data set, or the files that it is prepared from, can be downloaded freely."""
    entry, preparation = known_datasets().get(name), preparation_of(name)
    return bool(entry and entry.downloads) or bool(preparation and preparation.downloads)


def estimated_bytes(entry: DatasetEntry | None) -> int:
    """About how much a data set takes on disk; 0 if that is not known."""
    if entry is None or not entry.documents:
        return 0
    return int(entry.documents * ((entry.document_words or 100) * _BYTES_A_WORD + 60))


def searched_of(column: Column, data: Path) -> list[Searched]:
    """What a column is measured on; several if a data set has parts whose mean is published."""
    if column.questions:
        return [_questions(column, data)]
    group = open_datasets(_folder(column.dataset, data))
    split = group.split(column.split or None)
    found = []
    for member in group.members:
        if not member.has_corpus:
            raise NotHereError(f"{member.folder} has no documents; {how_to_get(column.dataset, data)}")
        qrels = member.qrels(split)
        files = [find_file(member.folder, "queries.jsonl"), member.folder / "qrels" / f"{split}.tsv"]
        found.append(Searched(member, member.queries_of(qrels), qrels, stamp=stamp_of(files)))
    return found


def _folder(name: str, data: Path) -> Path:
    if not is_here(name, data):
        raise NotHereError(f"the data set {name} is not here: {how_to_get(name, data)}")
    return data / name


def training_inputs(part: TrainedPart, data: Path) -> TrainingInputs:
    """The documents and the data sets that a part is trained on; an error if some are not here."""
    from vizsla.training import TrainingInputs

    for name in (*part.corpus, *part.datasets):
        if not is_here(name, data):
            raise NotHereError(f"its training data {name} is not here: {how_to_get(name, data)}")
    groups = [open_datasets(data / name) for name in part.corpus]
    documents = (document for group in groups for document in _documents(group)) if groups else None
    return TrainingInputs(documents, [BeirDataset.open(data / name) for name in part.datasets], [])


def _documents(group: DatasetGroup) -> Iterator[Document]:
    """All documents of a data set; parts of one, such as the forums of CQADupStack, number theirs each for itself."""
    for member in group.members:
        for document in member.documents():
            yield document if len(group.members) == 1 else replace(document, id=f"{member.name}/{document.id}")


def _questions(column: Column, data: Path) -> Searched:
    corpus, folder = BeirDataset.open(_folder(column.corpus, data)), _folder(column.questions, data)
    split = column.split or "test"
    asked = QuestionSet.with_answers(str(folder), split=split)
    stamp = (split, *stamp_of([find_file(folder, "queries.jsonl")]))
    return Searched(corpus, asked.texts, None, asked.answers, asked.regex, asked.relations, stamp)


def statistic_stamp(name: str, data: Path) -> tuple[Any, ...]:
    """Changes when the files that statistics are counted from change."""
    folder = _folder(name, data)
    files = [f for pattern in ("corpus.jsonl*", "queries.jsonl*", "qrels/*.tsv") for f in folder.rglob(pattern)]
    return stamp_of(sorted(files))


def count_group(name: str, data: Path) -> tuple[list[DatasetStatistics], str]:
    """The statistics of all parts of a data set, and the split that published figures are measured on."""
    group = open_datasets(_folder(name, data))
    return [count_dataset(member) for member in group.members], group.split(None)


def statistic(counted: Sequence[DatasetStatistics], evaluated: str, column: Column) -> float | str:
    """A statistic as BEIR's table 1 has it, over all parts of a data set."""
    split = evaluated if column.split == "evaluated" else column.split
    if column.statistic in ("queries", "pairs", "per_query") and not any(split in c.splits for c in counted):
        raise NotHereError(f"{counted[0].name} has no split {split} here")
    queries = sum(c.splits.get(split, 0) for c in counted)
    documents = sum(c.documents for c in counted)
    values: dict[str, Any] = {
        "documents": lambda: documents,
        "queries": lambda: queries,
        "pairs": lambda: sum(c.pairs.get(split, 0) for c in counted),
        "per_query": lambda: sum(c.pairs.get(split, 0) for c in counted) / max(queries, 1),
        "query_words": lambda: sum(c.query_words for c in counted) / len(counted),
        "document_words": lambda: sum(c.document_words * c.documents for c in counted) / max(documents, 1),
        "titles": lambda: "yes" if all(c.with_titles > 0.5 for c in counted) else "no",
        "relevance": lambda: max((c.relevance for c in counted), key=lambda r: (r != "binary", r)),
    }
    if column.statistic not in values:
        raise InputError(f"{column.statistic} is not a statistic of a data set", file=column.name)
    return values[column.statistic]()  # type: ignore[no-any-return]
