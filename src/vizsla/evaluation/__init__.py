"""Runs to findings: figures by named conventions."""

from __future__ import annotations

from vizsla.evaluation.evaluate import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
