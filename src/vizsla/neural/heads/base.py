"""What all heads share, and their registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from vizsla.errors import VizslaError
from vizsla.neural.onnx_graph import EncoderGraph
from vizsla.spec import Registry

if TYPE_CHECKING:
    from torch import nn

RULED_OUT = -1e4
"""The bias of terms that never get a weight; no logit of theirs is worked out."""


class Output(NamedTuple):
    """What comes out of a graph: the node, the name it gets, and its width, a number or a name of ONNX's.

    `per_token`: there is a row for each token, and not for each text.
    """

    node: str
    name: str
    width: int | str
    per_token: bool = False


class Head(ABC):
    """A head of a network, for onnxruntime and for torch."""

    gives: ClassVar[str]
    """The method of a running network that gives what the head makes: weights, vectors, embeddings, ..."""
    reads_pairs: ClassVar[bool] = False
    """Whether a text is a query and a document, which token types tell apart."""
    reads_first: ClassVar[bool] = False
    """Whether the head reads the state of a text's first token alone."""

    @abstractmethod
    def outputs(self, graph: EncoderGraph, *, special_tokens: Sequence[int], pooling: str) -> list[Output]:
        """Add the head to a graph. `special_tokens`: token ids without a weight. `pooling`: as in `cls+mean`."""

    @abstractmethod
    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:
        """The network of torch over an encoder; its shape is that of the weights, which are not copied yet."""


HEADS = Registry[Head]("network head", package="vizsla.neural.heads", example="unicoil")


def expect_head(head: str, gives: str) -> None:
    """Refuse a network whose head does not give weights, vectors, embeddings, ..."""
    if HEADS[head].make().gives != gives:
        right = " or ".join(entry.name for entry in HEADS if entry.make().gives == gives)
        raise VizslaError(f"this network has the head {head}, and only {right} gives {gives}")
