"""Whether a model follows words: questions asked again with their words shuffled, as in the SPAR paper.

A bag of words finds the same; what a model loses is what it had from the order of words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from vizsla.errors import VizslaError
from vizsla.evaluation.questions import Values
from vizsla.evaluation.significance import Difference, compare_values


def shuffled(texts: Mapping[str, str], seed: int = 1) -> dict[str, str]:
    """The words of each text in another order, which depends on the seed and the text's id alone.

    Words are what stands between blanks. All orders are equally likely, the first one too.

    >>> shuffled({"q": "who wrote the book of sand"}, seed=1)
    {'q': 'book who sand of wrote the'}
    """
    changed = {}
    for name, text in texts.items():
        words = text.split()
        Random(f"{seed} {name}").shuffle(words)
        changed[name] = " ".join(words)
    return changed


@dataclass(frozen=True)
class Shuffled:
    """A figure before and after shuffling."""

    measure: str
    before: float
    after: float
    """The mean over the seeds."""
    by_seed: tuple[float, ...]
    difference: Difference
    """After less before, with each question's mean over the seeds."""


def compare_shuffled(before: Values, after: Sequence[Values], test: str = "t-test") -> list[Shuffled]:
    """The figures of questions as they are and shuffled, several times if you like, for each measure.

    >>> found, = compare_shuffled({"Acc@1": {"q": 1.0, "r": 1.0}}, [{"Acc@1": {"q": 0.0, "r": 1.0}}])
    >>> found.before, found.after, found.difference.mean
    (1.0, 0.5, -0.5)
    """
    if not after:
        raise VizslaError("there is nothing to compare with; shuffle at least once")
    found = []
    for measure, values in before.items():
        again = [seed[measure] for seed in after]
        if any(values.keys() != other.keys() for other in again):
            raise VizslaError("the questions before and after shuffling are not the same")
        means = {q: float(np.mean([other[q] for other in again])) for q in values}
        by_seed = tuple(float(np.mean(list(other.values()))) for other in again)
        original = float(np.mean(list(values.values())))
        mean = float(np.mean(by_seed))
        found.append(Shuffled(measure, original, mean, by_seed, compare_values(values, means, test)))
    return found
