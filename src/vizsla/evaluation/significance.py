"""Whether the difference between two systems is significant.

Tests are paired over queries: a t-test, or a randomisation test that flips the signs of the differences. There are
corrections for many comparisons, effect sizes, confidence intervals, and the queries that differ most.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError

PERMUTATIONS = 10_000
EXACT_UP_TO = 14  # queries with a difference: 2^14 sign patterns are counted, not sampled
TIE = 1e-12


@dataclass(frozen=True)
class Difference:
    """How a system differs from a baseline on the same queries."""

    mean: float
    """The system's mean minus the baseline's."""
    p: float
    """The p-value: how likely so large a difference is by chance."""
    effect: float | None
    """Cohen's d for pairs: the mean difference in standard deviations of the differences; None if these do not vary."""
    interval: tuple[float, float] | None
    """The 95% confidence interval of the mean difference; None for a single query."""
    wins: int
    ties: int
    losses: int
    moved: tuple[tuple[str, float], ...]
    """The queries with the largest differences, up or down."""


def compare_values(
    baseline: Mapping[str, float], system: Mapping[str, float], test: str = "t-test", moved: int = 10
) -> Difference:
    """Compare two systems by a measure's value for each query; the queries must be the same.

    >>> a = {"q1": 0.1, "q2": 0.5, "q3": 0.3, "q4": 0.2}
    >>> b = {"q1": 0.4, "q2": 0.6, "q3": 0.3, "q4": 0.5}
    >>> difference = compare_values(a, b)
    >>> round(difference.mean, 3), difference.wins, difference.ties, difference.losses, round(difference.p, 4)
    (0.175, 3, 1, 0, 0.1018)
    """
    if baseline.keys() != system.keys():
        raise VizslaError("two systems can be compared only on the same queries")
    if not baseline:
        raise VizslaError("there are no queries to compare on")
    if test not in TESTS:
        raise UnknownNameError("significance test", test, tuple(TESTS))
    queries = list(baseline)
    values = np.array([system[q] - baseline[q] for q in queries])
    values[np.abs(values) < TIE] = 0.0
    order = np.argsort(-np.abs(values), kind="stable")[:moved].tolist()
    return Difference(
        float(values.mean()), TESTS[test](values), _effect(values), _interval(values),
        int((values > 0).sum()), int((values == 0).sum()), int((values < 0).sum()),
        tuple((queries[i], float(values[i])) for i in order if values[i]),
    )  # fmt: skip


def paired_t_test(differences: np.ndarray) -> float:
    """The two-sided p-value of Student's t-test for pairs."""
    n, deviation = len(differences), _deviation(differences)
    if n < 2 or not differences.any():
        return 1.0
    if deviation == 0:  # the same difference for every query: a sign test, as likely as that many equal coin tosses
        return float(2.0 ** (1 - n))
    t = differences.mean() / (deviation / np.sqrt(n))
    return both_tails(float(t), n - 1)


def randomisation_test(differences: np.ndarray, permutations: int = PERMUTATIONS, seed: int = 0) -> float:
    """The two-sided p-value of Fisher's randomisation test: how often random signs give as large a sum.

    With few queries all patterns of signs are tried, otherwise a sample. The observed pattern counts, so p is never 0.
    """
    moved = differences[differences != 0]
    observed = abs(moved.sum()) * (1 - 1e-12)
    if len(moved) <= EXACT_UP_TO:
        signs = np.array(list(product((-1.0, 1.0), repeat=len(moved)))).reshape(-1, len(moved))
        return float((np.abs(signs @ moved) >= observed).mean()) if len(moved) else 1.0
    rng = np.random.default_rng(seed)
    reached = 0
    step = max(min(1000, 10_000_000 // len(moved)), 1)
    for first in range(0, permutations, step):
        size = min(step, permutations - first)
        signs = rng.integers(0, 2, (size, len(moved)), np.int8) * 2.0 - 1.0
        reached += int((np.abs(signs @ moved) >= observed).sum())
    return (reached + 1) / (permutations + 1)


TESTS: dict[str, Callable[[np.ndarray], float]] = {"t-test": paired_t_test, "randomisation": randomisation_test}


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 and np.ptp(values) > TIE else 0.0


def _effect(values: np.ndarray) -> float | None:
    deviation = _deviation(values)
    if deviation:
        return float(values.mean() / deviation)
    return None if values.any() else 0.0


def _interval(values: np.ndarray) -> tuple[float, float] | None:
    mean, n = float(values.mean()), len(values)
    if n < 2:
        return None
    half = critical_t(n - 1) * _deviation(values) / math.sqrt(n)
    return mean - half, mean + half


def both_tails(t: float, freedom: int) -> float:
    """The two-sided p-value of a t in Student's distribution with some degrees of freedom.

    >>> round(both_tails(2.0, 10), 6)
    0.073388
    """
    a, b = freedom / 2, 0.5
    near, far = freedom / (freedom + t * t), t * t / (freedom + t * t)
    if not near or not far:
        return float(far == 0)
    beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    density = math.exp(a * math.log(near) + b * math.log(far) - beta)
    if near < (a + 1) / (a + b + 2):  # the fraction converges quickly here; otherwise its mirror image does
        return density / a * _beta_fraction(near, a, b)
    return 1 - density / b * _beta_fraction(far, b, a)


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    above, below = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = below
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            above, below = 1 + term / above, 1 / (1 + term * below)
            value *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return value


@functools.cache
def critical_t(freedom: int) -> float:
    """The t whose two-sided p-value is 5%, found by bisection."""
    low, high = 1.9, 12.8  # between the normal distribution's and that of one degree of freedom
    for _ in range(52):
        middle = (low + high) / 2
        low, high = (middle, high) if both_tails(middle, freedom) > 0.05 else (low, middle)
    return low


def _bonferroni(p: np.ndarray) -> np.ndarray:
    return np.array(np.minimum(p * len(p), 1.0))


def _holm(p: np.ndarray) -> np.ndarray:
    """Step down: the smallest times n, the next times n - 1, never falling."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    out = np.empty(len(p))
    out[order] = np.minimum(stepped, 1.0)
    return out


def _benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """Step up: controls the false discovery rate."""
    order = np.argsort(p, kind="stable")[::-1]
    stepped = np.minimum.accumulate(p[order] * len(p) / np.arange(len(p), 0, -1))
    out = np.empty(len(p))
    out[order] = np.minimum(stepped, 1.0)
    return out


CORRECTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda p: p,
    "bonferroni": _bonferroni,
    "holm": _holm,
    "bh": _benjamini_hochberg,
}


def corrected(p: Sequence[float], correction: str = "holm") -> list[float]:
    """p-values corrected for multiple comparisons.

    >>> [round(p, 6) for p in corrected([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    if correction not in CORRECTIONS:
        raise UnknownNameError("correction", correction, tuple(CORRECTIONS))
    return [float(x) for x in CORRECTIONS[correction](np.asarray(p, np.float64))]
