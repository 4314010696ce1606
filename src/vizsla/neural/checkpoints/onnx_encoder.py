"""An encoder that others exported to ONNX: texts to dense vectors, or tokens to vectors, without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.neural.checkpoints.onnx_file import LOGITS, OnnxFile, open_tokenizer, parts_of, tokenizer_of, valid_texts
from vizsla.neural.checkpoints.transformer import POOLINGS, Layer, TokenizerOptions, Transformer, cut_tokens, known
from vizsla.neural.device import onnx_device
from vizsla.neural.once import once
from vizsla.neural.onnx_network import side_by_side
from vizsla.neural.weights import file_floats, weight_files

STATES = ("last_hidden_state", "token_embeddings")
"""The usual names of an output with the states of tokens."""
SENTENCE = "sentence_embedding"
"""The name of an output with a vector for the whole text, which sentence-transformers exports."""
BY_NETWORK = "network"
"""The pooling of a network that gives a vector for the whole text itself."""
_MASKS, _UNKNOWN = ("[MASK]", "<mask>"), ("[UNK]", "<unk>")
_BESIDE = ("config.json", "tokenizer_config.json")
_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "SiLU": lambda x: x / (1 + np.exp(-x)),
}


@dataclass(frozen=True)
class OnnxEncoder(Transformer):
    """Texts to vectors by an encoder in an ONNX file, run by onnxruntime as it is.

    `file`: where in the folder it is. `pooling` may also be `network`: the network gives one vector a text itself.
    """

    file: str = "model.onnx"

    reads: ClassVar[str] = "onnx"
    poolings: ClassVar[tuple[str, ...]] = (*POOLINGS, BY_NETWORK)

    @classmethod
    def export(cls, folder: Path, file: Path, **settings: Any) -> OnnxEncoder:
        """An encoder in a file below a folder. A test text is read to see how wide vectors are.

        The vectors that a network makes of whole texts are used where it gives nothing else, or `pooling` is empty.
        """
        pooling = settings["pooling"]
        if own_vectors(OnnxFile(file), preferred=not pooling):
            settings = {**settings, "pooling": (BY_NETWORK,), "layers": ()}
            for name in set(pooling) - set(cls.poolings):
                raise UnknownNameError("pooling", name, cls.poolings)
        elif not pooling:
            settings = {**settings, "pooling": ("mean",)}
        encoder = cls.of(folder, file=file.relative_to(folder).as_posix(), **settings)
        running: OnnxTextEncoder = encoder.running
        length = min(encoder.length, running.longest or encoder.length)
        vectors, _ = running.encode(["a"], TokenizerOptions(length=length))
        return cls.of(folder, **{**encoder.settings(), "layers": encoder.layers, "length": length,
                                 "width": vectors.shape[1]})  # fmt: skip

    def files(self) -> list[Path]:
        file = self.folder / self.file
        place, tokenizer = tokenizer_of(file)
        beside = [place / name for name in _BESIDE if (place / name).is_file()]
        files = [*parts_of(file), tokenizer, *beside]
        for layer in self.layers:
            files += weight_files(self.folder / layer.place) if layer.place else []
        return list(dict.fromkeys(files))

    @once
    def running(self) -> Any:
        """The encoder, opened by onnxruntime."""
        return OnnxTextEncoder(
            self.folder, self.file, self.pooling, self.layers,
            lowercase=self.lowercase, skip_prompt_tokens=self.skip_prompt_tokens, device=self.device,
        )  # fmt: skip

    @property
    def runs_fast(self) -> bool:
        return onnx_device(self.device).is_gpu


@dataclass(frozen=True)
class OnnxTokens(OnnxEncoder):
    """Tokens to vectors by a ColBERT in an ONNX file. `start` and `end`: the tokens before and after a text."""

    start: int = 101
    end: int = 102

    kind: ClassVar[str] = "colbert"
    reads: ClassVar[str] = "onnx-tokens"

    @classmethod
    def export(cls, folder: Path, file: Path, **settings: Any) -> OnnxTokens:
        """A ColBERT in a file below a folder. A test text is read to see how wide vectors are."""
        tokens = cls.of(folder, file=file.relative_to(folder).as_posix(), **settings)
        running: OnnxTokenNetwork = tokens.running
        width = running.token_vectors(np.array([tokens.start, tokens.end]), np.array([0, 2])).shape[1]
        length = min(tokens.length, running.longest or tokens.length)
        return cls.of(folder, **{**tokens.settings(), "layers": (), "length": length, "width": width})

    @once
    def running(self) -> Any:
        """The network, opened by onnxruntime."""
        return OnnxTokenNetwork(self.folder / self.file, device=self.device)


class OnnxStates(OnnxFile):
    """An open encoder: the states of the tokens of texts, or one vector a text.

    `pools`: whether the network pools; otherwise it gives a state for each token.
    """

    def __init__(self, file: str | Path, threads: int | None = None, device: str = "", *, pools: bool = False) -> None:
        super().__init__(file, threads, device)
        self.output = output_of(self, pools=pools)
        self._dimensions = 2 if pools else 3

    def states(
        self, rows: Sequence[Sequence[int]], attended: Sequence[int], token_types: Sequence[Sequence[int]],
        use: Callable[[int, np.ndarray], np.ndarray],
    ) -> list[np.ndarray]:  # fmt: skip
        """What `use` makes of the number of each row and what the network gives for it."""
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))  # longest first: threads finish together
        made: list[np.ndarray] = [np.zeros(0)] * len(rows)

        def read(i: int) -> np.ndarray:
            given = self.run(self.output, rows[i], attended[i], token_types[i])
            if given.ndim != self._dimensions or len(given) != 1:
                raise self.error(f"this network gives an array of shape {given.shape} for one text: it is no encoder")
            return use(i, given[0] if self._dimensions == 2 else given[0, : len(rows[i])])

        for i, vector in zip(order, side_by_side(read, order, self.threads), strict=True):
            made[i] = vector
        return made


class OnnxTokenNetwork(OnnxStates):
    """An open ColBERT."""

    def token_vectors(self, ids: np.ndarray, offsets: np.ndarray, attended: np.ndarray | None = None) -> np.ndarray:
        """[tokens, width] the vector of each token of concatenated texts, aligned with the ids.

        `attended`: [texts] how many tokens of each text, from the first, are attended to; by default all.
        """
        rows = [ids[a:z].tolist() for a, z in pairwise(offsets.tolist())]
        seen = [len(row) for row in rows] if attended is None else attended.tolist()
        return np.concatenate(self.states(rows, seen, [[0] * len(row) for row in rows], lambda _, states: states))


def _dimensions(network: OnnxFile) -> dict[str, int]:
    """The dimensions of each output that may have vectors; the logits of a classifier are none."""
    return {o.name: len(o.shape) for o in network.session.get_outputs() if o.name != LOGITS}


def own_vectors(network: OnnxFile, *, preferred: bool) -> bool:
    """Whether to use the vectors that a network makes of whole texts: if they are `preferred`, or all that it gives."""
    sizes = _dimensions(network)
    return SENTENCE in sizes if preferred else 3 not in sizes.values() and 2 in sizes.values()


def output_of(network: OnnxFile, *, pools: bool) -> str:
    """The name of the output with the states of tokens, or with the vector of the text."""
    sizes = _dimensions(network)
    if pools:
        usual = [name for name in (SENTENCE,) if name in sizes] or [n for n, size in sizes.items() if size == 2]
    else:
        usual = [n for n in STATES if n in sizes] or [n for n, size in sizes.items() if size == 3]
    if not usual or (len(usual) > 1 and pools):
        what = "one vector a text" if pools else "states of tokens"
        given = ", ".join(o.name for o in network.session.get_outputs())
        raise network.error(f"this network gives {given}, and none of these is {what}: it is no encoder")
    return usual[0]


class OnnxTextEncoder:
    """An encoder in an ONNX file: its tokenizer, its network, its pooling, and the layers after that."""

    def __init__(
        self,
        folder: Path,
        file: str,
        pooling: Sequence[str],
        layers: Sequence[Layer] = (),
        *,
        lowercase: bool = False,
        skip_prompt_tokens: bool = False,
        device: str = "",
    ) -> None:
        self.folder, self.pooling, self.lowercase = folder, tuple(pooling), lowercase
        self.skip_prompt_tokens = skip_prompt_tokens
        self.network = OnnxStates(folder / file, device=device, pools=self.pooling == (BY_NETWORK,))
        self.longest = self.network.longest
        self.tokenizer = open_tokenizer(tokenizer_of(folder / file)[1])
        self._layers = [_layer(folder, layer) for layer in layers]

    def encode(self, texts: Sequence[str], options: TokenizerOptions) -> tuple[np.ndarray, np.ndarray]:
        """[texts, width] the vectors, and [texts] which have a known token; others have no vector."""
        has_token = known(texts, lambda some: [e.ids for e in self._encoded(some, special_tokens=False)],
                          self._token(_UNKNOWN))  # fmt: skip
        read = [options.prompt + text for text, can in zip(texts, has_token.tolist(), strict=True) if can]
        if not read:
            return np.zeros((0, 0), np.float32), has_token
        rows = [self._row(encoding, options) for encoding in self._encoded(read, special_tokens=options.special_tokens)]
        skipped = self._prompt_tokens(options) if self.skip_prompt_tokens and options.prompt else 0
        types = [self._token_types(row) if options.token_types else [0] * len(row) for row in rows]
        pooled = self.network.states(rows, [len(row) for row in rows], types, lambda _, x: self._pooled(x, skipped))
        vectors = np.stack(pooled).astype(np.float32)
        for layer in self._layers:
            vectors = layer(vectors)
        return vectors, has_token

    def _pooled(self, states: np.ndarray, skipped: int) -> np.ndarray:
        if self.pooling == (BY_NETWORK,):
            return states
        return np.concatenate([pool(states[min(skipped, len(states) - 1) :], how, skipped) for how in self.pooling])

    def _encoded(self, texts: Sequence[str], *, special_tokens: bool) -> list[Any]:
        read = [text.lower() for text in valid_texts(texts)] if self.lowercase else valid_texts(texts)
        encodings: list[Any] = self.tokenizer.encode_batch(read, add_special_tokens=special_tokens)
        return encodings

    def _row(self, encoding: Any, options: TokenizerOptions) -> list[int]:
        row: list[int] = encoding.ids
        if len(row) > options.length:
            row = cut_tokens(row, encoding.special_tokens_mask, options.length)
        if options.pad_with_mask:
            mask = self._token(_MASKS)
            if mask is None:
                raise InputError(
                    "texts cannot be padded with [MASK], since this tokenizer has no such token", file=str(self.folder)
                )
            row = row + [mask] * (options.length - len(row))
        return row

    def _token(self, names: Sequence[str]) -> int | None:
        return next((number for name in names if (number := self.tokenizer.token_to_id(name)) is not None), None)

    def _token_types(self, row: Sequence[int]) -> list[int]:
        """0 up to the first separator of a text, 1 behind it."""
        end = self._token(("[SEP]", "</s>"))
        first = row.index(end) + 1 if end in row else len(row)
        return [0] * first + [1] * (len(row) - first)

    def _prompt_tokens(self, options: TokenizerOptions) -> int:
        """How many tokens a prompt takes, including special tokens before it but not those that end a text."""
        (encoding,) = self._encoded([options.prompt], special_tokens=options.special_tokens)
        special = encoding.special_tokens_mask
        ends = next((i for i, added in enumerate(reversed(special)) if not added), len(special))
        return len(special) - ends


def pool(states: np.ndarray, how: str, skipped: int = 0) -> np.ndarray:
    """[width] one vector from [tokens, width] states. `skipped`: how many tokens before them were left out.

    >>> pool(np.array([[1.0, 4.0], [3.0, 0.0]]), "mean").tolist()
    [2.0, 2.0]
    """
    if how in ("cls", "lasttoken"):
        chosen: np.ndarray = states[0 if how == "cls" else -1]
        return chosen
    if how == "max":
        highest: np.ndarray = states.max(0)
        return highest
    if how == "weightedmean":
        weights = np.arange(skipped + 1, skipped + 1 + len(states))[:, None]
        return np.asarray((states * weights).sum(0) / weights.sum())
    return np.asarray(states.sum(0) / (np.sqrt(len(states)) if how == "mean_sqrt_len" else len(states)))


def _layer(folder: Path, layer: Layer) -> Callable[[np.ndarray], np.ndarray]:
    if layer.kind == "unit":
        return lambda x: x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    arrays: dict[str, np.ndarray] = {}
    for file in weight_files(folder / layer.place):
        arrays |= file_floats(file)
    weight, bias = (
        next((a for n, a in arrays.items() if n == f"{layer.name}.{what}" or n.endswith(f".{layer.name}.{what}")), None)
        for what in ("weight", "bias")
    )
    if weight is None:
        raise InputError(f"the weights of a layer are missing ({layer.name}.weight)", file=str(folder / layer.place))
    shift = 0.0 if bias is None else bias
    if layer.kind == "norm":

        def normed(x: np.ndarray) -> np.ndarray:
            centred = x - x.mean(1, keepdims=True)
            return np.asarray(centred / np.sqrt(centred.var(1, keepdims=True) + 1e-5) * weight + shift)

        return normed
    if layer.activation not in _ACTIVATIONS:
        raise VizslaError(f"{folder}: a layer with {layer.activation} after an ONNX file cannot be computed")
    activate = _ACTIVATIONS[layer.activation]

    def linear(x: np.ndarray) -> np.ndarray:
        if x.shape[1] != weight.shape[1]:
            raise InputError("a layer after the encoder does not fit the layer before it", file=str(folder))
        return activate(x @ weight.T + shift)

    return linear
