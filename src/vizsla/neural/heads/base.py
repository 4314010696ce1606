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
"""The bias of terms that never get a weight; their logits are not computed."""


class Output(NamedTuple):
    """An output of a graph: the node, its name, and its width, a number or the name of an ONNX dimension.

    `per_token`: it has one row per token instead of one per text.
    """

    node: str
    name: str
    width: int | str
    per_token: bool = False


class Head(ABC):
    """A head of a network, for onnxruntime and for torch."""

    gives: ClassVar[str]
    """The method of a running network that returns the head's output: weights, vectors, embeddings, ..."""
    reads_pairs: ClassVar[bool] = False
    """Whether a text is a query and a document, which token types tell apart."""
    reads_first: ClassVar[bool] = False
    """Whether the head reads the state of a text's first token alone."""

    @abstractmethod
    def outputs(self, graph: EncoderGraph, *, special_tokens: Sequence[int], pooling: str) -> list[Output]:
        """Add the head to a graph. `special_tokens`: token ids without a weight. `pooling`: as in `cls+mean`."""

    @abstractmethod
    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:
        """The torch module over an encoder, in the shape of the weights, which are not copied yet."""


HEADS = Registry[Head]("network head", package="vizsla.neural.heads", example="unicoil")


def expect_head(head: str, gives: str) -> None:
    """Refuse a network whose head does not give weights, vectors, embeddings, ..."""
    if HEADS[head].make().gives != gives:
        right = " or ".join(entry.name for entry in HEADS if entry.make().gives == gives)
        raise VizslaError(f"this network has the head {head}, and only {right} gives {gives}")
