"""Rankings as data: runs, judgements, measures, fusion."""

from __future__ import annotations

from vizsla.runs.fusion import FUSIONS, NORMALISATIONS, Fusion, fuse
from vizsla.runs.measures import DEFAULT_MEASURES, Measure, parse_measures
from vizsla.runs.qrels import Qrels
from vizsla.runs.run import Ranking, Run, read_run

__all__ = [
    "DEFAULT_MEASURES",
    "FUSIONS",
    "NORMALISATIONS",
    "Fusion",
    "Measure",
    "Qrels",
    "Ranking",
    "Run",
    "fuse",
    "parse_measures",
    "read_run",
]
