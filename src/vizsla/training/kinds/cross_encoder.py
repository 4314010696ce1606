"""Cross-encoders: rerankers that read a query and a document together."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vizsla.encoders.checkpoint import find_checkpoint
from vizsla.encoders.network import ABOUT, Network
from vizsla.errors import VizslaError
from vizsla.models import Reranker
from vizsla.models.reranker import reranker_folder
from vizsla.text import Analyzer
from vizsla.training.inputs import TrainingData, TrainingInputs
from vizsla.training.kind import TRAINED_KINDS, TrainedKind
from vizsla.training.prepare.base_model import DEFAULT_ENCODER, Base, base_encoder, known_model, load_network
from vizsla.training.prepare.cross_encoder import CrossEncoderDataSettings, cross_encoder_data
from vizsla.training.prepare.teacher import check_loss
from vizsla.training.schema import setting
from vizsla.training.settings import GROUP_TAUGHT, GroupLoss, TrainingSettings, require_at_least

if TYPE_CHECKING:
    from vizsla.training.loop.objectives import Objective


@dataclass(frozen=True)
class CrossEncoderNetwork:
    """The network of a cross-encoder."""

    base_model: str = setting(DEFAULT_ENCODER, "saved model, or transformers encoder or cross-encoder (folder or name)")
    layers: int = setting(0, "layers of the base model that are kept, evenly spaced, the last included; 0 for all")

    def __post_init__(self) -> None:
        require_at_least(self, "network", 0, "layers")


@dataclass(frozen=True)
class CrossEncoderSettings:
    """The settings of a cross-encoder."""

    network: CrossEncoderNetwork = field(default_factory=CrossEncoderNetwork)
    data: CrossEncoderDataSettings = field(default_factory=CrossEncoderDataSettings)
    loss: GroupLoss = field(default_factory=GroupLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        check_loss(self.data, self.loss.name, GROUP_TAUGHT)


@TRAINED_KINDS.register(
    "cross-encoder", help="A reranker that reads query and document together.", needs=("torch", "transformers")
)
class CrossEncoderKind(TrainedKind[CrossEncoderSettings]):
    """Trains a cross-encoder on judged and generated queries with hard negatives of a first stage."""

    settings_class = CrossEncoderSettings

    @property
    def reads_datasets(self) -> bool:
        """It learns from judged queries."""
        return True

    @property
    def reads_corpus(self) -> bool:
        """It also learns from documents with a field of generated queries."""
        return True

    def check_inputs(self, inputs: TrainingInputs) -> None:
        """Refuse inputs without judged and without generated queries."""
        if not inputs.datasets and inputs.corpus is None:
            raise VizslaError(
                f"{self.name} learns from judged or generated queries; name a data set with --dataset, or documents "
                "with a field queries with --corpus"
            )

    def load_base(self) -> Base:
        """A cross-encoder; the head is the base model's if it has one."""
        chosen = self.settings.network
        base = cross_encoder_network(chosen.base_model, self.settings.training.seed, chosen.layers)
        data, positions = self.settings.data, base.network.encoder.config.max_position_embeddings
        if not data.max_query_length + 2 <= data.max_length <= positions or data.max_query_length < 3:
            raise VizslaError(
                f"data.max_query_length {data.max_query_length} and data.max_length {data.max_length} do not fit: this "
                f"encoder reads {positions} tokens at most, a query needs 3 or more, and a document 2 more than the "
                "query"
            )
        return base

    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:
        """Pack queries with hard negatives and a teacher's scores, and dev queries with candidates."""
        cross_encoder_data(self.settings.data, base.analyzer, inputs, folder).save(folder)

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs and the dev sets."""
        from vizsla.training.arrays.cross_encoder import CrossEncoderData, CrossEncoderPairs

        settings = self.settings.data
        data = CrossEncoderData.open(folder, settings.negatives_per_query)
        return TrainingData(CrossEncoderPairs(data.pairs, settings.max_query_length, settings.max_length), data.dev)

    def objective(self) -> Objective:
        """A loss over the documents of each query, or one that learns a teacher's scores."""
        from vizsla.training.loop.objectives import GroupObjective

        return GroupObjective(self.settings.loss)

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:  # noqa: ARG002
        """Write the reranker as transformers opens it."""
        from vizsla.networks.layout import save_reranker
        from vizsla.training.arrays.cross_encoder import CrossEncoderData

        data = self.settings.data
        save_reranker(
            network.cpu().eval(),
            CrossEncoderData.open(folder).tokenizer,
            output,
            name=self.name,
            query_length=data.max_query_length,
            length=data.max_length,
        )

    def open_model(self, output: Path) -> Reranker:
        """The written reranker."""
        return Reranker.open(output)

    def usage(self, output: Path) -> str:
        """A command that reranks with the model."""
        return f"vizsla run rerank DIR --run RUN --queries QUERIES --reranker {output} -o OUT"


def cross_encoder_network(base_model: str, seed: int = 0, layers: int = 0) -> Base:
    """A cross-encoder to train and the analyzer that makes its word pieces.

    `layers`: how many of the encoder's layers are kept; 0 for all.
    """
    import torch

    from vizsla.networks import Cross
    from vizsla.networks.cross import head_arrays, keep_layers

    exported = Path(reranker_folder(base_model))
    if (exported / ABOUT).is_file() and Network.open(exported).kind == "cross":
        torch.manual_seed(seed)
        network = load_network(Network.open(exported))
        return Base(keep_layers(network, layers), Analyzer.parse(f"wordpiece:{exported}"), new_head=False)
    if known_model(base_model) is not None:
        encoder, analyzer, *_ = base_encoder(base_model, seed)
        return Base(keep_layers(Cross(encoder), layers), analyzer)
    folder = find_checkpoint(base_model)
    encoder, analyzer, *_ = base_encoder(str(folder), seed)
    network = keep_layers(Cross(encoder), layers)
    head = head_arrays(folder)
    if "pre_classifier.weight" not in head:  # DistilBERT's head is of another shape
        network.take_head(head)
    return Base(network, analyzer)
