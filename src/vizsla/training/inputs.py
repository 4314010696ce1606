"""What a training run is given: documents, and data sets with judged queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from vizsla.datasets import BeirDataset, Document

if TYPE_CHECKING:
    from vizsla.training.arrays.batch import BatchSource
    from vizsla.training.arrays.dev_set import Dev
    from vizsla.training.loop.refresh import NegativesRefresh


@dataclass(frozen=True)
class TrainingInputs:
    """Documents, data sets whose train queries are learnt from, and data sets whose dev queries are evaluated on."""

    corpus: Iterable[Document] | None = None
    datasets: Sequence[BeirDataset] = ()
    dev: Sequence[BeirDataset] = ()

    def documents(self) -> Iterable[Document]:
        """The corpus; without one, the documents of the data sets."""
        return chain.from_iterable(d.documents() for d in self.datasets) if self.corpus is None else self.corpus


@dataclass(frozen=True)
class TrainingData:
    """What a trainer reads: batches and dev sets, from the arrays of a run, and perhaps new negatives now and then."""

    pairs: BatchSource
    dev: Sequence[Dev]
    refresh: NegativesRefresh | None = None
