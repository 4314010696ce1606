"""uniCOIL's head, and with it BM26's: one weight a token, the maximum over its repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.chunks import SPECIAL_TOKENS, Batch, Chunk
from vizsla.neural.encoder import PackedBert, Padded
from vizsla.neural.heads.base import HEADS, Head, Output
from vizsla.neural.lazy_torch import Module, nn, torch
from vizsla.neural.onnx_graph import EncoderGraph

if TYPE_CHECKING:
    from torch import Tensor


@HEADS.register("unicoil", help="One weight for each token of the text.")
class UniCoilHead(Head):
    """A linear layer and ReLU over each state."""

    gives: ClassVar[str] = "weights"

    def outputs(self, graph: EncoderGraph, *, special_tokens: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        return [Output(_unicoil(graph, special_tokens), "weights", "length")]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        return UniCoil(encoder)


def _unicoil(g: EncoderGraph, special_tokens: Sequence[int]) -> str:
    """One weight a token."""
    weights = g("MatMul", g.states, g.transposed(g.vector("weigh.weight")))
    weights = g("Squeeze", g("Add", weights, g.vector("weigh.bias")), g.constant([2]))
    same = g("Equal", g("Unsqueeze", "ids", g.constant([2])), g.constant(special_tokens))
    quiet = g("Cast", g("ReduceSum", g("Cast", same, to=1), g.constant([2]), keepdims=0), to=9)
    has_weight = g("And", g.keep, g("Not", quiet))
    return str(g("Where", has_weight, g("Relu", weights), g.constant(0, np.float32)))


ALIVE = 0.5  # the initial bias of the head, so that few weights are cut off at 0 before anything is learned


class UniCoil(Module):
    """Weighs the tokens of texts; a vector has at most as many terms as its text has tokens."""

    kind = "unicoil"

    def __init__(self, encoder: PackedBert | Padded, special_tokens: Sequence[int] = SPECIAL_TOKENS) -> None:
        super().__init__()
        self.encoder = encoder
        self.weigh = nn.Linear(encoder.hidden, 1)
        nn.init.constant_(self.weigh.bias, ALIVE)
        self.vocabulary = encoder.vocabulary
        self.width = encoder.width
        has_weight = torch.ones(self.vocabulary).index_fill_(0, torch.tensor(list(special_tokens)), 0.0)
        self.register_buffer("has_weight", has_weight, persistent=False)

    def forward(self, chunk: Chunk) -> Tensor:
        """[tokens] the weight of each token, 0 for special tokens."""
        weights = torch.relu(self.weigh(self.encoder(chunk)).squeeze(-1))
        has_weight: Tensor = self.has_weight  # type: ignore[assignment]
        return weights * has_weight.to(weights.dtype)[chunk.ids]

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, width] from the weights of the chunks: never [texts, length, vocabulary].

        The maximum over the repeats of a token is taken among the tokens of the text; only then are the weights
        scattered into the vocabulary.
        """
        weights = torch.cat(list(outputs))
        places, repeats = torch.unique(batch.texts * self.width + batch.ids, return_inverse=True)
        highest = weights.new_zeros(len(places)).scatter_reduce(0, repeats, weights, "amax")
        spread = weights.new_zeros(len(batch.order) * self.width)
        return spread.index_copy(0, places, highest).view(len(batch.order), self.width)
