"""COIL: vectors of tokens that are compared where the tokens are equal, with or without a vector for the whole text."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from vizsla.errors import VizslaError
from vizsla.models import Coil, Model
from vizsla.neural.heads.coil import Coil as Network
from vizsla.neural.layouts import save_layout
from vizsla.neural.lazy_torch import torch
from vizsla.neural.onnx_graph import Precision
from vizsla.training.kind import TRAINED_KINDS, TrainingData
from vizsla.training.kinds.dense import DenseCropSource
from vizsla.training.kinds.pairs import PairKind
from vizsla.training.loop.coil import CoilDevSet, CoilObjective
from vizsla.training.loop.objectives import Objective
from vizsla.training.networks import DEFAULT_ENCODER, Base, base_encoder, load_network
from vizsla.training.prepare.writing import SAMPLE, write_network
from vizsla.training.settings import (
    ContrastiveLoss,
    TrainingSettings,
    require_at_least,
    require_one_of,
    setting,
)
from vizsla.training.sources.dev_set import numbered_folders
from vizsla.training.sources.source import GeneratedSource, JudgedSource
from vizsla.training.sources.teacher import check_loss
from vizsla.training.sources.token_corpus import sample_of


@dataclass(frozen=True)
class CoilNetwork:
    """The network of COIL."""

    base_model: str = setting(DEFAULT_ENCODER, "shipped network, saved model, or transformers encoder (folder or name)")
    token_dimensions: int = setting(32, "numbers of a token's vector")
    cls_dimensions: int = setting(768, "numbers of a text's vector, from the state of [CLS]; 0 for COIL-tok")
    precision: str = setting("float32", f"of the weights that are written: {', '.join(get_args(Precision))}")

    def __post_init__(self) -> None:
        require_at_least(self, "network", 1, "token_dimensions")
        require_at_least(self, "network", 0, "cls_dimensions")
        require_one_of("precision", self.precision, get_args(Precision))


@dataclass(frozen=True)
class CoilSettings:
    """The settings of COIL."""

    network: CoilNetwork = field(default_factory=CoilNetwork)
    data: JudgedSource | DenseCropSource | GeneratedSource = field(default_factory=JudgedSource)
    loss: ContrastiveLoss = field(default_factory=ContrastiveLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        check_loss(self.data, self.loss.name)
        if isinstance(self.data, JudgedSource) and self.data.refresh_steps:
            raise VizslaError("data.refresh_steps is for models with one vector a text, and COIL has one a token")


@TRAINED_KINDS.register(
    "coil", help="COIL-full or COIL-tok from judged queries.", needs=("torch", "transformers", "onnx")
)
class CoilKind(PairKind[CoilSettings]):
    """Trains COIL on judged or generated queries, or on crops of documents."""

    settings_class = CoilSettings

    def load_base(self) -> Base:
        """The encoder of the base model with COIL's head; the base model's own head if it has these widths."""
        settings, seed = self.settings.network, self.settings.training.seed
        widths = settings.token_dimensions, settings.cls_dimensions
        saved = _saved_coil(settings.base_model)
        if saved is None:
            encoder, analyzer, *_ = base_encoder(settings.base_model, seed)
            return Base(Network(encoder, *widths), analyzer)
        network = load_network(saved.network)
        if (network.width, network.cls_width) == widths:
            return Base(network, saved.analyzer, new_head=False)
        torch.manual_seed(seed)
        return Base(Network(network.encoder, *widths), saved.analyzer)

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs and the dev sets."""
        data = self.settings.data
        places = numbered_folders(folder, "dev")
        dev = [CoilDevSet.open(place, max_length=data.max_document_length) for place in places]
        return TrainingData(data.open_pairs(folder), dev)

    def objective(self) -> Objective:
        """A contrastive or margin loss over COIL's scores, or a distillation loss."""
        return CoilObjective(self.settings.loss)

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:
        """Write the model to search with, and its encoder in floats as other libraries open it."""
        data = self.settings.data
        network = network.cpu().eval()
        positions = network.encoder.config.max_position_embeddings
        sample = sample_of(data.open_documents(folder), SAMPLE, data.max_document_length)
        precision: Any = self.settings.network.precision
        written = write_network(network, output, max_weight=1.0, length=positions, sample=sample, precision=precision)
        Coil(
            written,
            base.analyzer,
            length=min(data.max_document_length, positions),
            query_length=min(data.max_query_length, positions),
            fields=data.document_fields,
            namespace=self.name,
            name=self.name,
        ).save(output)
        save_layout(network, base.analyzer.tokenizer.content, output)

    def open_model(self, output: Path) -> Model:
        """The written model."""
        return Model.load(output)

    def usage(self, output: Path) -> str:
        """A command that indexes with the model."""
        return f"vizsla index SOURCE -o DIR --model {output}"


def _saved_coil(base_model: str) -> Coil | None:
    """The COIL that was saved to a folder; None if the folder has another kind of model."""
    model = Model.load(base_model) if (Path(base_model) / "model.json").is_file() else None
    return model if isinstance(model, Coil) else None
