"""Cross-encoders: query and document are read as one text, and the head gives one score for the pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.neural.chunks import END, START, Batch, Chunk
from vizsla.neural.encoder import PackedBert, Padded, encoder_of
from vizsla.neural.heads.base import HEADS, Head, Output
from vizsla.neural.heads.dense import pooled
from vizsla.neural.lazy_torch import Module, nn, no_grad, torch
from vizsla.neural.onnx_graph import EncoderGraph
from vizsla.neural.weights import read_tensors

if TYPE_CHECKING:
    from torch import Tensor


HEAD = ("pooler.dense.weight", "pooler.dense.bias", "classifier.weight", "classifier.bias")
"""The arrays of a cross-encoder's head, under their names in transformers."""
RERANKER = "reranker.json"
"""The file that says how much of query and document a cross-encoder reads."""
LEAST = 4  # tokens: [CLS], two [SEP] and one of a text


def joint_ids(
    query: Sequence[int], document: Sequence[int], query_length: int, length: int, start: int = START, end: int = END
) -> list[int]:
    """Query and document between special tokens, cut to what is read of them.

    `query_length`: at most so many tokens of the query, its special tokens included. `length`: at most so many tokens
    of the pair; the rest of the document is cut off. Ids of special tokens are removed from the query, since the first
    [SEP] marks where the document begins.

    >>> joint_ids([7, 102, 8, 9], [5, 6, 5, 6], query_length=5, length=8)
    [101, 7, 8, 9, 102, 5, 6, 102]
    """
    query_ids = [int(i) for i in query if i != end][: max(min(query_length, length - 1) - 2, 0)]
    return [start, *query_ids, end, *map(int, document[: length - 3 - len(query_ids)]), end]


Texts = tuple[np.ndarray, np.ndarray]
"""The token ids of concatenated texts, and where each text begins, followed by where the last one ends."""


def joint_pairs(
    queries: Texts,
    documents: Texts,
    query_numbers: np.ndarray,
    document_numbers: np.ndarray,
    query_length: int,
    length: int,
    start: int = START,
    end: int = END,
) -> Texts:
    """The token ids of many pairs, given by the row numbers of their queries and documents; see `joint_ids`.

    >>> texts = np.array([7, 102, 8, 9, 5, 6, 5, 6]), np.array([0, 4, 8])
    >>> ids, starts = joint_pairs(texts, texts, np.array([0, 1]), np.array([1, 1]), query_length=5, length=8)
    >>> ids.tolist(), starts.tolist()
    ([101, 7, 8, 9, 102, 5, 6, 102, 101, 5, 6, 5, 102, 5, 6, 102], [0, 8, 16])
    """
    used, places = np.unique(query_numbers, return_inverse=True)
    most = max(min(query_length, length - 1) - 2, 0)
    given = [queries[0][queries[1][q] : queries[1][q + 1]] for q in used.tolist()]
    rows = [row[row != end][:most].astype(np.int64) for row in given]
    row_starts = np.cumsum([0, *map(len, rows)])
    query_sizes, query_starts = np.diff(row_starts)[places], row_starts[:-1][places]
    document_starts = documents[1][document_numbers]
    sizes = np.minimum(documents[1][document_numbers + 1] - document_starts, length - 3 - query_sizes)
    starts = np.concatenate([[0], np.cumsum(query_sizes + sizes + 3)])
    ids = np.full(starts[-1], end, np.int64)
    ids[starts[:-1]] = start
    _copy(ids, starts[:-1] + 1, np.concatenate([np.zeros(0, np.int64), *rows]), query_starts, query_sizes)
    _copy(ids, starts[:-1] + 2 + query_sizes, documents[0], document_starts, sizes)
    return ids, starts


def _copy(target: np.ndarray, to: np.ndarray, source: np.ndarray, begins: np.ndarray, sizes: np.ndarray) -> None:
    """Copy stretches of these sizes, which begin in the source at `begins` and in the target at `to`."""
    inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    target[np.repeat(to, sizes) + inside] = source[np.repeat(begins, sizes) + inside]


