"""Evaluate runs: measures by named conventions, significance, agreement, answer accuracy, tuning."""

from __future__ import annotations

from vizsla.evaluation.agreement import consistency_curve, consistency_factor, overlap, rank_biased_overlap, rbo
from vizsla.evaluation.answers import (
    accuracy,
    answer_accuracy,
    answer_qrels,
    answer_rank,
    answer_ranks,
    has_answer,
    mean_accuracy,
)
from vizsla.evaluation.figures import ANSWER_CONVENTION, CONVENTIONS, Convention, Evaluation, evaluate
from vizsla.evaluation.interleaving import (
    Consistency,
    Interleaving,
    check_common_queries,
    consistency_of,
    interleave_all,
)
from vizsla.evaluation.mining import MinedPassages, mine_passages
from vizsla.evaluation.questions import QuestionMeasures, QuestionSet
from vizsla.evaluation.retrieval import (
    DEPTH,
    DepthResult,
    EvaluatedRun,
    ImitationPool,
    evaluate_at_depths,
    evaluate_model,
    evaluate_retriever,
    fit_to_dataset,
    retrieve,
)
from vizsla.evaluation.shuffling import ShuffleEffect, compare_shuffled, shuffle_words
from vizsla.evaluation.significance import CORRECTIONS, TESTS, Difference, compare_values, corrected
from vizsla.evaluation.systems import Cache, Comparison, SystemResult, compare, default_folder
from vizsla.evaluation.tuning import (
    GRID,
    ChosenWeight,
    Parameter,
    QuestionPools,
    TunedModel,
    choose_weight,
    tunable_parameters,
    tune,
    tune_fusion,
)

__all__ = [
    "ANSWER_CONVENTION",
    "CONVENTIONS",
    "CORRECTIONS",
    "DEPTH",
    "GRID",
    "TESTS",
    "Cache",
    "ChosenWeight",
    "Comparison",
    "Consistency",
    "Convention",
    "DepthResult",
    "Difference",
    "EvaluatedRun",
    "Evaluation",
    "ImitationPool",
    "Interleaving",
    "MinedPassages",
    "Parameter",
    "QuestionMeasures",
    "QuestionPools",
    "QuestionSet",
    "ShuffleEffect",
    "SystemResult",
    "TunedModel",
    "accuracy",
    "answer_accuracy",
    "answer_qrels",
    "answer_rank",
    "answer_ranks",
    "check_common_queries",
    "choose_weight",
    "compare",
    "compare_shuffled",
    "compare_values",
    "consistency_curve",
    "consistency_factor",
    "consistency_of",
    "corrected",
    "default_folder",
    "evaluate",
    "evaluate_at_depths",
    "evaluate_model",
    "evaluate_retriever",
    "fit_to_dataset",
    "has_answer",
    "interleave_all",
    "mean_accuracy",
    "mine_passages",
    "overlap",
    "rank_biased_overlap",
    "rbo",
    "retrieve",
    "shuffle_words",
    "tunable_parameters",
    "tune",
    "tune_fusion",
]
