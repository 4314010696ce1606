"""Measures as values, in the notation of ir_measures: nDCG@10, R@100, RR@10, AP, P(rel=2)@5."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.numbers import short, whole_number
from vizsla.spec import split_options

if TYPE_CHECKING:
    import ir_measures

DEFAULT_MEASURES = "nDCG@10 R@100"

ALIASES = {"NDCG": "nDCG", "MAP": "AP", "MRR": "RR", "Recall": "R", "Precision": "P", "RPrec": "Rprec"}
CUT = ("P", "R", "R_cap", "Success", "Hole", "Judged")
"""Measures that need a cutoff."""
OWN = ("nDCG", "AP", "RR", "Rprec", *CUT)
"""Measures computed here; ir_measures computes all others."""
GRADED = ("AP", "RR", "Rprec", "P", "R", "R_cap", "Success")
"""Measures that take a minimum grade of relevant documents."""
OTHERS = (
    "AP_IA", "Accuracy", "BPM", "Bpref", "Compat", "ERR", "ERR_IA", "INSQ", "INST", "IPrec", "NERR10", "NERR11",
    "NERR8", "NERR9", "NRBP", "NumQ", "NumRel", "NumRelRet", "NumRet", "P_IA", "RBP", "SDCG", "SetAP", "SetF", "SetP",
    "SetR", "SetRelP", "StRecall", "alpha_DCG", "alpha_nDCG", "infAP", "nERR_IA", "nNRBP",
)  # fmt: skip
"""Names of ir_measures' other measures, so that they are not reported as typing errors if it is not installed."""
MOST_CUTOFF = 1_000_000_000

_NOTATION = re.compile(r"(?P<name>[^\W\d]\w*)(?:\((?P<options>[^()]*)\))?(?:@(?P<cutoff>\d+))?")
_EXAMPLE = "expected something like nDCG@10 or R@100"


@dataclass(frozen=True)
class Measure:
    """A measure: its name, its cutoff and the minimum grade of a relevant document.

    `R_cap@k` is BEIR's capped recall. `Hole@k` is the share of the first k documents without a judgement for any query,
    as the beir package computes it; `Hole(judged='query')@k` is the share without a judgement for the query itself.

    >>> str(Measure.parse("nDCG@10")), Measure.parse("MRR@10") == Measure.parse("RR@10")
    ('nDCG@10', True)
    """

    name: str
    cutoff: int | None = None
    rel: int = 1
    rest: str = ""
    """Options that only ir_measures understands, in its notation."""

    @classmethod
    def parse(cls, text: str) -> Measure:
        """A measure from its text, as in `nDCG@10` or `P(rel=2)@5`."""
        match = _NOTATION.fullmatch(text.strip())
        name = ALIASES.get(match["name"], match["name"]) if match else ""
        if match and name in OWN:
            cutoff = _cutoff(match["cutoff"], text)
            if cutoff is None and name in CUT:
                raise VizslaError(f"{short(text)} is not a measure: {name} needs a cutoff, as in {name}@10")
            measure = cls._own(name, cutoff, (match["options"] or "").replace(" ", "").replace('"', "'"))
            if measure is not None:
                return measure
            if name in ("Hole", "R_cap", "Rprec"):
                raise VizslaError(f"{short(text)} is not a measure; {_EXAMPLE}")
        return cls._elsewhere(text)

    @classmethod
    def _own(cls, name: str, cutoff: int | None, options: str) -> Measure | None:
        """A measure that is computed here; None if it is not computed here with these options."""
        if name == "Rprec" and cutoff is not None:
            return None
        if not options or (name == "Hole" and options == "judged='corpus'"):
            return cls(name, cutoff)
        if name == "Hole" and options == "judged='query'":
            return cls(name, cutoff, rest=options)
        grade = re.fullmatch(r"rel=([0-9]{1,6})", options)
        return cls(name, cutoff, int(grade[1])) if grade and name in GRADED else None

    @classmethod
    def _elsewhere(cls, text: str) -> Measure:
        """A measure that only ir_measures computes."""
        try:
            import ir_measures
        except ModuleNotFoundError:  # where trec_eval would have to be compiled, it does not come with Vizsla
            raise _not_here(text) from None
        pipeline: Any = ir_measures.DefaultPipeline
        try:
            known = ir_measures.parse_measure(text)
            supported = bool(pipeline.supports(known))
        except (ValueError, SyntaxError, NameError, TypeError, AssertionError, KeyError):
            names = sorted({*ir_measures.measures.registry, *OWN})
            name = text.partition("@")[0].partition("(")[0]
            if name in names:
                raise VizslaError(f"{short(text)} is not a measure; {_EXAMPLE}") from None
            raise UnknownNameError("measure", name, names) from None
        if not supported:
            raise VizslaError(f"{short(text)} needs a package that is not installed here (see ir_measures' providers)")
        return cls(str(known.NAME), rest=str(known))

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller value is better."""
        return self.name == "Hole"

    @property
    def is_own(self) -> bool:
        """Whether the measure is computed here, without ir_measures."""
        return self.name in OWN and (not self.rest or self.name == "Hole")

    def __str__(self) -> str:
        if not self.is_own:
            return self.rest
        option = f"rel={self.rel}" if self.rel != 1 else self.rest
        return self.name + (f"({option})" if option else "") + (f"@{self.cutoff}" if self.cutoff else "")

    @property
    def implementation(self) -> ir_measures.measures.Measure:
        """The measure object of ir_measures."""
        import ir_measures

        return ir_measures.parse_measure(str(self))


def parse_measures(text: str | Sequence[str | Measure]) -> list[Measure]:
    """Measures from a text that separates them by blanks or commas, or from a list.

    >>> [str(measure) for measure in parse_measures("nDCG@10, R@100 MRR@10")]
    ['nDCG@10', 'R@100', 'RR@10']
    """
    names = split_options(text, " ,\t\n") if isinstance(text, str) else list(text)
    if not names:
        raise VizslaError(f"no measure was named; {_EXAMPLE}")
    return list(dict.fromkeys(n if isinstance(n, Measure) else Measure.parse(n) for n in names))


def _cutoff(digits: str | None, text: str) -> int | None:
    if digits is None:
        return None
    with suppress(ValueError):
        if 0 < (cutoff := whole_number(digits)) <= MOST_CUTOFF:
            return cutoff
    raise VizslaError(f"{short(text)} is not a measure: a cutoff goes from 1 to {MOST_CUTOFF:,}")


def _not_here(text: str) -> VizslaError:
    """The error for a measure that is not computed here if ir_measures is not installed."""
    name = text.partition("@")[0].partition("(")[0]
    name = ALIASES.get(name, name)
    if name not in (*OWN, *OTHERS):
        return UnknownNameError("measure", name, (*OWN, *OTHERS))
    if name in OWN and "(" not in text:
        return VizslaError(f"{short(text)} is not a measure; {_EXAMPLE}")
    return VizslaError(
        f"{short(text)} is not one of the built-in measures ({', '.join(OWN)}); others need ir_measures, which is not "
        "installed: pip install ir_measures"
    )
