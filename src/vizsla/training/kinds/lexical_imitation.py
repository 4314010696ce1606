"""Lambda of SPAR: a dense model that imitates the ranking of a lexical teacher."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from vizsla.errors import VizslaError
from vizsla.models import Dense, Spar
from vizsla.training.inputs import TrainingData
from vizsla.training.kind import TRAINED_KINDS
from vizsla.training.kinds.dense import DenseKindBase, DenseNetwork
from vizsla.training.prepare.sources import TeacherSource
from vizsla.training.settings import TAUGHT, ContrastiveLoss, TrainingSettings


@dataclass(frozen=True)
class LambdaSettings:
    """The settings of a dense model that imitates a teacher."""

    network: DenseNetwork = field(default_factory=DenseNetwork)
    data: TeacherSource = field(default_factory=TeacherSource)
    loss: ContrastiveLoss = field(default_factory=ContrastiveLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        if self.loss.name in TAUGHT:
            raise VizslaError(f"loss.name={self.loss.name} learns a teacher's scores, and a lambda its ranking")


@TRAINED_KINDS.register(
    "lambda", help="A dense model that imitates a lexical one (SPAR).", needs=("torch", "transformers", "onnx")
)
class LambdaKind(DenseKindBase[LambdaSettings]):
    """Trains a dense model on sentences of documents with a teacher's ranking."""

    settings_class = LambdaSettings

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs, the dev sets, and the dev questions on which the model is compared with its teacher."""
        data = super().open_data(folder)
        return TrainingData(data.pairs, [*data.dev, *self.settings.data.open_imitation(folder)])

    def with_companion(self, model: Dense, weight: float) -> Spar:
        """The frozen companion and the model as one; the companion is the first part and weighs 1."""
        return Spar(self.companion(weight), model, 1 / weight, namespace=self.name, name=self.name)

    def usage(self, output: Path) -> str:
        """A command that indexes with the model."""
        alone = super().usage(output)
        return alone if self.settings.network.companion else f'{alone}, or "spar(dense=minilm, lexical={output})"'
