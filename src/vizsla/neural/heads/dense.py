"""The head of dense models: one vector a text, pooled from the states of its tokens; two towers; a frozen companion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.errors import UnknownNameError
from vizsla.neural.chunks import Batch, Chunk
from vizsla.neural.encoder import PackedBert, Padded
from vizsla.neural.heads.base import HEADS, Head, Output
from vizsla.neural.lazy_torch import Module, nn, torch
from vizsla.neural.onnx_graph import EncoderGraph

if TYPE_CHECKING:
    from torch import Tensor


@HEADS.register("dense", help="One vector for the text, pooled from the states of its tokens.")
class DenseHead(Head):
    """Pools states by `cls`, `mean`, or both concatenated: `cls+mean`."""

    gives: ClassVar[str] = "embeddings"

    def outputs(self, graph: EncoderGraph, *, special_tokens: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        return [Output(pooled(graph, pooling), "vectors", graph.hidden * len(pooling.split("+")))]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        return Pooled(encoder, pooling)


def pooled(g: EncoderGraph, pooling: str) -> str:
    """[batch, width] one vector a text."""
    if "+" in pooling:
        return str(g("Concat", *(pooled(g, part) for part in pooling.split("+")), axis=1))
    if pooling == "cls":
        return str(g("Squeeze", g.first_state(), g.constant([1])))
    kept = g("Where", g("Unsqueeze", g.keep, g.constant([2])), g.states, g.constant(0, np.float32))
    sizes = g("Unsqueeze", g("Cast", "lengths", to=1), g.constant([1]))
    return str(g("Div", g("ReduceSum", kept, g.constant([1]), keepdims=0), sizes))


POOLINGS = ("mean", "cls", "cls+mean")


class Pooled(Module):
    """Texts as dense vectors, of length 1 with `normalize`. The mean is over all tokens, special ones too.

    Both concatenated are twice as wide, which makes it easier to tell words apart.
    """

    kind = "dense"

    def __init__(self, encoder: PackedBert | Padded, pooling: str = "mean", normalize: bool = False) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise UnknownNameError("pooling", pooling, POOLINGS)
        self.encoder, self.pooling, self.normalize = encoder, pooling, normalize

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return self.encoder.hidden * len(self.pooling.split("+"))

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts, width]"""
        states = self.encoder(chunk)
        first: Tensor = states[chunk.starts[:-1]]
        if self.pooling == "cls":
            return first
        sizes = chunk.starts.diff()
        texts = torch.repeat_interleave(torch.arange(len(sizes), device=states.device), sizes)
        sums = states.new_zeros(len(sizes), states.shape[1], dtype=torch.float32).index_add(0, texts, states.float())
        mean: Tensor = (sums / sizes[:, None]).to(states.dtype)
        return mean if self.pooling == "mean" else torch.cat([first, mean], 1)

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, width] from the outputs for the chunks, in the order of the batch."""
        rows = torch.cat(list(outputs))[torch.argsort(batch.order)]
        return nn.functional.normalize(rows, dim=1) if self.normalize else rows


class Towers(Module):
    """Dense vectors of queries by one network, of documents by another."""

    kind = "dense"

    def __init__(self, queries: Pooled, documents: Pooled) -> None:
        super().__init__()
        self.queries, self.documents = queries, documents

    @property
    def encoder(self) -> PackedBert | Padded:
        """The documents'; the queries' is of the same shape."""
        return self.documents.encoder

    @property
    def width(self) -> int:
        return self.documents.width

    def tower(self, side: int) -> Pooled:
        return self.documents if side else self.queries

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts, width]"""
        made: Tensor = self.tower(chunk.side)(chunk)
        return made

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, width] from the outputs for the chunks, in the order of the batch."""
        return self.tower(batch.chunks[0].side).vectors(outputs, batch)


class WithFrozenCompanion(Module):
    """A dense network in training whose vectors are concatenated with those of a frozen companion.

    The companion's vectors are multiplied by `weight` on the query side. The weight is trained, too: this is the joint
    training of SPAR.
    """

    kind = "dense"

    def __init__(self, trained: Pooled | Towers, frozen: Pooled | Towers, weight: float = 1.0) -> None:
        super().__init__()
        self.trained, self.frozen = trained, frozen.requires_grad_(requires_grad=False)
        self.weight = nn.Parameter(torch.tensor(float(weight)))

    @property
    def encoder(self) -> PackedBert | Padded:
        """The encoder in training."""
        return self.trained.encoder

    def train(self, mode: bool = True) -> WithFrozenCompanion:
        """Switch training on or off; the companion never has dropout."""
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts, both widths]"""
        return torch.cat([self.trained(chunk), self.frozen(chunk).detach()], 1)

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, both widths] from the outputs for the chunks, in the order of the batch."""
        width = self.trained.width
        trained = self.trained.vectors([part[:, :width] for part in outputs], batch)
        frozen = self.frozen.vectors([part[:, width:] for part in outputs], batch)
        return torch.cat([trained, frozen if batch.chunks[0].side else frozen * self.weight], 1)
