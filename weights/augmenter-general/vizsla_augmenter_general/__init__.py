"""The weights of the augmenter general, in the folder model. Vizsla reads them by name: --expand general."""

from __future__ import annotations
