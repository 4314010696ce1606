"""The common base of kinds that learn from pairs of a query and a document."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from vizsla.training.kind import KindSettings, TrainedKind, TrainingInputs
from vizsla.training.networks import Base
from vizsla.training.sources.source import PairSource, prepare_dev


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
        prepare_dev(inputs, base.analyzer, folder, data.document_fields, data.separator)
