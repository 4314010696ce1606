"""Independent cropping: two random crops of a document are a pseudo-query and a pseudo-document."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from vizsla.errors import VizslaError
from vizsla.training.arrays.batch import TrainingBatch
from vizsla.training.arrays.token_corpus import TokenCorpus
from vizsla.training.settings import CropSettings


@dataclass(frozen=True)
class Crops(CropSettings):
    """Makes random crops of documents; `cls_id` and, unless it is None, `sep_id` are put around each crop."""

    cls_id: int = 101
    sep_id: int | None = 102

    @classmethod
    def of(cls, settings: CropSettings) -> Crops:
        """Crops by the settings of a recipe."""
        return cls(**{one.name: getattr(settings, one.name) for one in fields(CropSettings)})

    def windows(self, offsets: Tensor, documents: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """[documents] where a random window of each document begins, and how many tokens it has."""
        length = offsets[documents + 1] - offsets[documents]
        size = length.clamp(max=self.window)
        place = torch.rand(len(documents), generator=generator, device=documents.device)
        return offsets[documents] + (place * (length - size + 1)).long(), size

    def crops(
        self, count: int, ids: Tensor, offsets: Tensor, documents: Tensor, generator: torch.Generator
    ) -> list[tuple[Tensor, Tensor]]:
        """Several crops of each document: all from one window with `same_window`, else from a window each."""
        windows = self.windows(offsets, documents, generator) if self.same_window else None
        return [self.crop(ids, offsets, documents, generator, windows) for _ in range(count)]

    def crop(
        self,
        ids: Tensor,
        offsets: Tensor,
        documents: Tensor,
        generator: torch.Generator,
        windows: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Token ids and mask, [documents, length], of one crop of each document.

        `windows`: where crops are taken from, as `windows` draws them; by default they are drawn here.
        """
        device = documents.device

        def uniform(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator, device=device)

        first, window = windows or self.windows(offsets, documents, generator)
        fraction = self.min_fraction + uniform(len(documents)) * (self.max_fraction - self.min_fraction)
        size = (fraction * window).long().clamp(min=self.min_tokens).minimum(window)
        first = first + (uniform(len(documents)) * (window - size + 1)).long()
        place = torch.arange(int(size.max()), device=device)
        inside = place < size[:, None]
        tokens = ids[(first[:, None] + place).clamp(max=len(ids) - 1)].long()
        kept = inside & (uniform(*tokens.shape) >= self.deletion_rate)
        kept[:, 0] |= ~kept.any(1)  # every crop keeps at least one token
        order = torch.argsort((~kept).int(), dim=1, stable=True)
        tokens, kept = tokens.gather(1, order), kept.gather(1, order)
        return self._with_special_tokens(torch.where(kept, tokens, 0), kept)

    def _with_special_tokens(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        begin = tokens.new_full((len(tokens), 1), self.cls_id)
        tokens, mask = torch.cat([begin, tokens], 1), torch.cat([torch.ones_like(begin, dtype=torch.bool), mask], 1)
        if self.sep_id is not None:
            tokens, mask = (torch.cat([t, t.new_zeros(len(t), 1)], 1) for t in (tokens, mask))
            last = mask.sum(1, keepdim=True)
            tokens, mask = tokens.scatter(1, last, self.sep_id), mask.scatter(1, last, True)
        longest = int(mask.sum(1).max())
        return tokens[:, :longest], mask[:, :longest]

    @staticmethod
    def tensors(corpus: TokenCorpus, device: str | torch.device) -> tuple[Tensor, Tensor]:
        """Ids and offsets of a corpus on a device; all of it, as token ids are small."""
        ids = torch.from_numpy(corpus.ids.astype("int32"))
        return ids.to(device), torch.from_numpy(corpus.offsets.copy()).to(device)


@dataclass(frozen=True, eq=False)
class CroppedPairs:
    """Batches of two crops of the same documents."""

    corpus: TokenCorpus
    crops: Crops = Crops()

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """`size` pseudo-queries and their pseudo-documents; the same seed and step give the same batch."""
        if size > len(self.corpus):
            raise VizslaError(
                f"a batch of {size:,} needs as many documents, and the corpus has {len(self.corpus):,}; "
                "use a smaller batch, as in --set training.batch_size=1024"
            )
        ids, offsets = self._tensors(device)
        rng = torch.Generator(device).manual_seed(seed * 1_000_003 + step)
        chosen = torch.randperm(len(self.corpus), generator=rng, device=device)[:size]
        return TrainingBatch(self.crops.crops(2, ids, offsets, chosen, rng))

    def _tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        by_device: dict[torch.device, tuple[Tensor, Tensor]] = self.__dict__.setdefault("_by_device", {})
        if device not in by_device:
            by_device[device] = self.crops.tensors(self.corpus, device)
        return by_device[device]
