"""How an encoder with its own tokenizer reads texts, and what becomes of the states of their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

POOLINGS = ("mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len")
"""How the states of tokens become one vector: their mean, the first state, the maximum of each channel, the last state,
their mean weighted by position, their sum divided by the square root of their number."""
SPLADE_POOLINGS = ("max", "sum", "log1p")
"""How the logits of tokens become weights of terms: the highest or the sum of log(1 + ReLU(logit)); with log1p the
logarithm is taken twice."""
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid", "Softplus", "LeakyReLU", "ELU", "Softsign")


@dataclass(frozen=True)
class TokenizerOptions:
    """How queries, or documents, become tokens.

    `prompt`: put before each text. `length`: how many tokens are read. `special_tokens`: whether the tokenizer adds its
    special tokens. `pad_with_mask`: whether texts are padded to the length with the mask token. `token_types`: whether
    the text behind the first separator gets the token type 1.
    """

    prompt: str = ""
    length: int = 512
    special_tokens: bool = True
    pad_with_mask: bool = False
    token_types: bool = False


@dataclass(frozen=True)
class Layer:
    """A layer after pooling: `linear`, with an activation, `norm`, a layer normalization, or `unit`, to a length of 1.

    `place`: the folder of its arrays inside the encoder's, empty for the encoder's own file. `name`: what their names
    begin with. `width`: how many numbers come out, 0 for as many as go in.
    """

    kind: str
    place: str = ""
    name: str = ""
    activation: str = "Identity"
    width: int = 0


def known(texts: Sequence[str], tokens: Callable[[Sequence[str]], list[list[int]]], unknown: int | None) -> np.ndarray:
    """[texts] which have a token that the tokenizer knows; those with an ASCII letter or digit are taken to.

    >>> known(["dog", "?", "x ⁂", "⁂⁂", ""], lambda some: [[7] if "?" in t else [0] * len(t) for t in some], 0).tolist()
    [True, True, True, False, False]
    """
    has_token = np.array([any(c.isascii() and c.isalnum() for c in text) for text in texts], bool)
    rest = np.flatnonzero(~has_token).tolist()
    if rest:
        has_token[rest] = [not {unknown}.issuperset(row) for row in tokens([texts[i].strip() for i in rest])]
    return has_token
