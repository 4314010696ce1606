"""Where the pairs of a query and a document come from: crops, judged or generated queries, or a teacher's rankings.

A source is a section of a recipe, and knows how to turn the inputs of a run into arrays and how to read them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from vizsla.errors import VizslaError
from vizsla.models import parse_model
from vizsla.text import Analyzer
from vizsla.training.kind import TrainingInputs
from vizsla.training.prepare.distillation import DistillationSettings, distillation_data
from vizsla.training.settings import CropSettings, require_at_least, setting
from vizsla.training.sources.dev_set import DevSet, ImitationDev, numbered_folders
from vizsla.training.sources.generated import GeneratedQueries, generated_pairs
from vizsla.training.sources.judged import (
    ANSWERLESS_HELP,
    NEGATIVES_DEPTH,
    NEGATIVES_HELP,
    JudgedTexts,
    dev_set,
    judged_texts,
)
from vizsla.training.sources.pairs import BatchSource, CroppedPairs, Crops, MinedPairs, ScoredPairs
from vizsla.training.sources.refresh import Collections, NegativesRefresh
from vizsla.training.sources.teacher import SumTeacherSettings, open_teachers, scaled, taught_pairs
from vizsla.training.sources.texts import FIELDS, FIELDS_SETTING, LINE_BREAK, fields_of, packed_documents
from vizsla.training.sources.token_corpus import TokenCorpus

_CORPUS, _PAIRS, _IMITATION, _COLLECTIONS = "corpus", "pairs", "imitation", "collections.npz"
SOURCE_HELP = "where pairs come from: crops of documents, judged queries, the same by topics, or generated queries"


class PairSource(Protocol):
    """Makes pairs of queries and documents from the inputs of a run."""

    reads_datasets: ClassVar[bool]

    @property
    def separator(self) -> str:
        """What is between the fields of a document."""

    @property
    def document_fields(self) -> tuple[str, ...]:
        """The fields of documents that are read."""

    def prepare(self, inputs: TrainingInputs, analyzer: Analyzer, folder: Path) -> None:
        """Tokenize what is learnt from, once, into a folder."""

    def open_pairs(self, folder: Path) -> BatchSource:
        """The pairs in a folder."""

    def open_documents(self, folder: Path) -> TokenCorpus:
        """The documents in a folder."""


@dataclass(frozen=True)
class CropSource(CropSettings):
    """Two random crops of a document are a pair; no judgements are needed."""

    reads_datasets: ClassVar[bool] = False
    document_fields: ClassVar[tuple[str, ...]] = FIELDS
    separator: ClassVar[str] = LINE_BREAK
    source: str = setting("crops", SOURCE_HELP)
    passages_per_document: int = setting(1, "neighbouring passages with the same title that are read as one document")

    def prepare(self, inputs: TrainingInputs, analyzer: Analyzer, folder: Path) -> None:
        """Pack the documents."""
        packed_documents(inputs.documents(), analyzer, self.passages_per_document).save(folder / _CORPUS)

    def open_pairs(self, folder: Path) -> BatchSource:
        """Random crops of the packed documents."""
        return CroppedPairs(self.open_documents(folder), Crops.of(self))

    def open_documents(self, folder: Path) -> TokenCorpus:
        """The packed documents."""
        return TokenCorpus.open(folder / _CORPUS)


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
            MinedPairs.concatenate([pairs for pairs, _ in several]).save(folder / _PAIRS)
            if self.refresh_steps:
                collections_of(several).save(folder / _COLLECTIONS)
            return
        teachers, beside = open_teachers(self.teacher), self.open_beside()
        taught = []
        for number, (documents, queries, pairs) in enumerate(collections):
            file = folder / f"teacher-{number}.scores"
            taught.append(taught_pairs(pairs, documents, list(queries.values()), teachers, file, beside))
        scaled(ScoredPairs.concatenate(taught), self).save(folder / _PAIRS)

    def open_refresh(self, folder: Path, *, sparse: bool = False) -> NegativesRefresh | None:
        """The refresh that mines new negatives during training; `sparse`: a query finds only scores above 0."""
        if not self.refresh_steps:
            return None
        collections = Collections.open(folder / _COLLECTIONS)
        return NegativesRefresh(
            self.open_mined(folder), collections, self.refresh_steps, self.negatives_depth, folder, sparse
        )

    def open_mined(self, folder: Path) -> MinedPairs:
        """The pairs without a teacher's scores."""
        return MinedPairs.open(folder / _PAIRS, **_options(self))

    def open_pairs(self, folder: Path) -> BatchSource:
        """The queries with their positives and negatives, perhaps with a teacher's scores."""
        return _open_pairs(self, folder)

    def open_documents(self, folder: Path) -> TokenCorpus:
        """The documents of the data sets."""
        return TokenCorpus.open(folder / _PAIRS / "documents")