def one_label(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a cross-encoder with one score; two labels become one, the second minus the first."""
    renamed = dict(arrays)
    weight, bias = (renamed.get(name) for name in HEAD[2:])
    if weight is not None and bias is not None and len(weight) == 2:
        renamed |= {HEAD[2]: weight[1:] - weight[:1], HEAD[3]: bias[1:] - bias[:1]}
    return renamed


@HEADS.register("cross", help="One score for a query and a document that are read together.")
class CrossHead(Head):
    """A layer with tanh and a linear one over the state of the first token."""

    gives: ClassVar[str] = "scores"
    reads_pairs: ClassVar[bool] = True
    reads_first: ClassVar[bool] = True

    def outputs(self, graph: EncoderGraph, *, special_tokens: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        return [Output(_cross(graph), "scores", 1)]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:  # noqa: ARG002
        return Cross(encoder)


def _cross(g: EncoderGraph) -> str:
    """One score a text, from the state of its first token; in 32-bit floats, since it costs next to nothing."""
    first = pooled(g, "cls")
    for name in ("pooler.dense", "classifier"):
        layer = g("Add", g("MatMul", first, g.transposed(g.vector(name + ".weight"))), g.vector(name + ".bias"))
        first = g("Tanh", layer) if name == "pooler.dense" else layer
    return first


class Cross(Module):
    """The score of a pair, from the state of [CLS]: BERT's pooling layer with tanh, then a linear layer.

    A text is "[CLS] query [SEP] document [SEP]", see `joint_ids`; the tokens after the first [SEP] have token type 1.
    A new pooling layer is initialised with the identity.
    """

    kind = "cross"

    def __init__(self, encoder: PackedBert | Padded) -> None:
        super().__init__()
        if not isinstance(encoder, PackedBert) or encoder.config.type_vocab_size < 2:
            raise VizslaError("a cross-encoder needs token types for query and document; start from a BERT with two")
        self.encoder = encoder
        dense = nn.Linear(encoder.hidden, encoder.hidden)
        self.pooler = nn.ModuleDict({"dense": dense})
        self.classifier = nn.Linear(encoder.hidden, 1)
        nn.init.eye_(dense.weight)
        nn.init.normal_(self.classifier.weight, std=0.02)
        for layer in (dense, self.classifier):
            nn.init.zeros_(layer.bias)

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts, 1] the scores, in 32 bits also where the encoder runs in 16."""
        states = self.encoder(chunk, token_types_of(chunk))
        with torch.autocast(states.device.type, enabled=False):
            first = states[chunk.starts[:-1]].to(self.classifier.weight.dtype)
            scores: Tensor = self.classifier(torch.tanh(self.pooler["dense"](first)))
        return scores

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, 1] from the outputs for the chunks, in the order of the batch."""
        return torch.cat(list(outputs))[torch.argsort(batch.order)]

    @no_grad
    def take_head(self, arrays: Mapping[str, Any]) -> None:
        """Copy the head of a checkpoint, if it has one."""
        head = one_label({name.removeprefix("bert."): array for name, array in arrays.items()})
        own = dict(self.named_parameters())
        for name in HEAD:
            if name in head and head[name].shape == tuple(own[name].shape):
                own[name].copy_(torch.tensor(head[name]))


def token_types_of(chunk: Chunk, end: int = END) -> Tensor:
    """[tokens] 0 up to the first [SEP] of each text, 1 after it."""
    ends = (chunk.ids == end).long()
    before = ends.cumsum(0) - ends
    texts = (chunk.positions == 0).cumsum(0) - 1
    return (before - before[chunk.starts[:-1].long()][texts]).clamp(max=1)


def cross_encoder(folder: str | Path, dropout: float = 0.0) -> Cross:
    """A cross-encoder to train, from a transformers checkpoint: a BERT, or a cross-encoder with its head."""
    from vizsla.neural.torch_network import transformers

    path = Path(folder)
    if not (path / "config.json").is_file():
        raise InputError("there is no encoder to start from here (no config.json)", file=str(folder))
    options = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": 0.0}
    network = Cross(encoder_of(transformers().AutoModel.from_pretrained(path, **options)))
    network.take_head(head_arrays(path))
    return network


def keep_layers(network: Cross, count: int) -> Cross:
    """The network with only `count` of its encoder's layers, evenly spaced and including the last; 0 keeps all.

    6 of 12 layers are the second, the fourth and so on. The head still reads the layer it was trained on.
    """
    bert: Any = network.encoder
    layers = bert.encoder.layer
    if count > len(layers):
        raise VizslaError(f"network.layers is {count}, and the base model has {len(layers)} layers")
    if count:
        bert.encoder.layer = nn.ModuleList(layers[-(-(i + 1) * len(layers) // count) - 1] for i in range(count))
        bert.config.num_hidden_layers = count
    return network


def head_arrays(folder: Path) -> dict[str, Any]:
    """The arrays of a transformers checkpoint that is saved as safetensors; none otherwise."""
    return {
        name: array for file in sorted(folder.glob("model*.safetensors")) for name, array in read_tensors(file).items()
    }
