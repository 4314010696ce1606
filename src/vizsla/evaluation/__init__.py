"""Runs to findings: figures by named conventions, significance, agreement, answers."""

from __future__ import annotations

from vizsla.evaluation.agreement import consistency_curve, consistency_factor, overlap, rank_biased_overlap, rbo
from vizsla.evaluation.answer_matching import accuracy, answer_rank, has_answer
from vizsla.evaluation.questions import Judging, QuestionSet
from vizsla.evaluation.cache import Cache, default_folder
from vizsla.evaluation.compare import Comparison, compare
from vizsla.evaluation.conventions import CONVENTIONS, ANSWER_CONVENTION, Convention
from vizsla.evaluation.rerank_depths import DepthResult, evaluate_at_depths
from vizsla.evaluation.figures import Evaluation, evaluate
from vizsla.evaluation.interleaving import Consistency, Interleaving, check_common_queries, consistency_of, interleave_all
from vizsla.evaluation.pools import GRID, Pools, Weighed, choose_weight
from vizsla.evaluation.shuffling import Shuffled, compare_shuffled, shuffled
from vizsla.evaluation.significance import CORRECTIONS, TESTS, Difference, compare_values, corrected
from vizsla.evaluation.retrieval import (
    DEPTH,
    Outcome,
    answer,
    answer_accuracy,
    answer_qrels,
    answer_ranks,
    evaluate_retriever,
    evaluate_model,
)
from vizsla.evaluation.tune import Setting, Tuned, tunable_parameters, tune, tune_fusion

__all__ = [
    "CONVENTIONS",
    "CORRECTIONS",
    "DEPTH",
    "GRID",
    "ANSWER_CONVENTION",
    "TESTS",
    "DepthResult",
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
    "answer_accuracy",
    "answer_qrels",
    "answer_rank",
    "answer_ranks",
    "evaluate_at_depths",
    "compare_shuffled",
    "check_common_queries",
    "choose_weight",
    "compare",
    "compare_values",
    "consistency_curve",
    "consistency_factor",
    "consistency_of",
    "corrected",
    "default_folder",
    "evaluate",
    "evaluate_retriever",
    "evaluate_model",
    "has_answer",
    "interleave_all",
    "overlap",
    "rank_biased_overlap",
    "rbo",
    "tunable_parameters",
    "shuffled",
    "tune",
    "tune_fusion",
]
