"""Rankings as data: runs, judgements, measures."""

from __future__ import annotations

from vizsla.runs.measures import DEFAULT_MEASURES, Measure, parse_measures
from vizsla.runs.run import Qrels, Run

__all__ = ["DEFAULT_MEASURES", "Measure", "Qrels", "Run", "parse_measures"]
