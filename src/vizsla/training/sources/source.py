"""Where pairs of a query and a document come from, and the kinds that learn from pairs.

A source is a section of a recipe, and knows how to turn the inputs of a run into arrays and how to read them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from vizsla.text import Analyzer
from vizsla.training.kind import KindSettings, TrainedKind, TrainingInputs
from vizsla.training.networks import Base
from vizsla.training.sources.dev_set import dev_set
from vizsla.training.sources.pairs import BatchSource
from vizsla.training.sources.token_corpus import TokenCorpus

PAIRS = "pairs"
"""The folder of the pairs, in that of a run."""
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


def drawing_options(source: object) -> dict[str, int]:
    """How the pairs of a source are drawn and read, as options of `MinedPairs`."""
    return {name: getattr(source, name) for name in ("negatives_per_query", "max_query_length", "max_document_length")}


class PairSettings(KindSettings, Protocol):
    """Settings with a section `data`, which says where pairs come from."""

    @property
    def data(self) -> PairSource:
        """Where pairs come from."""


P = TypeVar("P", bound=PairSettings)


class PairKind(TrainedKind[P]):
    """A kind that learns from judged queries, from generated ones, or from crops of documents."""

    @property
    def reads_datasets(self) -> bool:
        """Whether it learns from judged queries of data sets."""
        return self.settings.data.reads_datasets

    @property
    def reads_corpus(self) -> bool:
        """Whether it learns from documents without judged queries."""
        return not self.reads_datasets

    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:
        """Pack pairs and dev sets."""
        data = self.settings.data
        data.prepare(inputs, base.analyzer, folder)
        for number, dataset in enumerate(inputs.dev):
            dev = dev_set(dataset, base.analyzer, fields=data.document_fields, separator=data.separator)
            dev.save(folder / f"dev-{number}")