@dataclass(frozen=True)
class GeneratedSource(GeneratedQueries):
    """Generated queries, each paired with the document it was written for; no judgements are needed."""

    reads_datasets: ClassVar[bool] = False
    document_fields: ClassVar[tuple[str, ...]] = FIELDS
    separator: ClassVar[str] = LINE_BREAK
    source: str = setting("generated", SOURCE_HELP)

    def prepare(self, inputs: TrainingInputs, analyzer: Analyzer, folder: Path) -> None:
        """Read or generate queries, find negatives and a teacher's scores, and pack all texts."""
        generated_pairs(inputs.documents(), analyzer, self, folder).save(folder / _PAIRS)

    def open_pairs(self, folder: Path) -> BatchSource:
        """The queries with their documents, perhaps with negatives and a teacher's scores."""
        return _open_pairs(self, folder)

    def open_documents(self, folder: Path) -> TokenCorpus:
        """The packed documents."""
        return TokenCorpus.open(folder / _PAIRS / "documents")


def collections_of(several: Sequence[tuple[MinedPairs, np.ndarray]]) -> Collections:
    """The ranges of each data set's queries and documents, given its pairs and the documents with a query's id."""
    queries, documents = (
        np.cumsum([0, *(len(getattr(pairs, name)) for pairs, _ in several)]) for name in ("queries", "documents")
    )
    own = [np.where(named >= 0, named + first, -1) for (_, named), first in zip(several, documents[:-1], strict=True)]
    return Collections(queries, documents, np.concatenate(own))


def _open_pairs(source: JudgedSource | GeneratedSource, folder: Path) -> MinedPairs | ScoredPairs:
    """The pairs that a source has prepared."""
    if not source.teacher:
        return MinedPairs.open(folder / _PAIRS, **_options(source))
    return ScoredPairs.open(folder / _PAIRS, beside=bool(source.beside), **_options(source))


def _options(source: JudgedSource | GeneratedSource) -> dict[str, int]:
    """How pairs are drawn and read."""
    return {
        "negatives_per_query": source.negatives_per_query,
        "max_query_length": source.max_query_length,
        "max_document_length": source.max_document_length,
    }


@dataclass(frozen=True)
class TeacherSource(DistillationSettings):
    """Sentences of documents with the ranking of a teacher to imitate."""

    reads_datasets: ClassVar[bool] = False
    document_fields: ClassVar[tuple[str, ...]] = FIELDS

    @property
    def separator(self) -> str:
        """What is between the fields of a document."""
        return LINE_BREAK

    def prepare(self, inputs: TrainingInputs, analyzer: Analyzer, folder: Path) -> None:
        """Draw queries, rank the documents with the teacher, and pack all texts."""
        data = distillation_data(inputs.documents(), parse_model(self.teacher), analyzer, self, self.separator)
        data.pairs.save(folder / _PAIRS)
        for number, dev in enumerate(data.dev):
            dev.save(folder / f"{_IMITATION}-{number}")

    def open_pairs(self, folder: Path) -> BatchSource:
        """The queries with their positives and negatives."""
        return MinedPairs.open(
            folder / _PAIRS,
            negatives_per_query=self.negatives_per_query,
            max_query_length=self.max_query_length,
            max_document_length=self.max_document_length,
            positive_decay=self.positive_decay or None,
        )

    def open_documents(self, folder: Path) -> TokenCorpus:
        """The packed documents."""
        return TokenCorpus.open(folder / _PAIRS / "documents")

    def open_imitation(self, folder: Path) -> list[ImitationDev]:
        """The dev questions with the teacher's documents."""
        lengths = {"max_query_length": self.max_query_length, "max_document_length": self.max_document_length}
        return [ImitationDev.open(place, **lengths) for place in numbered_folders(folder, _IMITATION)]


def prepare_dev(
    inputs: TrainingInputs,
    analyzer: Analyzer,
    folder: Path,
    fields: Sequence[str] = FIELDS,
    separator: str = LINE_BREAK,
) -> None:
    """Write the dev queries of data sets into a folder; `fields`: those of documents that are read."""
    for number, dataset in enumerate(inputs.dev):
        dev_set(dataset, analyzer, fields=fields, separator=separator).save(folder / f"dev-{number}")


def open_dev(folder: Path, *, max_length: int = 512, document_terms: int = 0, sparse: bool = False) -> list[DevSet]:
    """The dev sets in a folder, with the options of `DevSet`."""
    return [
        DevSet.open(place, max_length=max_length, document_terms=document_terms, sparse=sparse)
        for place in numbered_folders(folder, "dev")
    ]
