"""Queries as the engine reads them: numbers only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class Query:
    """Term numbers, the namespace each belongs to, and their weights, in the order they are summed.

    `dense`: a vector for each namespace that has dense ones, its weight multiplied in.
    """

    terms: np.ndarray
    spaces: np.ndarray
    weights: np.ndarray
    dense: Mapping[int, np.ndarray] = field(default_factory=dict)
