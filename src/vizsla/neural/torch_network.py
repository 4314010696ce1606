"""Inference with torch: the same networks that onnxruntime runs, from the same weight file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.neural.chunks import Batch, packed, visible_tokens
from vizsla.neural.device import torch_device
from vizsla.neural.encoder import encoder_of
from vizsla.neural.heads import HEADS, expect_head
from vizsla.neural.lazy_torch import inference_mode, nn, torch
from vizsla.neural.weights import read_weights

if TYPE_CHECKING:
    from torch import Tensor

_TEXTS = 4096  # prepared together
_TOKENS = 131_072, 4096  # encoded together by a GPU, and by the processor


def load(weights: dict[str, np.ndarray], kind: str, heads: int, pooling: str = "mean") -> nn.Module:
    """A network with a head of `HEADS`, in the shape of these arrays, which are named as in `weights.safetensors`."""
    library = transformers()
    vocabulary, hidden = weights["embeddings.word_embeddings.weight"].shape
    layers = 1 + max(int(m[1]) for n in weights if (m := re.match(r"encoder\.layer\.(\d+)\.", n)))
    config = library.BertConfig(
        vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=len(weights["encoder.layer.0.intermediate.dense.weight"]),
        max_position_embeddings=len(weights["embeddings.position_embeddings.weight"]),
        type_vocab_size=len(weights["embeddings.token_type_embeddings.weight"]),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    encoder = encoder_of(library.BertModel(config, add_pooling_layer=False))
    network = HEADS[kind].make().module(encoder, weights, pooling)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(torch.tensor(weights[plain_name(name)]))
    return network.eval()


def bert_model(config: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> Any:
    """A BERT of transformers without dropout, as a config.json describes it, with these arrays."""
    library = transformers()
    described = library.BertConfig(**{**config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    model = library.BertModel(described, add_pooling_layer=False).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(weights[name]))
    return model.eval()


def transformers() -> Any:
    """The transformers library, imported here because importing it takes seconds."""
    return import_module("transformers")


def plain_name(name: str) -> str:
    """The name of a parameter as in transformers: without the prefixes `encoder.` and `head.`."""
    return name.removeprefix("encoder.").removeprefix("head.")


class TorchNetwork:
    """A network in a folder. It runs in bfloat16 on a GPU and on processors that support it."""

    def __init__(
        self, folder: str | Path, kind: str, heads: int, pooling: str = "mean", device: str | None = None
    ) -> None:
        self.head = kind
        self.device = torch_device(device or "")
        self.network: Any = load(read_weights(folder), kind, heads, pooling).to(self.device)
        self.precision = fast_precision(self.device)

    def weights(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """The weight of each token of concatenated texts, aligned with the ids."""
        return self._of_tokens(ids, offsets, np.zeros(len(ids), np.float32))

    def token_vectors(self, ids: np.ndarray, offsets: np.ndarray, attended: np.ndarray | None = None) -> np.ndarray:
        """[tokens, width] the vector of each token of concatenated texts, aligned with the ids.

        `attended`: [texts] how many tokens of each text, from the first, are attended to; by default all.
        """
        expect_head(self.head, "token_vectors")
        vectors = np.zeros((len(ids), self.network.linear.out_features), np.float32)
        return self._of_tokens(ids, offsets, vectors, attended)

    def _of_tokens(
        self, ids: np.ndarray, offsets: np.ndarray, out: np.ndarray, attended: np.ndarray | None = None
    ) -> np.ndarray:
        """What the network gives for each token, put into an array in the order of the ids."""
        for first, batch, outputs in self._encoded(ids, offsets, attended):
            out[_places(first, batch, offsets)] = torch.cat(outputs).float().cpu().numpy()
        return out

    def coil_vectors(self, ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[tokens, width] the vectors of the tokens of concatenated texts, and [texts, width] those of the texts."""
        expect_head(self.head, "coil_vectors")
        tokens = np.zeros((len(ids), self.network.width), np.float32)
        texts = np.zeros((len(offsets) - 1, self.network.cls_width), np.float32)
        for first, batch, outputs in self._encoded(ids, offsets):
            parts = [self.network.split(output, chunk) for output, chunk in zip(outputs, batch.chunks, strict=True)]
            own, cls = (torch.cat(some).float().cpu().numpy() for some in zip(*parts, strict=True))
            tokens[_places(first, batch, offsets)] = own
            texts[first + batch.order.cpu().numpy()] = cls
        return tokens, texts

    def vectors(self, ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The vectors of concatenated texts: words, their weights, and where each text's begin."""
        words, weights, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)], [np.zeros(1, np.int64)]
        for _, batch, outputs in self._encoded(ids, offsets):
            rows = self.network.vectors(outputs, batch).float()
            texts, terms = rows.nonzero(as_tuple=True)
            words.append(terms.cpu().numpy())
            weights.append(rows[texts, terms].cpu().numpy())
            counts.append(torch.bincount(texts, minlength=len(rows)).cpu().numpy())
        return np.concatenate(words), np.concatenate(weights), np.cumsum(np.concatenate(counts))

    def embeddings(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """[texts, hidden] the dense vectors of concatenated texts."""
        expect_head(self.head, "embeddings")
        return self._rows(ids, offsets)

    def scores(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """[texts] the scores of concatenated texts, each of them a pair."""
        expect_head(self.head, "scores")
        return self._rows(ids, offsets).reshape(-1)

    def _rows(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        rows = [self.network.vectors(parts, batch).float().cpu() for _, batch, parts in self._encoded(ids, offsets)]
        return torch.cat(rows).numpy() if rows else np.zeros((0, 0), np.float32)

    def augmentations(self, ids: np.ndarray, offsets: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each text the weights of its tokens and how much is added of each term."""
        expect_head(self.head, "augmentations")
        augmentations = []
        for first, batch, outputs in self._encoded(ids, offsets):
            added, weights = (part.float().cpu().numpy() for part in self.network.vectors(outputs, batch))
            lengths = np.diff(offsets[first : first + len(added) + 1])
            augmentations += [(w[:n], a) for w, a, n in zip(weights, added, lengths.tolist(), strict=True)]
        return augmentations

    @inference_mode
    def _encoded(
        self, ids: np.ndarray, offsets: np.ndarray, attended: np.ndarray | None = None
    ) -> Iterator[tuple[int, Batch, list[Tensor]]]:
        """For some thousand texts at a time: the number of the first, the batch, and the outputs for its chunks."""
        for first in range(0, len(offsets) - 1, _TEXTS):
            bounds = offsets[first : first + _TEXTS + 1]
            lengths = torch.from_numpy(np.diff(bounds)).to(self.device)
            mask = torch.arange(int(lengths.max()), device=self.device) < lengths[:, None]
            flat = torch.from_numpy(ids[bounds[0] : bounds[-1]].astype(np.int64)).to(self.device)
            padded = flat.new_zeros(mask.shape).masked_scatter_(mask, flat)
            batch = packed(
                padded, mask, _TOKENS[self.device.type == "cpu"], side=1
            )  # at inference, every text is a document
            with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
                if attended is None:
                    yield first, batch, [self.network(chunk) for chunk in batch.chunks]
                else:
                    limits = torch.from_numpy(attended[first : first + _TEXTS]).to(self.device)
                    pairs = zip(batch.chunks, visible_tokens(batch, limits), strict=True)
                    yield first, batch, [self.network(chunk, visible) for chunk, visible in pairs]


def _places(first: int, batch: Batch, offsets: np.ndarray) -> np.ndarray:
    """Where the tokens of a batch, whose first text is number `first`, lie among those of all texts."""
    sizes = np.concatenate([c.starts.diff().cpu().numpy() for c in batch.chunks])
    starts = offsets[first + batch.order.cpu().numpy()]
    places: np.ndarray = np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    return places


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 in hardware; otherwise float32 is faster."""
    checks = [getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")]
    return device.type == "cuda" or any(check() for check in checks if check is not None)


def fast_precision(device: torch.device) -> torch.dtype:
    """The type of numbers that the device multiplies fastest: bfloat16 or float32."""
    return torch.bfloat16 if has_fast_bfloat16(device) else torch.float32
