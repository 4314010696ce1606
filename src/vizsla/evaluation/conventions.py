"""Conventions: how ties are ordered, whether own ids count, and which queries count.

The same run gives different figures under different conventions. Each has a name that is printed with its figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from vizsla.errors import UnknownNameError

# What the beir package computes itself and not through trec_eval: over all judged queries, ties in the run's order.
_BEIR_ITSELF = ("RR", "R_cap", "Hole", "Success")


@dataclass(frozen=True)
class Convention:
    """How figures are computed.

    `anserini`: trec_eval with -c on a run without own ids (-removeQuery): every judged query counts, with 0 where the
    run has nothing; scores are compared as 32-bit floats, equal ones go by document id descending.

    `beir`: what the beir package prints. nDCG, AP, R and P as trec_eval has them, but over the queries that the run
    has; RR, R_cap, Hole and Success over all judged queries, with equal scores in the order of the run; own ids
    are left out.

    `trec`: trec_eval -c on the run as it is.

    >>> Convention.parse("beir").counts_missing("nDCG"), Convention.parse("beir").counts_missing("RR")
    (False, True)
    """

    name: str
    own_ids: bool
    """Whether documents whose id is the query's own are kept."""
    package: bool = False
    """Whether figures are computed as the beir package does."""

    @classmethod
    def parse(cls, name: str) -> Convention:
        if name not in CONVENTIONS:
            raise UnknownNameError("convention", name, tuple(CONVENTIONS))
        return CONVENTIONS[name]

    def __str__(self) -> str:
        return self.name

    def counts_missing(self, measure: str) -> bool:
        """Whether judged queries that the run does not have count, with 0."""
        return not self.package or measure in _BEIR_ITSELF

    def keeps_ties(self, measure: str) -> bool:
        """Whether equal scores keep the order of the run; else they are ordered by descending document id."""
        return self.package and measure in _BEIR_ITSELF


CONVENTIONS = {
    c.name: c
    for c in (
        Convention("anserini", own_ids=False),
        Convention("beir", own_ids=False, package=True),
        Convention("trec", own_ids=True),
    )
}
ANSWER_CONVENTION = "trec"
"""The convention for judgements by answers: a passage with the id of the question counts, too."""
