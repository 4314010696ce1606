"""ColBERT: a network learns vectors of tokens, whose best matches add up to a score."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vizsla.errors import InputError
from vizsla.models import ColBERT
from vizsla.neural.checkpoints.colbert import ColbertSettings, write_pylate_settings
from vizsla.neural.checkpoints.writing import save_layout
from vizsla.neural.heads.colbert import Framing, LateInteraction, TokenProjection
from vizsla.training.kind import TRAINED_KINDS, TrainingData
from vizsla.training.loop.objectives import ContrastiveLoss, ContrastiveObjective, Objective
from vizsla.training.networks import DEFAULT_ENCODER, Base, base_encoder, known_model, load_network, write_network
from vizsla.training.settings import TrainingSettings, require_at_least, setting
from vizsla.training.sources.dev_set import DevSet
from vizsla.training.sources.generated import GeneratedSource
from vizsla.training.sources.judged import JudgedSource
from vizsla.training.sources.source import PairKind
from vizsla.training.sources.teacher import check_loss

_USUAL = ColbertSettings()
_SHORTEST = 4  # [CLS], the marker, a token, [SEP]
_QUERY_LENGTH = "tokens of a query, special ones included; shorter ones are padded with [MASK] to this length"
_LENGTH = "tokens of a document that are read, special ones included"


@dataclass(frozen=True)
class ColbertNetwork:
    """The network of a ColBERT, and how it reads texts."""

    base_model: str = setting(DEFAULT_ENCODER, "shipped network, saved model, or transformers encoder (folder or name)")
    dimensions: int = setting(128, "numbers of a token's vector")
    expand_queries: bool = setting(True, "pad queries with [MASK], whose vectors count as those of words do")
    attend_to_mask: bool = setting(False, "other tokens of a query attend to this padding")
    skip_punctuation: bool = setting(True, "punctuation of documents has no vector")

    def __post_init__(self) -> None:
        require_at_least(self, "network", 1, "dimensions")


@dataclass(frozen=True)
class ColbertJudgedSource(JudgedSource):
    """Judged queries of data sets, with the lengths that ColBERT reads."""

    max_query_length: int = setting(_USUAL.query_length, _QUERY_LENGTH)
    max_document_length: int = setting(256, _LENGTH)


@dataclass(frozen=True)
class ColbertGeneratedSource(GeneratedSource):
    """Generated queries, with the lengths that ColBERT reads."""

    max_query_length: int = setting(_USUAL.query_length, _QUERY_LENGTH)
    max_document_length: int = setting(256, _LENGTH)


@dataclass(frozen=True)
class ColbertTraining:
    """The settings of a ColBERT."""

    network: ColbertNetwork = field(default_factory=ColbertNetwork)
    data: ColbertJudgedSource | ColbertGeneratedSource = field(default_factory=ColbertJudgedSource)
    loss: ContrastiveLoss = field(default_factory=ContrastiveLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        require_at_least(self.data, "data", _SHORTEST, "max_query_length", "max_document_length")
        check_loss(self.data, self.loss.name)


@TRAINED_KINDS.register("colbert", help="ColBERT: a vector for each token.", needs=("torch", "transformers", "onnx"))
class ColbertKind(PairKind[ColbertTraining]):
    """Trains a ColBERT on judged or generated queries, perhaps with a teacher."""

    settings_class = ColbertTraining

    def load_base(self) -> Base:
        """The base model with a projection of its tokens; if it is a ColBERT, with its own."""
        network, name = self.settings.network, self.settings.network.base_model
        model = known_model(name)
        encoder, analyzer, *_ = base_encoder(name, self.settings.training.seed)
        if isinstance(model, ColBERT):
            projection = load_network(model.network)
            if model.dimensions != network.dimensions:
                raise InputError(
                    f"vectors of this ColBERT have {model.dimensions} numbers, so set "
                    f"network.dimensions={model.dimensions}",
                    file=name,
                )
        else:
            projection = TokenProjection(encoder, network.dimensions)
        positions = projection.encoder.config.max_position_embeddings
        framing = _framing(self._reading(positions), analyzer.tokenizer.numbers, name)
        return Base(LateInteraction(projection, framing), analyzer, new_head=not isinstance(model, ColBERT))

    def _reading(self, positions: int) -> ColbertSettings:
        """How an encoder with this many positions reads texts."""
        network, data = self.settings.network, self.settings.data
        return ColbertSettings(
            query_length=min(data.max_query_length, positions),
            length=min(data.max_document_length, positions),
            expand_queries=network.expand_queries,
            attend_to_mask=network.attend_to_mask,
            skipped=_USUAL.skipped if network.skip_punctuation else (),
        )

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs, the dev sets with the same lengths, and the refresh that mines new negatives."""
        data = self.settings.data
        refresh = data.open_refresh(folder) if isinstance(data, JudgedSource) else None
        longest = max(data.max_query_length, data.max_document_length)
        return TrainingData(data.open_pairs(folder), DevSet.open_all(folder, max_length=longest), refresh)

    def objective(self) -> Objective:
        """A contrastive or margin loss, or one that learns the scores of a teacher."""
        return ContrastiveObjective(self.settings.loss)

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:  # noqa: ARG002
        """Write the model in 32-bit floats, and also in PyLate's layout, which `colbert(checkpoint=DIR)` reads."""
        projection = network.cpu().eval().projection
        positions = projection.encoder.config.max_position_embeddings
        written = write_network(projection, output, max_weight=1.0, length=positions, sample=(), precision="float32")
        reading = self._reading(positions)
        ColBERT(
            network=written,
            analyzer=base.analyzer,
            **vars(reading),
            fields=self.settings.data.document_fields,
            namespace=self.name,
            name=self.name,
        ).save(output)
        save_layout(projection, base.analyzer.tokenizer.content, output)
        write_pylate_settings(reading, output)

    def usage(self, output: Path) -> str:
        """A command that indexes with the model."""
        return f'vizsla index SOURCE -o DIR --model {output}, or "colbert(checkpoint={output})"'


def _framing(reading: ColbertSettings, numbers: dict[str, int], base_model: str) -> Framing:
    """How texts are read, with tokens given as ids of a vocabulary."""
    for token in (reading.query_marker, reading.document_marker):
        if token not in numbers:
            raise InputError(f"ColBERT marks texts with {token}, and these word pieces lack it", file=base_model)
    return Framing(
        query_marker=numbers[reading.query_marker],
        document_marker=numbers[reading.document_marker],
        query_length=reading.query_length,
        length=reading.length,
        mask=numbers["[MASK]"] if reading.expand_queries else None,
        attend_to_mask=reading.attend_to_mask,
        skipped=tuple(numbers[token] for token in reading.skipped if token in numbers),
    )
