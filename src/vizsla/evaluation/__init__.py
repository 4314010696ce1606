"""Runs to findings: figures by named conventions, significance, agreement, answers."""

from __future__ import annotations

from vizsla.evaluation.agreement import consistency_curve, consistency_factor, overlap, rank_biased_overlap, rbo
from vizsla.evaluation.answers import accuracy, answer_rank, has_answer
from vizsla.evaluation.asked import Judging, QuestionSet
from vizsla.evaluation.cache import Cache, default_folder
from vizsla.evaluation.compare import Comparison, compare
from vizsla.evaluation.conventions import CONVENTIONS, OF_ANSWERS, Convention
from vizsla.evaluation.depths import AtDepth, at_depths
from vizsla.evaluation.figures import Evaluation, evaluate
from vizsla.evaluation.interleaving import Consistency, Interleaving, check_common, consistency_of, interleave_all
from vizsla.evaluation.pools import GRID, Pools, Weighed, choose_weight
from vizsla.evaluation.shuffling import Shuffled, before_and_after, shuffled
from vizsla.evaluation.significance import CORRECTIONS, TESTS, Difference, compare_values, corrected
from vizsla.evaluation.systems import (
    DEPTH,
    Outcome,
    answer,
    answer_figures,
    answer_qrels,
    answer_ranks,
    evaluate_index,
    evaluate_model,
)
from vizsla.evaluation.tune import Setting, Tuned, settings_of, tune, tune_fusion

__all__ = [
    "CONVENTIONS",
    "CORRECTIONS",
    "DEPTH",
    "GRID",
    "OF_ANSWERS",
    "TESTS",
    "AtDepth",
    "Cache",
    "Comparison",
    "Consistency",
    "Convention",
    "Difference",
    "Evaluation",
    "Interleaving",
    "Judging",
    "Outcome",
    "Pools",
    "QuestionSet",
    "Setting",
    "Shuffled",
    "Tuned",
    "Weighed",
    "accuracy",
    "answer",
    "answer_figures",
    "answer_qrels",
    "answer_rank",
    "answer_ranks",
    "at_depths",
    "before_and_after",
    "check_common",
    "choose_weight",
    "compare",
    "compare_values",
    "consistency_curve",
    "consistency_factor",
    "consistency_of",
    "corrected",
    "default_folder",
    "evaluate",
    "evaluate_index",
    "evaluate_model",
    "has_answer",
    "interleave_all",
    "overlap",
    "rank_biased_overlap",
    "rbo",
    "settings_of",
    "shuffled",
    "tune",
    "tune_fusion",
]
