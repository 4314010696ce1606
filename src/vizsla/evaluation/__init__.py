"""Runs to findings: figures by named conventions, significance, agreement, answers."""

from __future__ import annotations

from vizsla.evaluation.agreement import consistency_factor, overlap, rank_biased_overlap, rbo
from vizsla.evaluation.answers import accuracy, answer_rank, has_answer
from vizsla.evaluation.cache import Cache, default_folder
from vizsla.evaluation.compare import Comparison, compare
from vizsla.evaluation.conventions import CONVENTIONS, Convention
from vizsla.evaluation.figures import Evaluation, evaluate
from vizsla.evaluation.significance import CORRECTIONS, TESTS, Difference, compare_values, corrected
from vizsla.evaluation.systems import DEPTH, Outcome, answer, answer_figures, evaluate_index, evaluate_model
from vizsla.evaluation.tune import Setting, Tuned, settings_of, tune, tune_fusion

__all__ = [
    "CONVENTIONS",
    "CORRECTIONS",
    "DEPTH",
    "TESTS",
    "Cache",
    "Comparison",
    "Convention",
    "Difference",
    "Evaluation",
    "Outcome",
    "Setting",
    "Tuned",
    "accuracy",
    "answer",
    "answer_figures",
    "answer_rank",
    "compare",
    "compare_values",
    "consistency_factor",
    "corrected",
    "default_folder",
    "evaluate",
    "evaluate_index",
    "evaluate_model",
    "has_answer",
    "overlap",
    "rank_biased_overlap",
    "rbo",
    "settings_of",
    "tune",
    "tune_fusion",
]
