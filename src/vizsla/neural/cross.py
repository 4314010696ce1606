"""Cross-encoders: query and document read as one text, and one score for the pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vizsla.errors import InputError, VizslaError
from vizsla.neural.chunks import Batch, Chunk
from vizsla.neural.encoder import PackedBert, Padded, encoder_of
from vizsla.neural.joint import END, HEAD, one_label
from vizsla.neural.weights import read_tensors


class Cross(nn.Module):
    """The score of a pair, from the state of its first token: a layer with tanh, as BERT has one, and a linear one.

    A text is "[CLS] query [SEP] document [SEP]", see `joint_ids`; what stands behind the first [SEP] has the second
    token type. A new head starts as the identity.
    """

    kind = "cross"

    def __init__(self, encoder: PackedBert | Padded) -> None:
        super().__init__()
        if not isinstance(encoder, PackedBert) or encoder.config.type_vocab_size < 2:
            raise VizslaError("a cross-encoder needs token types for query and document; start from a BERT with two")
        self.encoder = encoder
        dense = nn.Linear(encoder.hidden, encoder.hidden)
        self.pooler = nn.ModuleDict({"dense": dense})
        self.classifier = nn.Linear(encoder.hidden, 1)
        nn.init.eye_(dense.weight)
        nn.init.normal_(self.classifier.weight, std=0.02)
        for layer in (dense, self.classifier):
            nn.init.zeros_(layer.bias)

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts, 1] the scores, in 32 bits also where the encoder runs in 16."""
        states = self.encoder(chunk, token_types_of(chunk))
        with torch.autocast(states.device.type, enabled=False):
            first = states[chunk.starts[:-1]].to(self.classifier.weight.dtype)
            scores: Tensor = self.classifier(torch.tanh(self.pooler["dense"](first)))
        return scores

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, 1] from the outputs for the chunks, in the order of the batch."""
        return torch.cat(list(outputs))[torch.argsort(batch.order)]

    @torch.no_grad()
    def take_head(self, arrays: Mapping[str, Any]) -> None:
        """Begin with the head of a checkpoint, as far as it has one."""
        head = one_label({name.removeprefix("bert."): array for name, array in arrays.items()})
        own = dict(self.named_parameters())
        for name in HEAD:
            if name in head and head[name].shape == tuple(own[name].shape):
                own[name].copy_(torch.tensor(head[name]))


def token_types_of(chunk: Chunk, end: int = END) -> Tensor:
    """[tokens] 0 up to the first [SEP] of each text, 1 behind it."""
    ends = (chunk.ids == end).long()
    before = ends.cumsum(0) - ends
    texts = (chunk.positions == 0).cumsum(0) - 1
    return (before - before[chunk.starts[:-1].long()][texts]).clamp(max=1)


def cross_encoder(folder: str | Path, dropout: float = 0.0) -> Cross:
    """A cross-encoder to train, from a folder of transformers': a BERT, or a cross-encoder, whose head is taken."""
    from vizsla.neural.inference import transformers

    path = Path(folder)
    if not (path / "config.json").is_file():
        raise InputError("there is no encoder to start from here (no config.json)", file=str(folder))
    options = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": 0.0}
    network = Cross(encoder_of(transformers().AutoModel.from_pretrained(path, **options)))
    network.take_head(head_arrays(path))
    return network


def keep_layers(network: Cross, count: int) -> Cross:
    """The network with so many of its encoder's layers, evenly spaced and with the last among them; 0 keeps all.

    Half of twelve layers are the second, the fourth and so on. The head still stands on the layer it was trained on.
    """
    bert: Any = network.encoder
    layers = bert.encoder.layer
    if count > len(layers):
        raise VizslaError(f"network.layers is {count}, and the base model has {len(layers)} layers")
    if count:
        bert.encoder.layer = nn.ModuleList(layers[-(-(i + 1) * len(layers) // count) - 1] for i in range(count))
        bert.config.num_hidden_layers = count
    return network


def head_arrays(folder: Path) -> dict[str, Any]:
    """The arrays of a folder of transformers', where they lie in files of safetensors."""
    return {
        name: array for file in sorted(folder.glob("model*.safetensors")) for name, array in read_tensors(file).items()
    }
