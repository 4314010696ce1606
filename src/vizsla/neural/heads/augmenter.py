"""The head that augments queries: one weight a token, and how much of each term is added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from vizsla.neural.chunks import Batch, Chunk
from vizsla.neural.encoder import PackedBert, Padded
from vizsla.neural.heads.base import HEADS, Head, Output
from vizsla.neural.lazy_torch import Module, nn, no_grad, torch
from vizsla.neural.onnx_graph import EncoderGraph
from vizsla.neural.weights import SCALE

if TYPE_CHECKING:
    from torch import Tensor


@HEADS.register("augmenter", help="Weights for the tokens of a query, and terms that are added to it.")
class AugmenterHead(Head):
    """The state of the first token says what is added, that of each token how much it weighs."""

    gives: ClassVar[str] = "augmentations"

    def outputs(self, graph: EncoderGraph, *, special_tokens: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        weights, added = _augmenter(graph)
        return [Output(weights, "weights", "length"), Output(added, "added", len(graph.array("add.out.bias")))]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        down = weights.get("add.down.weight")
        tied = None if "add.out.weight" in weights else encoder.embeddings.word_embeddings
        add = Adder(len(weights["add.out.bias"]), encoder.hidden, 0 if down is None else len(down), tied)
        return Augmenter(encoder, add, "weigh.weight" in weights)


def _augmenter(g: EncoderGraph) -> tuple[str, str]:
    """One weight a token, and how much is added of each term, from the state of the first token."""
    zero = g.constant(0, np.float32)
    if "weigh.weight" in g.weights:
        weights = g("MatMul", g.states, g.transposed(g.vector("weigh.weight")))
        weights = g("Relu", g("Squeeze", g("Add", weights, g.vector("weigh.bias")), g.constant([2])))
        weights = g("Where", g.keep, weights, zero)
    else:
        weights = g("Cast", g.keep, to=1)
    first = g.first_state()
    first = g("Mul", first, g.vector("add.factor"))
    if "add.down.weight" in g.weights:
        first = g("MatMul", first, g.transposed(g.vector("add.down.weight")))
    bias = g.vector("add.out.bias")
    tied = "add.out.weight" not in g.weights
    table = "embeddings.word_embeddings.weight" if tied else g.table("add.out.weight")
    if g.int8:
        parts = g("DynamicQuantizeLinear", first, outputs=3)
        added = g.multiply(parts, table, table + SCALE, bias)
    else:
        added = g("Add", g("MatMul", first, g.transposed(table)), bias)
    return weights, g("Relu", g("Squeeze", added, g.constant([1])))


class Adder(Module):
    """How much of each term is added, computed from one state by a full matrix, a low-rank one or the input embeddings.

    `rank`: the rank of a factorised matrix; 0 for a full one.
    `tied`: the matrix is that of the input embeddings, so the terms are the encoder's word pieces.
    """

    def __init__(self, terms: int, hidden: int, rank: int = 0, tied: nn.Embedding | None = None) -> None:
        super().__init__()
        self.down = nn.Linear(hidden, rank, bias=False) if rank else None
        self.out = nn.Linear(rank or hidden, terms)
        if tied is not None:
            self.out.weight = tied.weight
        nn.init.zeros_(self.out.bias)
        self.factor = nn.Parameter(torch.ones(1))

    @no_grad
    def start_from(self, states: Tensor) -> None:
        """Initialise the layer so that it adds words similar to the text, from [terms, hidden] the state of each word.

        The states are centred and normalised. A low-rank matrix is the best approximation of its rank.
        """
        middle = states.mean(0)
        rows = nn.functional.normalize(states - middle)
        if self.down is None:
            self.out.weight.copy_(rows)
        else:
            _, strength, directions = torch.linalg.svd(rows, full_matrices=False)
            rank = self.down.out_features
            scale = strength[:rank].mean() / len(rows) ** 0.5  # so that both factors have the same magnitude
            self.down.weight.copy_(directions[:rank] * scale)
            self.out.weight.copy_(rows @ directions[:rank].T / scale)
        self.out.bias.zero_().sub_(self._logits(middle))

    @no_grad
    def sparsify(self, states: Tensor, terms: int = 100, highest: float = 0.3) -> None:
        """Set the bias and the scale so that about `terms` terms are added at first, the strongest with `highest`.

        They are few enough not to drown the query, and enough that some are right: a term that is never added gets no
        gradient.
        """
        best = self._logits(states).float().topk(min(terms + 1, self.out.out_features), 1).values
        threshold = best[:, -1].median()
        share = highest / (best[:, 0].median() - threshold).clamp(min=1e-6)
        self.factor.mul_(share)
        self.out.bias.sub_(threshold).mul_(share)

    def forward(self, states: Tensor) -> Tensor:
        """[texts, terms] how much is added, 0 for most."""
        return torch.relu(self._logits(states))

    def _logits(self, states: Tensor) -> Tensor:
        states = self.factor * states
        logits: Tensor = self.out(states if self.down is None else self.down(states))
        return logits


class AugmentedQueries(NamedTuple):
    """The expanded queries that the network returns."""

    added: Tensor
    """[queries, terms] how much of each term is added."""
    weights: Tensor
    """[queries, tokens] the weight of each token, special tokens included; 0 for padding."""


class Augmenter(Module):
    """Reads a query; the state of its first token says what to add, that of each other one how much it weighs.

    `trust`: at inference, a token's weight is interpolated between its initial value 1 (0.0) and the learned value
    (1.0), then cut off at 0.
    """

    kind = "augmenter"

    def __init__(self, encoder: PackedBert | Padded, add: Adder, weighs: bool = True, trust: float = 1.0) -> None:
        super().__init__()
        self.encoder, self.add, self.trust = encoder, add, trust
        self.weigh = nn.Linear(encoder.hidden, 1) if weighs else None
        if self.weigh is not None:  # every word weighs 1 at first: BM25
            nn.init.zeros_(self.weigh.weight)
            nn.init.ones_(self.weigh.bias)
        self.terms: int = add.out.out_features

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts, terms] what is added, then the weights of all tokens, concatenated for gradient caching."""
        states = self.encoder(chunk)
        added = self.add(states[chunk.starts[:-1]])
        return torch.cat([added.flatten(), self._weights(states).to(added.dtype)])

    def _weights(self, states: Tensor) -> Tensor:
        if self.weigh is None:
            return states.new_ones(len(states))
        weights = self.weigh(states).squeeze(-1)
        if not self.training:
            weights = self.trust * weights + (1 - self.trust)
        return torch.relu(weights)

    @no_grad
    def settle(self) -> None:
        """Fold `trust` into the parameters."""
        if self.weigh is not None:
            self.weigh.weight.mul_(self.trust)
            self.weigh.bias.mul_(self.trust).add_(1 - self.trust)
        self.trust = 1.0

    @no_grad
    def first_states(self, batch: Batch) -> Tensor:
        """[texts, hidden] the state of the first token of each text, in the order of the batch."""
        states = [self.encoder(chunk)[chunk.starts[:-1]] for chunk in batch.chunks]
        return torch.cat(states)[torch.argsort(batch.order)]

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> AugmentedQueries:
        """The added terms and the token weights, from the outputs for the chunks, in the order of the batch."""
        back = torch.argsort(batch.order)
        sizes = [chunk.starts.diff() for chunk in batch.chunks]
        cut = [len(size) * self.terms for size in sizes]
        added = torch.cat([m[:c].view(-1, self.terms) for m, c in zip(outputs, cut, strict=True)])[back]
        lengths = torch.cat(sizes)
        mask = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
        rows = added.new_zeros(mask.shape)
        rows[mask] = torch.cat([m[c:] for m, c in zip(outputs, cut, strict=True)])
        return AugmentedQueries(added, rows[back])
