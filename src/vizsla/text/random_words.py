"""Random words of a text, in their order: what pseudo-queries are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def random_words(words: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    """`count` of the words, or all if there are fewer.

    >>> random_words("a dog barks at night".split(), 2, np.random.default_rng(3))
    ['barks', 'night']
    """
    return [words[i] for i in sorted(rng.permutation(len(words))[:count].tolist())]


def random_number(bounds: tuple[int, int], rng: np.random.Generator) -> int:
    """A whole number between two bounds, both included."""
    return int(rng.integers(bounds[0], bounds[1] + 1))
