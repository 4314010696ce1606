"""Sparse vectors as arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class SparseRows(NamedTuple):
    """Sparse vectors in CSR: where each vector begins, its terms, their weights."""

    pointers: np.ndarray
    terms: np.ndarray
    weights: np.ndarray

    def dense(self, first: int, last: int, size: int, device: torch.device) -> Tensor:
        """[vectors, size] the vectors from `first` to before `last`."""
        begin, end = int(self.pointers[first]), int(self.pointers[last])
        rows = np.repeat(np.arange(last - first), np.diff(self.pointers[first : last + 1]))
        dense = torch.zeros(last - first, size, device=device)
        terms, weights = self.terms[begin:end].astype(np.int64), self.weights[begin:end].astype(np.float32)
        rows_at, terms_at, values = (torch.from_numpy(array).to(device) for array in (rows, terms, weights))
        dense[rows_at, terms_at] = values
        return dense
