"""One vector a token, projected from its state: ColBERT's head."""

from __future__ import annotations

from torch import Tensor, nn

from vizsla.neural.chunks import Chunk
from vizsla.neural.encoder import PackedBert


class TokenProjection(nn.Module):
    """A linear layer without bias over each state."""

    kind = "colbert"

    def __init__(self, encoder: PackedBert, width: int = 128) -> None:
        super().__init__()
        self.encoder = encoder
        self.linear = nn.Linear(encoder.hidden, width, bias=False)

    def forward(self, chunk: Chunk, visible: Tensor | None = None) -> Tensor:
        """[tokens, width] the vector of each token. `visible`: [tokens] which ones others look at; by default all."""
        vectors: Tensor = self.linear(self.encoder(chunk, visible=visible))
        return vectors
