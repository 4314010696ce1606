"""Random crops of documents as training pairs; no judgements are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from vizsla.datasets import Document, article_of
from vizsla.errors import VizslaError
from vizsla.models import field_text
from vizsla.neural.lazy_torch import torch
from vizsla.text import Analyzer
from vizsla.training.kind import TrainingInputs
from vizsla.training.settings import setting
from vizsla.training.sources.pairs import BatchSource, TrainingBatch
from vizsla.training.sources.source import SOURCE_HELP
from vizsla.training.sources.token_corpus import FIELDS, LINE_BREAK, GrowingCorpus, TextPacker, TokenCorpus

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CropSettings:
    """How two random crops of a document are made; the defaults are those of BM26 and Contriever.

    First a window of tokens is chosen at random in the document, then a span of that window, then tokens of the span
    are deleted at random. In the BM26 paper both crops come from the same window.
    """

    window: int = setting(256, "tokens of the document that a crop is taken from")
    same_window: bool = setting(False, "both crops are taken from one window; otherwise each has its own")
    min_fraction: float = setting(0.05, "shortest crop, as a share of the window")
    max_fraction: float = setting(0.5, "longest crop, as a share of the window")
    deletion_rate: float = setting(0.1, "share of a crop's tokens that is deleted")
    min_tokens: int = setting(4, "tokens that a crop has at least, before deletion")

    def __post_init__(self) -> None:
        fractions = 0 < self.min_fraction <= self.max_fraction <= 1
        if not fractions or not 0 <= self.deletion_rate < 1 or self.window < 1 or self.min_tokens < 1:
            raise VizslaError(
                f"these crops are impossible: {self}; expected 0 < min_fraction <= max_fraction <= 1, a deletion_rate "
                "from 0 to below 1, and a window and min_tokens of 1 or more"
            )


@dataclass(frozen=True)
class CropSource(CropSettings):
    """Two random crops of a document are a pair; no judgements are needed."""

    reads_datasets: ClassVar[bool] = False
    document_fields: ClassVar[tuple[str, ...]] = FIELDS
    separator: ClassVar[str] = LINE_BREAK
    source: str = setting("crops", SOURCE_HELP)
    passages_per_document: int = setting(1, "neighbouring passages with the same title that are read as one document")

    def prepare(self, inputs: TrainingInputs, analyzer: Analyzer, folder: Path) -> None:
        """Pack the documents."""
        packed_documents(inputs.documents(), analyzer, self.passages_per_document).save(folder / "corpus")

    def open_pairs(self, folder: Path) -> BatchSource:
        """Random crops of the packed documents."""
        return CroppedPairs(self.open_documents(folder), Crops.of(self))

    def open_documents(self, folder: Path) -> TokenCorpus:
        """The packed documents."""
        return TokenCorpus.open(folder / "corpus")


MIN_TOKENS = 20  # a shorter document does not give two useful crops


def packed_documents(documents: Iterable[Document], analyzer: Analyzer, passages_per_document: int = 1) -> TokenCorpus:
    """Documents to crop, as token ids; short ones are left out.

    `passages_per_document`: this many neighbours with the same title become one document.
    """
    packer = TextPacker(analyzer)
    growing = GrowingCorpus(packer.dtype)
    for ids, sizes in packer.blocks(_joined(documents, passages_per_document)):
        long_enough = sizes >= MIN_TOKENS
        growing.append(ids[np.repeat(long_enough, sizes)], sizes[long_enough])
    if not len(growing):
        raise VizslaError(f"there is no document with {MIN_TOKENS} tokens or more to train on")
    return growing.corpus().narrow()


def _joined(documents: Iterable[Document], count: int) -> Iterator[str]:
    if count <= 1:
        yield from (field_text(d.content, FIELDS) for d in documents)
        return
    for _, article in groupby(documents, key=article_of):
        while passages := list(islice(article, count)):
            yield "\n".join(field_text(d.content, ("text",)) for d in passages)


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
        """Ids and offsets of a corpus on a device."""
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
        rng = torch.Generator(device).manual_seed(seed * 1_000_003 + step)
        chosen = torch.randperm(len(self.corpus), generator=rng, device=device)[:size]
        ids, offsets = self.crops.tensors(self.corpus.chosen(chosen.cpu().numpy()), device)
        return TrainingBatch(self.crops.crops(2, ids, offsets, torch.arange(size, device=device), rng))
