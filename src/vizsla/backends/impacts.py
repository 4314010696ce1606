"""Term weights as integers, for engines that count terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from vizsla.errors import VizslaError
from vizsla.vectors import Quantiser

DEFAULT_QUANTISER = "range:1:100:even"
"""A hundred times the weight, rounded: scores keep their proportions."""


def fitted(quantiser: str, weights: Iterable[np.ndarray]) -> Quantiser:
    """A quantiser from its text form; one that depends on the weights is fitted to them, some at a time."""
    chosen = Quantiser.parse(quantiser)
    if chosen.fitted:
        return chosen
    ends = [end for some in weights if len(some) for end in (some.min(), some.max())]
    return chosen.fit(np.array([min(ends), max(ends)] if ends else []))


def check_positive(weights: np.ndarray, model: str, to: str) -> None:
    """Refuse weights below 0, which an engine cannot store."""
    if len(weights) and float(weights.min()) < 0:
        raise VizslaError(f"{model} gives terms negative weights, and {to} takes none")


def whole_query(terms: Mapping[str, float]) -> dict[str, int]:
    """The weights of a query's terms as integers: unchanged if all are integers, otherwise multiplied by 100.

    >>> whole_query({"dog": 2.0, "cat": 1.0}), whole_query({"dog": 0.5, "cat": 1.234})
    ({'dog': 2, 'cat': 1}, {'dog': 50, 'cat': 123})
    """
    scale = 1 if all(weight == int(weight) for weight in terms.values()) else 100
    return {term: whole for term, weight in terms.items() if (whole := round(scale * weight)) > 0}
