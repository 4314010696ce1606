"""Two encoders, one for queries and one for documents, and a model learnt beside another that stands still."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vizsla.networks.chunks import Batch, Chunk
from vizsla.networks.encoder import PackedBert, Padded
from vizsla.networks.pooled import Pooled


class Towers(nn.Module):
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


class Beside(nn.Module):
    """A dense network in training, its vectors behind which those of another stand that does not change.

    The other's vectors weigh `weight` on the side of queries, which is learnt, too: the joint training of SPAR.
    """

    kind = "dense"

    def __init__(self, own: Pooled | Towers, other: Pooled | Towers, weight: float = 1.0) -> None:
        super().__init__()
        self.own, self.other = own, other.requires_grad_(requires_grad=False)
        self.weight = nn.Parameter(torch.tensor(float(weight)))

    @property
    def encoder(self) -> PackedBert | Padded:
        return self.own.encoder

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts, both widths]"""
        return torch.cat([self.own(chunk), self.other(chunk).detach()], 1)

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, both widths] from the outputs for the chunks, in the order of the batch."""
        width = self.own.width
        own = self.own.vectors([part[:, :width] for part in outputs], batch)
        other = self.other.vectors([part[:, width:] for part in outputs], batch)
        return torch.cat([own, other if batch.chunks[0].side else other * self.weight], 1)
