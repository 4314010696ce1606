"""COIL's head: a vector for each token, and perhaps one for the whole text from the state of [CLS]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from vizsla.neural.chunks import SPECIAL_TOKENS, Batch, Chunk
from vizsla.neural.encoder import PackedBert, Padded
from vizsla.neural.heads.base import HEADS, Head, Output
from vizsla.neural.lazy_torch import Module, nn, torch
from vizsla.neural.onnx_graph import EncoderGraph

if TYPE_CHECKING:
    from torch import Tensor


TOKENS, CLS = "tok_proj", "cls_proj"
"""The layers over the states of tokens and of [CLS]; the second is missing in COIL-tok."""


@HEADS.register("coil", help="A vector for each token of the text, and perhaps one for the whole text: COIL.")
class CoilHead(Head):
    """Linear layers with bias over the states of tokens, and over that of [CLS] where there is one."""

    gives: ClassVar[str] = "coil_vectors"

    def outputs(self, graph: EncoderGraph, *, special_tokens: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        tokens = _linear(graph, TOKENS, graph.states)
        outputs = [Output(tokens, "token_vectors", len(graph.array(f"{TOKENS}.bias")), per_token=True)]
        if f"{CLS}.weight" in graph.weights:
            first = graph("Squeeze", graph.first_state(), graph.constant([1]))
            outputs.append(Output(_linear(graph, CLS, first), "cls_vectors", len(graph.array(f"{CLS}.bias"))))
        return outputs

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        return Coil(encoder, len(weights[f"{TOKENS}.bias"]), len(weights.get(f"{CLS}.bias", ())))


def _linear(graph: EncoderGraph, name: str, states: str) -> str:
    product = graph("MatMul", states, graph.transposed(graph.vector(f"{name}.weight")))
    return str(graph("Add", product, graph.vector(f"{name}.bias")))


UNKNOWN = 100
"""[UNK] of BERT's uncased vocabulary: two unknown words are not the same word."""


class CoilVectors(NamedTuple):
    """The vectors of some texts; tokens that match nothing, such as special tokens, are left out."""

    tokens: Tensor
    """[tokens, width]"""
    ids: Tensor
    """[tokens] the id of each."""
    texts: Tensor
    """[tokens] the text that each token belongs to."""
    cls: Tensor
    """[texts, width of a text's vector]; 0 wide where a text has none."""


class Coil(Module):
    """Linear layers with bias over the states of tokens and over that of [CLS]; `cls_width` 0 leaves the second out."""

    kind = "coil"

    def __init__(
        self,
        encoder: PackedBert | Padded,
        width: int = 32,
        cls_width: int = 768,
        unmatched: Sequence[int] = (*SPECIAL_TOKENS, UNKNOWN),
    ) -> None:
        super().__init__()
        self.encoder, self.width, self.cls_width = encoder, width, cls_width
        self.tok_proj = nn.Linear(encoder.hidden, width)
        self.cls_proj = nn.Linear(encoder.hidden, cls_width) if cls_width else None
        matched = torch.ones(encoder.vocabulary, dtype=torch.bool).index_fill_(0, torch.tensor(list(unmatched)), False)
        self.register_buffer("matched", matched, persistent=False)

    def forward(self, chunk: Chunk) -> Tensor:
        """The vectors of all tokens of a chunk, then those of its texts, concatenated; `split` separates them."""
        states = self.encoder(chunk)
        tokens: Tensor = self.tok_proj(states).flatten()
        if self.cls_proj is None:
            return tokens
        return torch.cat([tokens, self.cls_proj(states[chunk.starts[:-1]]).flatten()])

    def split(self, output: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
        """[tokens, width] and [texts, cls_width] of what `forward` gives for a chunk."""
        end = len(chunk.ids) * self.width
        return output[:end].view(-1, self.width), output[end:].view(len(chunk.starts) - 1, self.cls_width)

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> CoilVectors:
        """The vectors of a batch, its texts numbered as in the batch."""
        parts = [self.split(output, chunk) for output, chunk in zip(outputs, batch.chunks, strict=True)]
        matched: Tensor = self.matched  # type: ignore[assignment]
        ids = batch.ids
        kept = matched[ids]
        tokens, cls = torch.cat([tokens for tokens, _ in parts]), torch.cat([cls for _, cls in parts])
        return CoilVectors(tokens[kept], ids[kept], batch.texts[kept], cls[torch.argsort(batch.order)])
