"""Texts as concatenated token ids: what networks read, without padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from vizsla.neural.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor

START, END = 101, 102
"""[CLS] and [SEP] of BERT's uncased vocabulary."""
SPECIAL_TOKENS = (0, 101, 102, 103)
"""[PAD], [CLS], [SEP] and [MASK] of BERT's uncased vocabulary: they get no weight."""


class Chunk(NamedTuple):
    """Some texts, packed: as many as are encoded at once."""

    ids: Tensor
    """[tokens] the token ids of all texts."""
    positions: Tensor
    """[tokens] the position of each token in its text."""
    starts: Tensor
    """[texts + 1] where each text begins, and where the last ends."""
    longest: int
    """An upper bound of the tokens in a text; a power of 2, so that kernels are compiled for few values."""
    side: int = 0
    """0 for queries, 1 for documents: some networks read them differently."""

    def padded(self) -> tuple[Tensor, Tensor]:
        """Ids and mask, [texts, length]."""
        lengths = self.starts.diff()
        mask = torch.arange(int(lengths.max()), device=self.ids.device) < lengths[:, None]
        return self.ids.new_zeros(mask.shape).masked_scatter_(mask, self.ids), mask


class Batch(NamedTuple):
    """All texts of a batch in chunks, shortest texts first, and the permutation that restores their order."""

    chunks: list[Chunk]
    order: Tensor
    """[texts] which text of the batch each packed one is."""

    @property
    def ids(self) -> Tensor:
        """[tokens] of all chunks."""
        return torch.cat([chunk.ids for chunk in self.chunks])

    @property
    def texts(self) -> Tensor:
        """[tokens] the text of the batch that each token belongs to."""
        lengths = torch.cat([chunk.starts.diff() for chunk in self.chunks])
        return torch.repeat_interleave(self.order, lengths)


def packed(ids: Tensor, mask: Tensor, tokens: int, side: int = 0) -> Batch:
    """Pack padded rows into chunks of at most `tokens` tokens each; a longer text is a chunk of its own.

    >>> ids = torch.tensor([[5, 6, 7], [8, 0, 0]])
    >>> batch = packed(ids, ids > 0, 100)
    >>> batch.chunks[0].ids.tolist(), batch.chunks[0].starts.tolist(), batch.order.tolist()
    ([8, 5, 6, 7], [0, 1, 4], [1, 0])
    """
    lengths = mask.sum(1)
    order = torch.argsort(lengths, stable=True)
    sizes = lengths[order]
    flat = ids[order][mask[order]]
    ends = torch.cumsum(sizes, 0)
    begins = ends - sizes
    positions = torch.arange(len(flat), device=ids.device) - torch.repeat_interleave(begins, sizes)
    chunks, on_host = [], ends.tolist()
    first = 0
    while first < len(on_host):
        base = on_host[first - 1] if first else 0
        last = first + 1
        while last < len(on_host) and on_host[last] - base <= tokens:
            last += 1
        end = on_host[last - 1]
        starts = torch.cat([begins[first:last], ends[last - 1 : last]]) - base
        longest = end - (on_host[last - 2] if last > 1 else 0)
        power = 1 << (longest - 1).bit_length()
        chunks.append(Chunk(flat[base:end], positions[base:end], starts.int(), power, side))
        first = last
    return Batch(chunks, order)


def visible_tokens(batch: Batch, limits: Tensor) -> Iterator[Tensor]:
    """For each chunk [tokens] a mask of the first tokens of each text, given [texts] their number."""
    first = 0
    for chunk in batch.chunks:
        sizes = chunk.starts.diff()
        own = limits[batch.order[first : first + len(sizes)]]
        yield chunk.positions < torch.repeat_interleave(own, sizes)
        first += len(sizes)


def split_into_pieces(chunk: Chunk, which: Tensor) -> tuple[Chunk, Tensor]:
    """Split some texts of a chunk into texts of one word piece each, with [CLS] and [SEP] around it.

    `which`: [texts] the texts to split; a text without a piece is left as it is. Also returns where the tokens of each
    original text begin in the new chunk, in which its pieces follow each other.

    >>> ids = torch.tensor([[101, 5, 102, 0], [101, 6, 7, 102]])
    >>> chunk = packed(ids, ids > 0, 100).chunks[0]
    >>> apart, starts = split_into_pieces(chunk, torch.tensor([False, True]))
    >>> apart.ids.tolist(), apart.starts.tolist(), starts.tolist()
    ([101, 5, 102, 101, 6, 102, 101, 7, 102], [0, 3, 6, 9], [0, 3, 9])
    """
    sizes = chunk.starts.diff().long()
    taken = which & (sizes > 2)
    text = torch.repeat_interleave(sizes)
    is_end = (chunk.positions == 0) | (chunk.positions == sizes[text] - 1)
    repeats = torch.where(taken[text], torch.where(is_end, 0, 3), 1)
    token = torch.repeat_interleave(repeats)
    place = _counted(len(token), token) - (torch.cumsum(repeats, 0) - repeats)[token]
    alone = taken[text][token]
    ids = torch.where(alone & (place == 0), START, torch.where(alone & (place == 2), END, chunk.ids[token]))
    begins = torch.where(alone, place == 0, chunk.positions[token] == 0).nonzero()[:, 0]
    bounds = torch.cat([begins, begins.new_tensor([len(token)])])
    positions = _counted(len(token), token) - torch.repeat_interleave(begins, bounds.diff())
    counts = torch.zeros_like(sizes).index_add_(0, text, repeats)
    starts = torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)])
    longest = 4 if bool(taken.all()) else max(chunk.longest, 4)
    return Chunk(ids, positions, bounds.int(), longest, chunk.side), starts.int()


def _counted(count: int, beside: Tensor) -> Tensor:
    return torch.arange(count, device=beside.device)
