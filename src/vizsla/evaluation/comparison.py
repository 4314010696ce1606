"""The result of a comparison: the figures of systems on data sets, and which differences are significant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np

from vizsla.errors import VizslaError
from vizsla.evaluation.conventions import Convention
from vizsla.evaluation.figures import Evaluation
from vizsla.evaluation.significance import TIE, Difference, compare_values, corrected
from vizsla.runs import Measure, Run


class SystemFacts(TypedDict, total=False):
    """What was measured while a run was made."""

    milliseconds: float
    """A query, one at a time, for ten results."""
    bytes: int
    """The size of the index, without stored documents."""
    documents: int
    seconds: dict[str, float]
    """By step: `index`, `search`."""


@dataclass(frozen=True)
class SystemResult:
    """The figures of a system on a data set, and the run they were computed from."""

    evaluation: Evaluation
    run: Run
    facts: SystemFacts = field(default_factory=SystemFacts)
    """Empty for a run from elsewhere."""
    cached: bool = False


@dataclass(frozen=True)
class AgainstBaseline:
    """A system beside the baseline over the data sets that it has results on; a group of data sets counts as one."""

    datasets: int
    mean: float
    """The system's mean over these data sets."""
    difference: float
    """That mean minus the baseline's over the same data sets."""
    relative: float | None
    """The difference as a share of the baseline's mean; None if that is 0."""
    better: int
    """The data sets on which the system is better than the baseline, significantly or not."""
    equal: int
    worse: int
    significantly_better: int
    """Of those, the data sets with a significant difference. Groups are not tested and never counted here."""
    significantly_worse: int


@dataclass(frozen=True)
class Comparison:
    """Systems on data sets; the first system is the baseline that the others are tested against.

    The baseline has results on all data sets. Other systems may lack some.
    """

    systems: tuple[str, ...]
    datasets: tuple[str, ...]
    measures: tuple[str, ...]
    splits: dict[str, str]
    results: dict[tuple[str, str], SystemResult]
    """By data set and system."""
    convention: Convention
    test: str = "t-test"
    correction: str = "holm"
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Data sets whose mean is the published figure, by the name of the whole."""
    notes: tuple[str, ...] = ()
    """Remarks for the reader."""
    _tested: dict[tuple[str, str], dict[str, tuple[Difference, float]]] = field(default_factory=dict, repr=False)

    @property
    def baseline(self) -> str:
        """The system that the others are compared with."""
        return self.systems[0]

    def has(self, dataset: str, system: str) -> bool:
        """Whether a system has results on a data set; on a group it needs those of all members."""
        return all((m, system) in self.results for m in self.groups.get(dataset, (dataset,)))

    def value(self, dataset: str, system: str, measure: str) -> float:
        """A figure of a system on a data set that it has; on a group of data sets it is their mean."""
        members = self.groups.get(dataset, (dataset,))
        return float(np.mean([self.results[m, system].evaluation.measures[measure] for m in members]))

    def mean(self, system: str, measure: str) -> float:
        """The mean over all data sets that the system has; a group counts as one. NaN if it has none as a whole."""
        values = [self.value(d, system, measure) for d in self.rows if self.has(d, system)]
        return float(np.mean(values)) if values else float("nan")

    def is_complete(self, system: str) -> bool:
        """Whether a system has results on all data sets, so that its mean can be compared with other means."""
        return all(self.has(d, system) for d in self.rows)

    def against_baseline(self, system: str, measure: str) -> AgainstBaseline:
        """The average difference from the baseline, and on how many data sets the system is better and worse.

        Only data sets that the system has are counted, for the baseline's mean, too.
        """
        shared = [d for d in self.rows if self.has(d, system)]
        values = np.array([[self.value(d, s, measure) for d in shared] for s in (system, self.baseline)])
        sign = -1 if Measure.parse(measure).lower_is_better else 1
        gains = sign * (values[0] - values[1])
        mean, base = (float(v.mean()) if len(v) else float("nan") for v in values)
        marks = [self.mark(d, system, measure) for d in shared]
        better, worse = int((gains > TIE).sum()), int((gains < -TIE).sum())
        relative = (mean - base) / base if base else None
        return AgainstBaseline(
            len(shared), mean, mean - base, relative, better, len(shared) - better - worse, worse,
            marks.count("+"), marks.count("-"),
        )  # fmt: skip

    @property
    def rows(self) -> tuple[str, ...]:
        """The data sets that count, with a group in place of its members."""
        inside = {m for members in self.groups.values() for m in members}
        return (*(d for d in self.datasets if d not in inside), *self.groups)

    def differences(self, dataset: str, measure: str) -> dict[str, tuple[Difference, float]]:
        """How each system on a data set differs from the baseline, with its p-value corrected for their number."""
        if (dataset, measure) not in self._tested:
            self._tested[dataset, measure] = self._test_all(dataset, measure)
        return self._tested[dataset, measure]

    def _test_all(self, dataset: str, measure: str) -> dict[str, tuple[Difference, float]]:
        base = self.results[dataset, self.baseline].evaluation.by_query[measure]
        differences = {}
        for system in (s for s in self.systems[1:] if self.has(dataset, s)):
            other = self.results[dataset, system].evaluation.by_query[measure]
            both = [q for q in base if q in other]
            if not both:
                raise VizslaError(f"{system} and {self.baseline} have no judged query of {dataset} in common")
            differences[system] = compare_values({q: base[q] for q in both}, {q: other[q] for q in both}, self.test)
        adjusted = corrected([d.p for d in differences.values()], self.correction)
        return {system: (d, p) for (system, d), p in zip(differences.items(), adjusted, strict=True)}

    def mark(self, dataset: str, system: str, measure: str, alpha: float = 0.05) -> str:
        """`+` or `-` if a system is significantly better or worse than the baseline, else an empty text.

        It is empty, too, for a group of data sets, if the system has no results on the data set, and if the convention
        leaves out queries without results and the systems leave out different ones.
        """
        if system == self.baseline or dataset in self.groups or not self.has(dataset, system):
            return ""
        ours, base = (self.results[dataset, s].evaluation.by_query[measure] for s in (system, self.baseline))
        difference, p = self.differences(dataset, measure)[system]
        if p >= alpha or ours.keys() != base.keys():  # means over different queries cannot be tested
            return ""
        return "+" if (difference.mean > 0) != Measure.parse(measure).lower_is_better else "-"
