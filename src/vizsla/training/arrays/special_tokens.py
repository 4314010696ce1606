"""Texts with BERT's special tokens around them, cut to a length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from vizsla.training.arrays.token_corpus import TokenCorpus

CLS, SEP, MASK = 101, 102, 103


def with_special_tokens(
    texts: TokenCorpus,
    chosen: Sequence[int] | np.ndarray,
    device: str | torch.device,
    *,
    max_length: int = 512,
) -> tuple[Tensor, Tensor]:
    """Token ids and mask, [texts, length], of some texts between [CLS] and [SEP]; these two count to `max_length`."""
    numbers = np.asarray(chosen, np.int64)
    begins = texts.offsets[numbers]
    sizes = np.minimum(texts.offsets[numbers + 1] - begins, max_length - 2)
    places = np.arange(sizes.max(initial=0) + 2)
    mask = places < sizes[:, None] + 2
    inside = (places > 0) & (places <= sizes[:, None])
    ids = np.zeros(mask.shape, np.int64)
    ids[:, 0] = CLS
    ids[inside] = texts.ids[(begins[:, None] + places - 1)[inside]]
    ids[np.arange(len(sizes)), sizes + 1] = SEP
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def sample_of(texts: TokenCorpus, count: int, max_length: int) -> list[list[int]]:
    """Token ids of `count` texts that lie evenly in a corpus, between special tokens."""
    chosen = np.linspace(0, len(texts) - 1, min(len(texts), count)).astype(int)
    return [[CLS, *texts[i][: max_length - 2].tolist(), SEP] for i in chosen]
