"""Text to models: packed corpora, crops, losses, gradient caching, the loop. Needs the extra `train`.

Works where only torch, transformers, sentence-transformers, accelerate and numpy are; what needs more comes as arrays.
"""

from __future__ import annotations

from vizsla.training.augmentation import AskedDev, AskedPairs, Collection, MixedPairs, Own, asked_well
from vizsla.training.batches import Pairs, Sides
from vizsla.training.caching import cached_backward
from vizsla.training.corpus import TokenCorpus
from vizsla.training.crops import CroppedPairs, Crops
from vizsla.training.cross import CrossDev, CrossMaterial, CrossPairs, answered_first, group_loss
from vizsla.training.dev import DevSet
from vizsla.training.loop import Outcome, Trainer
from vizsla.training.losses import contrast, flops, info_nce, inner_products, margins, quadratic_rise
from vizsla.training.masking import train_masked
from vizsla.training.pairs import MinedPairs
from vizsla.training.prepared import Prepared
from vizsla.training.settings import Settings
from vizsla.training.team import Team

__all__ = [
    "AskedDev",
    "AskedPairs",
    "Collection",
    "CroppedPairs",
    "Crops",
    "CrossDev",
    "CrossMaterial",
    "CrossPairs",
    "DevSet",
    "MinedPairs",
    "MixedPairs",
    "Outcome",
    "Own",
    "Pairs",
    "Prepared",
    "Settings",
    "Sides",
    "Team",
    "TokenCorpus",
    "Trainer",
    "answered_first",
    "asked_well",
    "cached_backward",
    "contrast",
    "flops",
    "group_loss",
    "info_nce",
    "inner_products",
    "margins",
    "quadratic_rise",
    "train_masked",
]
