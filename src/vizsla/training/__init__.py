"""Text to models: training recipes, the kinds of models that can be trained, and the training loop.

Importing this package does not import torch; names are imported when they are first used. The loop and its arrays
(`Trainer`, `Distributed`, `TokenCorpus`, the pairs, dev sets and objectives) need torch, transformers, accelerate and
numpy, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vizsla.lazy import lazy_names

if TYPE_CHECKING:
    from vizsla.training.adaptation import adaptation_recipe
    from vizsla.training.arrays.augmenter import (
        AugmenterData,
        AugmenterDev,
        AugmenterPairs,
        BM25Rows,
        MixedPairs,
        QueryTerms,
    )
    from vizsla.training.arrays.cross_encoder import CrossEncoderData, CrossEncoderDev, CrossEncoderPairs
    from vizsla.training.arrays.term_targets import TermDev, TermTargets
    from vizsla.training.kind import TRAINED_KINDS, TrainedKind, TrainingInputs
    from vizsla.training.loop.distributed import Distributed
    from vizsla.training.loop.masked_lm import train_masked_lm
    from vizsla.training.loop.objectives import (
        AugmenterObjective,
        ContrastiveObjective,
        DualObjective,
        GroupObjective,
        RegressionObjective,
        SparseObjective,
    )
    from vizsla.training.loop.trainer import Trainer, TrainingResult
    from vizsla.training.recipe import TrainingRecipe, load_training_recipe, training_recipe_names
    from vizsla.training.run import Trained, prepared_recipe, resumed_recipe, train
    from vizsla.training.settings import (
        AugmenterLoss,
        ContrastiveLoss,
        CountSettings,
        CropSettings,
        DenseLoss,
        GroupLoss,
        SparseLoss,
        TrainingSettings,
    )
    from vizsla.training.sources.dev_set import DevSet
    from vizsla.training.sources.pairs import CroppedPairs, Crops, MinedPairs, ScoredPairs
    from vizsla.training.sources.token_corpus import TokenCorpus
    from vizsla.training.sources.topics import TopicPairs

_HOMES = {
    "adaptation": ("adaptation_recipe",),
    "arrays.augmenter": ("AugmenterData", "AugmenterDev", "AugmenterPairs", "BM25Rows", "MixedPairs", "QueryTerms"),
    "arrays.cross_encoder": ("CrossEncoderData", "CrossEncoderDev", "CrossEncoderPairs"),
    "sources.dev_set": ("DevSet",),
    "sources.pairs": ("CroppedPairs", "Crops", "MinedPairs", "ScoredPairs"),
    "arrays.term_targets": ("TermDev", "TermTargets"),
    "sources.token_corpus": ("TokenCorpus",),
    "sources.topics": ("TopicPairs",),
    "kind": ("TRAINED_KINDS", "TrainedKind", "TrainingInputs"),
    "loop.distributed": ("Distributed",),
    "loop.masked_lm": ("train_masked_lm",),
    "loop.objectives": (
        "AugmenterObjective", "ContrastiveObjective", "DualObjective", "GroupObjective", "RegressionObjective",
        "SparseObjective",
    ),
    "loop.trainer": ("Trainer", "TrainingResult"),
    "recipe": ("TrainingRecipe", "load_training_recipe", "training_recipe_names"),
    "run": ("Trained", "prepared_recipe", "resumed_recipe", "train"),
    "settings": (
        "AugmenterLoss", "ContrastiveLoss", "CountSettings", "CropSettings", "DenseLoss", "GroupLoss", "SparseLoss",
        "TrainingSettings",
    ),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "TRAINED_KINDS",
    "AugmenterData",
    "AugmenterDev",
    "AugmenterLoss",
    "AugmenterObjective",
    "AugmenterPairs",
    "BM25Rows",
    "ContrastiveLoss",
    "ContrastiveObjective",
    "CountSettings",
    "CropSettings",
    "CroppedPairs",
    "Crops",
    "CrossEncoderData",
    "CrossEncoderDev",
    "CrossEncoderPairs",
    "DenseLoss",
    "DevSet",
    "Distributed",
    "DualObjective",
    "GroupLoss",
    "GroupObjective",
    "MinedPairs",
    "MixedPairs",
    "QueryTerms",
    "RegressionObjective",
    "ScoredPairs",
    "SparseLoss",
    "SparseObjective",
    "TermDev",
    "TermTargets",
    "TokenCorpus",
    "TopicPairs",
    "Trained",
    "TrainedKind",
    "Trainer",
    "TrainingInputs",
    "TrainingRecipe",
    "TrainingResult",
    "TrainingSettings",
    "adaptation_recipe",
    "load_training_recipe",
    "prepared_recipe",
    "resumed_recipe",
    "train",
    "train_masked_lm",
    "training_recipe_names",
]

__getattr__ = lazy_names(__name__, _MODULE_OF)
