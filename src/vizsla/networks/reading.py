"""How a text is put before an encoder that reads texts itself, and what becomes of the states of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

POOLINGS = ("mean", "first", "max", "last", "weighted", "root")
"""Of the states of tokens: their mean, the first, the highest of each channel, the last, their mean weighted by their
places, their sum divided by the root of how many they are."""
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid", "Softplus", "LeakyReLU", "ELU", "Softsign")


@dataclass(frozen=True)
class Reading:
    """How the texts of one side are read.

    `prompt`: what stands before each. `length`: how many tokens are read. `framed`: between the special tokens that the
    tokenizer adds. `filled`: up to the length with the mask token. `segments`: what follows the first separator is
    marked as a second text.
    """

    prompt: str = ""
    length: int = 512
    framed: bool = True
    filled: bool = False
    segments: bool = False


@dataclass(frozen=True)
class Layer:
    """What a pooled vector goes through: `linear`, with an activation, `norm`, or `unit`, to a length of 1.

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
    there = np.array([any(c.isascii() and c.isalnum() for c in text) for text in texts], bool)
    rest = np.flatnonzero(~there).tolist()
    if rest:
        there[rest] = [not {unknown}.issuperset(row) for row in tokens([texts[i].strip() for i in rest])]
    return there
