"""Only the heaviest terms of texts: smaller indexes and faster searches for networks that add many terms."""

from __future__ import annotations

import numpy as np

from vizsla.errors import VizslaError

MAX_TERMS = "terms of a document that are kept, the heaviest; 0 for all"
MAX_QUERY_TERMS = "terms of a query that are kept, the heaviest; 0 for all"


def check_term_limits(**limits: object) -> None:
    """Refuse a limit that is not a whole number of 0 or more."""
    for name, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise VizslaError(f"{name} must be a whole number of 0 or more, not {value!r}")


def heaviest(
    pointers: np.ndarray, terms: np.ndarray, weights: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in CSR form with at most so many terms each, in the order they had; 0 keeps all.

    Of equal weights the first are kept.

    >>> rows = heaviest(np.array([0, 3, 4]), np.array([7, 8, 9, 5]), np.array([0.2, 0.5, 0.3, 0.1]), 2)
    >>> [array.tolist() for array in rows]
    [[0, 2, 3], [8, 9, 5], [0.5, 0.3, 0.1]]
    """
    sizes = np.diff(pointers)
    if not most or not len(sizes) or sizes.max() <= most:
        return pointers, terms, weights
    rows = np.repeat(np.arange(len(sizes)), sizes)
    by_weight = np.lexsort((-weights, rows))
    ranks = np.arange(len(terms)) - pointers[rows]
    kept = np.sort(by_weight[ranks < most])
    return np.concatenate([[0], np.cumsum(np.minimum(sizes, most))]), terms[kept], weights[kept]
