"""Independent crops: two random stretches of a document are a pseudo-query and a pseudo-document."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vizsla.errors import VizslaError
from vizsla.training.batches import Sides
from vizsla.training.corpus import TokenCorpus


@dataclass(frozen=True)
class Crops:
    """How documents are cropped, with the BM26 paper's settings, and Contriever's where the paper is silent.

    First a stretch of `span` tokens anywhere in the document, then of it a stretch of `shortest` to `longest` of its
    length, then each token is deleted with a chance of `deletion`; `start` and, unless it is None, `end` are put around
    what is left. At least `least` tokens are taken.
    """

    span: int = 256
    shortest: float = 0.05
    longest: float = 0.5
    deletion: float = 0.1
    least: int = 4
    start: int = 101
    end: int | None = 102

    def __post_init__(self) -> None:
        if not 0 < self.shortest <= self.longest <= 1 or not 0 <= self.deletion < 1 or self.span < 1 or self.least < 1:
            raise VizslaError(f"these crops cannot be made: {self}")

    def crop(
        self, ids: Tensor, offsets: Tensor, documents: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Token ids and mask, [documents, length], of one crop of each document."""
        device = documents.device

        def chance(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator, device=device)

        whole = offsets[documents + 1] - offsets[documents]
        span = whole.clamp(max=self.span)
        first = offsets[documents] + (chance(len(documents)) * (whole - span + 1)).long()
        share = self.shortest + chance(len(documents)) * (self.longest - self.shortest)
        size = (share * span).long().clamp(min=self.least).minimum(span)
        first = first + (chance(len(documents)) * (span - size + 1)).long()
        at = torch.arange(int(size.max()), device=device)
        inside = at < size[:, None]
        tokens = ids[(first[:, None] + at).clamp(max=len(ids) - 1)].long()
        kept = inside & (chance(*tokens.shape) >= self.deletion)
        kept[:, 0] |= ~kept.any(1)  # something is left of every crop
        order = torch.argsort((~kept).int(), dim=1, stable=True)
        tokens, kept = tokens.gather(1, order), kept.gather(1, order)
        return self._between_specials(torch.where(kept, tokens, 0), kept)

    def _between_specials(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        begin = tokens.new_full((len(tokens), 1), self.start)
        tokens, mask = torch.cat([begin, tokens], 1), torch.cat([torch.ones_like(begin, dtype=torch.bool), mask], 1)
        if self.end is not None:
            tokens, mask = (torch.cat([t, t.new_zeros(len(t), 1)], 1) for t in (tokens, mask))
            last = mask.sum(1, keepdim=True)
            tokens, mask = tokens.scatter(1, last, self.end), mask.scatter(1, last, True)
        longest = int(mask.sum(1).max())
        return tokens[:, :longest], mask[:, :longest]

    @staticmethod
    def tensors(corpus: TokenCorpus, device: str | torch.device) -> tuple[Tensor, Tensor]:
        """A corpus where the training happens; all of it, as ids of two bytes are few."""
        ids = torch.from_numpy(corpus.ids.astype("int32"))
        return ids.to(device), torch.from_numpy(corpus.offsets.copy()).to(device)


@dataclass(frozen=True, eq=False)
class CroppedPairs:
    """Batches of two crops of the same documents, the same for the same seed and step wherever they are made."""

    corpus: TokenCorpus
    crops: Crops = Crops()

    def sides(self, size: int, seed: int, step: int, device: torch.device) -> Sides:
        """Token ids and mask of `size` pseudo-queries, and of their pseudo-documents."""
        if size > len(self.corpus):
            raise VizslaError(
                f"a batch of {size:,} needs as many documents, and the corpus has {len(self.corpus):,}; "
                "ask for a smaller batch, as in --set batch=1024"
            )
        ids, offsets = self._tensors(device)
        dice = torch.Generator(device).manual_seed(seed * 1_000_003 + step)
        chosen = torch.randperm(len(self.corpus), generator=dice, device=device)[:size]
        return Sides([self.crops.crop(ids, offsets, chosen, dice) for _ in range(2)])

    def _tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        kept: dict[torch.device, tuple[Tensor, Tensor]] = self.__dict__.setdefault("_kept", {})
        if device not in kept:
            kept[device] = self.crops.tensors(self.corpus, device)
        return kept[device]
