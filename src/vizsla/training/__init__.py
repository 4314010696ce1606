"""Text to models: packed corpora, crops, losses, gradient caching. Needs the extra `train`.

Works where only torch, transformers, sentence-transformers, accelerate and numpy are; what needs more comes as arrays.
"""

from __future__ import annotations

from vizsla.training.caching import Chunk, cached_backward
from vizsla.training.corpus import TokenCorpus
from vizsla.training.crops import Crops, chunked
from vizsla.training.losses import flops, info_nce, quadratic_rise

__all__ = ["Chunk", "Crops", "TokenCorpus", "cached_backward", "chunked", "flops", "info_nce", "quadratic_rise"]
