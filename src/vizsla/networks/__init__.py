"""Token ids to vectors in torch: the networks behind learned models. Needs the extra `train`."""

from __future__ import annotations

from vizsla.networks.splade import Splade, TiedHead
from vizsla.networks.unicoil import UniCoil

__all__ = ["Splade", "TiedHead", "UniCoil"]
