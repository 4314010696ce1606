"""Two encoders, one for queries and one for documents, and a model in training with a frozen companion."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vizsla.neural.chunks import Batch, Chunk
from vizsla.neural.encoder import PackedBert, Padded
from vizsla.neural.pooled import Pooled


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


class WithFrozenCompanion(nn.Module):
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

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts, both widths]"""
        return torch.cat([self.trained(chunk), self.frozen(chunk).detach()], 1)

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, both widths] from the outputs for the chunks, in the order of the batch."""
        width = self.trained.width
        trained = self.trained.vectors([part[:, :width] for part in outputs], batch)
        frozen = self.frozen.vectors([part[:, width:] for part in outputs], batch)
        return torch.cat([trained, frozen if batch.chunks[0].side else frozen * self.weight], 1)
