"""Heads: the layers on top of an encoder's states. Each head is a file of this folder that registers itself.

Looking up a head needs neither torch nor onnx; building one does.
"""

from __future__ import annotations

from vizsla.neural.chunks import SPECIAL_TOKENS
from vizsla.neural.heads.base import HEADS, Head, Output, expect_head

__all__ = ["HEADS", "SPECIAL_TOKENS", "Head", "Output", "expect_head"]
