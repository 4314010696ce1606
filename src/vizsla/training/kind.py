"""What can be trained: one class per kind of model, with its settings and what it is trained on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from vizsla.datasets import BeirDataset, Document
from vizsla.errors import VizslaError
from vizsla.models import Augmenter, Model, Reranker
from vizsla.models.generator import TextGenerator
from vizsla.spec import Registry
from vizsla.training.loop.distributed import Distributed
from vizsla.training.loop.objectives import Objective
from vizsla.training.loop.trainer import Report
from vizsla.training.networks import Base
from vizsla.training.settings import TrainingSettings
from vizsla.training.sources.dev_set import Dev
from vizsla.training.sources.pairs import BatchSource
from vizsla.training.sources.refresh import NegativesRefresh


@dataclass(frozen=True)
class TrainingInputs:
    """Documents, data sets whose train queries are used for training, and data sets whose dev queries are evaluated."""

    corpus: Iterable[Document] | None = None
    datasets: Sequence[BeirDataset] = ()
    dev: Sequence[BeirDataset] = ()

    def documents(self) -> Iterable[Document]:
        """The corpus; without one, the documents of the data sets."""
        return chain.from_iterable(d.documents() for d in self.datasets) if self.corpus is None else self.corpus


@dataclass(frozen=True)
class TrainingData:
    """The input of a trainer: batches and dev sets from the arrays of a run, and optionally a refresh of negatives."""

    pairs: BatchSource
    dev: Sequence[Dev]
    refresh: NegativesRefresh | None = None


TrainedModel = Model | Augmenter | Reranker | TextGenerator


class KindSettings(Protocol):
    """The settings of a kind: a frozen dataclass whose fields are sections; one of them is `training`."""

    @property
    def training(self) -> TrainingSettings:
        """The training loop and its optimizer."""


S = TypeVar("S", bound=KindSettings)


class TrainedKind(ABC, Generic[S]):
    """A kind of model that can be trained.

    A run goes through these methods in order: `load_base`, `prepare` (not when it resumes), `open_data`,
    `build_network`, `pretrain` (not when it resumes), the training loop with `objective`, and `write`. A new kind is a
    subclass in a file of its own that is registered in `TRAINED_KINDS`. Importing it must not import torch; see
    `vizsla.neural.lazy_torch`.
    """

    settings_class: ClassVar[type]
    wants_gpu: ClassVar[bool] = True

    def __init__(self, name: str, settings: S) -> None:
        self.name, self.settings = name, settings
        """The name of the trained model, and the settings of the run."""

    @property
    def reads_datasets(self) -> bool:
        """Whether it learns from judged queries of data sets; by default it does."""
        return True

    @property
    def reads_corpus(self) -> bool:
        """Whether it learns from documents without judged queries; by default it does not."""
        return False

    def check_inputs(self, inputs: TrainingInputs) -> None:
        """Refuse inputs that lack what it learns from, before anything is read."""
        if self.reads_datasets and not inputs.datasets:
            raise VizslaError(f"{self.name} learns from judged queries; name a data set with --dataset")
        if inputs.corpus is None and not inputs.datasets:
            raise VizslaError(f"{self.name} learns from documents; name the documents to train on with --corpus FILE")

    def check_queries(self, inputs: TrainingInputs) -> None:
        """Refuse inputs without judged and without generated queries, for kinds that learn from either."""
        if not inputs.datasets and inputs.corpus is None:
            raise VizslaError(
                f"{self.name} learns from judged or generated queries; name a data set with --dataset, or documents "
                "with a field queries with --corpus"
            )

    @abstractmethod
    def load_base(self) -> Base:
        """The network or the encoder that training starts from."""

    @abstractmethod
    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:
        """Turn inputs into arrays in the folder of the run; only the main process does it."""

    @abstractmethod
    def open_data(self, folder: Path) -> TrainingData:
        """The arrays in the folder of the run, as batches and dev sets."""

    def build_network(self, base: Base, folder: Path) -> Any:  # noqa: ARG002
        """The network to train."""
        return base.network

    def pretrain(self, network: Any, base: Base, folder: Path, distributed: Distributed, report: Report | None) -> None:
        """A stage before the training loop; nothing for most kinds."""

    @abstractmethod
    def objective(self) -> Objective:
        """The loss to minimize."""

    @abstractmethod
    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:
        """Write the trained network as a model; `folder` is that of the run, `output` that of the model."""

    def open_model(self, output: Path) -> TrainedModel:
        """The written model; by default one that searches."""
        return Model.load(output)

    def usage(self, output: Path) -> str:
        """A command that uses the model; by default one that indexes with it."""
        return f"vizsla index SOURCE -o DIR --model {output}"


TRAINED_KINDS: Registry[TrainedKind[Any]] = Registry("trained kind", package="vizsla.training.kinds")


def kind_class(name: str) -> type[TrainedKind[Any]]:
    """The class of a kind by its name."""
    return cast(type[TrainedKind[Any]], TRAINED_KINDS[name].make)
