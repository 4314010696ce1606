"""Does word order matter to a model? Questions are searched again with their words shuffled, as in the SPAR paper.

A bag-of-words model finds the same documents. What another model loses shows how much it uses word order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from vizsla.errors import VizslaError
from vizsla.evaluation.questions import ValuesByQuestion
from vizsla.evaluation.significance import Difference, compare_values


def shuffle_words(texts: Mapping[str, str], seed: int = 1) -> dict[str, str]:
    """The words of each text in a random order, which depends only on the seed and the text's id.

    Blanks separate words. All orders are equally likely, the original one included.

    >>> shuffle_words({"q": "who wrote the book of sand"}, seed=1)
    {'q': 'book who sand of wrote the'}
    """
    shuffled = {}
    for name, text in texts.items():
        words = text.split()
        Random(f"{seed} {name}").shuffle(words)
        shuffled[name] = " ".join(words)
    return shuffled


@dataclass(frozen=True)
class ShuffleEffect:
    """The mean of a measure before and after shuffling."""

    measure: str
    before: float
    after: float
    """The mean over the seeds."""
    by_seed: tuple[float, ...]
    difference: Difference
    """After minus before, with each question's mean over the seeds."""


def compare_shuffled(
    before: ValuesByQuestion, after: Sequence[ValuesByQuestion], test: str = "t-test"
) -> list[ShuffleEffect]:
    """Compare the values of the original questions with those of shuffled ones, for each measure.

    `after`: the values for each seed.

    >>> effect, = compare_shuffled({"Acc@1": {"q": 1.0, "r": 1.0}}, [{"Acc@1": {"q": 0.0, "r": 1.0}}])
    >>> effect.before, effect.after, effect.difference.mean
    (1.0, 0.5, -0.5)
    """
    if not after:
        raise VizslaError("there is nothing to compare with; shuffle at least once")
    effects = []
    for measure, values in before.items():
        shuffled = [seed[measure] for seed in after]
        if any(values.keys() != other.keys() for other in shuffled):
            raise VizslaError("the questions before and after shuffling are not the same")
        means = {q: float(np.mean([other[q] for other in shuffled])) for q in values}
        by_seed = tuple(float(np.mean(list(other.values()))) for other in shuffled)
        original = float(np.mean(list(values.values())))
        mean = float(np.mean(by_seed))
        effects.append(ShuffleEffect(measure, original, mean, by_seed, compare_values(values, means, test)))
    return effects
