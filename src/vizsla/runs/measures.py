"""Measures as values, in the notation of ir_measures: nDCG@10, R@100, RR@10, AP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vizsla.errors import UnknownNameError, VizslaError

DEFAULT_MEASURES = "nDCG@10 R@100"


@dataclass(frozen=True)
class Measure:
    """A measure by its name; equal names are equal measures.

    >>> str(Measure.parse("nDCG@10")), Measure.parse("R@100") == Measure.parse("R@100")
    ('nDCG@10', True)
    """

    name: str

    @classmethod
    def parse(cls, text: str) -> Measure:
        import ir_measures

        try:
            return cls(str(ir_measures.parse_measure(text)))
        except (ValueError, SyntaxError, NameError, TypeError, AssertionError, KeyError):
            names = sorted(ir_measures.measures.registry)
            name = text.partition("@")[0].partition("(")[0]
            if name in names:
                raise VizslaError(f"{text!r} is no measure; expected something like nDCG@10 or R@100") from None
            raise UnknownNameError("measure", name, names) from None

    def __str__(self) -> str:
        return self.name

    @property
    def implementation(self) -> Any:
        """The measure as ir_measures has it."""
        import ir_measures

        return ir_measures.parse_measure(self.name)


def parse_measures(text: str | Sequence[str]) -> list[Measure]:
    """Measures from a text that separates them by blanks or commas."""
    names = text.replace(",", " ").split() if isinstance(text, str) else list(text)
    if not names:
        raise VizslaError(f"no measure was named; expected something like {DEFAULT_MEASURES!r}")
    return [Measure.parse(name) for name in names]
