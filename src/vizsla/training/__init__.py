"""Text to models: training recipes, the kinds of models that can be trained, and the training loop.

No file of it loads torch when it is imported, and names are imported when they are first used. The loop and the sources
(`Trainer`, `Distributed`, `TokenCorpus`, the pairs, dev sets and objectives) need torch, transformers, accelerate and
numpy, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vizsla.lazy import lazy_names

if TYPE_CHECKING:
    from vizsla.training.adaptation import adaptation_recipe
    from vizsla.training.kind import TRAINED_KINDS, TrainedKind, TrainingInputs
    from vizsla.training.kinds.augmenter import (
        AugmenterData,
        AugmenterDev,
        AugmenterLoss,
        AugmenterObjective,
        AugmenterPairs,
        BM25Rows,
        MixedPairs,
        QueryTerms,
    )
    from vizsla.training.kinds.cross_encoder import (
        CrossEncoderData,
        CrossEncoderDev,
        CrossEncoderPairs,
        GroupLoss,
        GroupObjective,
    )
    from vizsla.training.kinds.deepct import CountSettings, RegressionObjective, TermDev, TermTargets
    from vizsla.training.kinds.learned_sparse import SparseLoss, SparseObjective, train_masked_lm
    from vizsla.training.loop.distributed import Distributed
    from vizsla.training.loop.objectives import ContrastiveLoss, ContrastiveObjective
    from vizsla.training.loop.trainer import Trainer, TrainingResult
    from vizsla.training.recipe import TrainingRecipe, load_training_recipe, training_recipe_names
    from vizsla.training.run import Trained, prepared_recipe, resumed_recipe, train
    from vizsla.training.settings import TrainingSettings
    from vizsla.training.sources.crops import CroppedPairs, Crops, CropSettings
    from vizsla.training.sources.dev_set import DevSet
    from vizsla.training.sources.pairs import MinedPairs, ScoredPairs
    from vizsla.training.sources.token_corpus import TokenCorpus
    from vizsla.training.sources.topics import DenseLoss, DualObjective, TopicPairs

_HOMES = {
    "adaptation": ("adaptation_recipe",),
    "kind": ("TRAINED_KINDS", "TrainedKind", "TrainingInputs"),
    "kinds.augmenter": (
        "AugmenterData", "AugmenterDev", "AugmenterLoss", "AugmenterObjective", "AugmenterPairs", "BM25Rows",
        "MixedPairs", "QueryTerms",
    ),
    "kinds.cross_encoder": (
        "CrossEncoderData", "CrossEncoderDev", "CrossEncoderPairs", "GroupLoss", "GroupObjective",
    ),
    "kinds.deepct": ("CountSettings", "RegressionObjective", "TermDev", "TermTargets"),
    "kinds.learned_sparse": ("SparseLoss", "SparseObjective", "train_masked_lm"),
    "loop.distributed": ("Distributed",),
    "loop.objectives": ("ContrastiveLoss", "ContrastiveObjective"),
    "loop.trainer": ("Trainer", "TrainingResult"),
    "recipe": ("TrainingRecipe", "load_training_recipe", "training_recipe_names"),
    "run": ("Trained", "prepared_recipe", "resumed_recipe", "train"),
    "settings": ("TrainingSettings",),
    "sources.crops": ("CropSettings", "CroppedPairs", "Crops"),
    "sources.dev_set": ("DevSet",),
    "sources.pairs": ("MinedPairs", "ScoredPairs"),
    "sources.token_corpus": ("TokenCorpus",),
    "sources.topics": ("DenseLoss", "DualObjective", "TopicPairs"),
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
