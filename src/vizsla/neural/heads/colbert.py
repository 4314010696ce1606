"""ColBERT's head: one vector a token, projected from its state; and ColBERT as it is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.chunks import Batch, Chunk
from vizsla.neural.encoder import PackedBert
from vizsla.neural.heads.base import HEADS, Head, Output
from vizsla.neural.lazy_torch import F, Module, nn, torch
from vizsla.neural.onnx_graph import EncoderGraph

if TYPE_CHECKING:
    from torch import Tensor


@HEADS.register("colbert", help="One vector for each token of the text, projected from its state: ColBERT.")
class ColbertHead(Head):
    """A linear layer without bias over each state, padding included: the vectors have any length."""

    gives: ClassVar[str] = "token_vectors"

    def outputs(self, graph: EncoderGraph, *, special_tokens: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        vectors = graph("MatMul", graph.states, graph.transposed(graph.vector("linear.weight")))
        return [Output(vectors, "token_vectors", len(graph.array("linear.weight")), per_token=True)]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        return TokenProjection(encoder, len(weights["linear.weight"]))


class TokenProjection(Module):
    """A linear layer without bias over each state."""

    kind = "colbert"

    def __init__(self, encoder: PackedBert, width: int = 128) -> None:
        super().__init__()
        self.encoder = encoder
        self.linear = nn.Linear(encoder.hidden, width, bias=False)

    def forward(self, chunk: Chunk, visible: Tensor | None = None) -> Tensor:
        """[tokens, width] the vector of each token. `visible`: [tokens] which are attended to; by default all."""
        vectors: Tensor = self.linear(self.encoder(chunk, visible=visible))
        return vectors


_EMPTY = 3  # [CLS], the marker and [SEP]: a text without a token of its own


@dataclass(frozen=True)
class Framing:
    """How ColBERT reads texts that stand between [CLS] and [SEP]. All tokens are given by their ids.

    The marker of queries or of documents is inserted after [CLS], and the text is cut to the length of its side,
    special tokens included. `mask`: the token that queries are padded with; None leaves them short.
    `attend_to_mask`: other tokens attend to this padding. `skipped`: tokens of documents that are not compared.
    """

    query_marker: int
    document_marker: int
    query_length: int = 32
    length: int = 256
    mask: int | None = 103
    attend_to_mask: bool = False
    skipped: tuple[int, ...] = ()

    def of(self, chunk: Chunk) -> tuple[Chunk, Tensor]:
        """The chunk with markers and padding, and [tokens] which of its tokens are not padding."""
        is_query = chunk.side == 0
        marker, limit = (self.query_marker, self.query_length) if is_query else (self.document_marker, self.length)
        ids, _ = chunk.padded()
        ends = chunk.starts[1:].long()
        sizes = (chunk.starts.diff().long() + 1).clamp(max=limit)
        ids = torch.cat([ids[:, :1], torch.full_like(ids[:, :1], marker), ids[:, 1:]], 1)[:, :limit]
        ids = ids.scatter(1, sizes[:, None] - 1, chunk.ids[ends - 1][:, None])  # [SEP] of a text that was cut
        if is_query and self.mask is not None:
            ids = F.pad(ids, (0, limit - ids.shape[1]))
        places = torch.arange(ids.shape[1], device=ids.device)
        kept = written = places < sizes[:, None]
        if is_query and self.mask is not None:
            ids, sizes, kept = ids.where(written, self.mask), torch.full_like(sizes, limit), torch.ones_like(written)
        starts = F.pad(torch.cumsum(sizes, 0), (1, 0)).int()
        longest = 1 << (ids.shape[1] - 1).bit_length()
        framed = Chunk(ids[kept], places.expand_as(ids)[kept], starts, longest, chunk.side)
        return framed, written[kept]


@dataclass(frozen=True, eq=False)
class TokenTexts:
    """Texts as vectors of their tokens, padded to the longest text."""

    vectors: Tensor
    """[texts, length, width]"""
    compared: Tensor
    """[texts, length] which of them are compared; the others are padding or are skipped."""

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def device(self) -> torch.device:
        """Where the vectors lie."""
        return self.vectors.device

    def float(self) -> TokenTexts:
        """The same in 32 bits."""
        return TokenTexts(self.vectors.float(), self.compared)

    def padded(self, length: int) -> TokenTexts:
        """The same texts, padded to a length."""
        missing = length - self.vectors.shape[1]
        return TokenTexts(F.pad(self.vectors, (0, 0, 0, missing)), F.pad(self.compared, (0, missing)))

    @classmethod
    def concatenate(cls, several: Sequence[TokenTexts]) -> TokenTexts:
        """Several groups of texts, one after another."""
        longest = max(texts.vectors.shape[1] for texts in several)
        rows = [texts.padded(longest) for texts in several]
        return cls(torch.cat([one.vectors for one in rows]), torch.cat([one.compared for one in rows]))


class LateInteraction(Module):
    """ColBERT's network, which adds its markers itself: like all networks in training it reads [CLS] ... [SEP]."""

    kind = "colbert"

    def __init__(self, projection: TokenProjection, framing: Framing) -> None:
        super().__init__()
        self.projection, self.framing = projection, framing
        self.register_buffer("skipped", torch.tensor(framing.skipped, dtype=torch.long), persistent=False)

    @property
    def encoder(self) -> PackedBert:
        """The encoder below the projection."""
        return self.projection.encoder

    def forward(self, chunk: Chunk) -> Tensor:
        """[tokens, width] the vectors of all tokens of the framed texts."""
        framed, written = self.framing.of(chunk)
        hides = chunk.side == 0 and self.framing.mask is not None and not self.framing.attend_to_mask
        vectors = self.projection(framed, written if hides else None)
        return F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=1)

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> TokenTexts:
        """The texts in the order of the batch. One without a token of its own has nothing to compare."""
        chunks = [self.framing.of(chunk)[0] for chunk in batch.chunks]
        sizes = torch.cat([chunk.starts.diff() for chunk in chunks])
        longest = int(sizes.max())
        places = torch.repeat_interleave(batch.order, sizes) * longest + torch.cat([c.positions for c in chunks])
        written = torch.cat([chunk.starts.diff() for chunk in batch.chunks]) + 1
        compared = torch.repeat_interleave(written > _EMPTY, sizes)
        if batch.chunks[0].side == 1:
            assert isinstance(self.skipped, torch.Tensor)
            compared &= ~torch.isin(torch.cat([chunk.ids for chunk in chunks]), self.skipped)
        rows = torch.cat(list(outputs))
        spread = rows.new_zeros(len(sizes) * longest, rows.shape[1]).index_copy(0, places, rows)
        marks = compared.new_zeros(len(sizes) * longest).index_copy(0, places, compared)
        return TokenTexts(spread.view(len(sizes), longest, -1), marks.view(len(sizes), longest))
