"""A cross-encoder that others exported to ONNX: its folder with its tokenizer, run by onnxruntime without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.cache import digest
from vizsla.errors import InputError
from vizsla.neural.checkpoints.onnx_file import (
    LOGITS,
    OnnxFile,
    find_onnx,
    open_tokenizer,
    parts_of,
    read_length,
    tokenizer_of,
    valid_texts,
)
from vizsla.neural.device import device_of_opening
from vizsla.neural.once import once
from vizsla.neural.onnx_graph import Precision
from vizsla.neural.onnx_network import side_by_side

Pair = tuple[Sequence[int], Sequence[int]]
"""The ids and the token types of a query and a document as one text."""


class OnnxPairSession(OnnxFile):
    """Scores pairs one by one, several in parallel, each on one thread."""

    what = "a cross-encoder"
    reads = "a pair"

    def __init__(self, file: str | Path, threads: int | None = None, device: str = "") -> None:
        super().__init__(file, threads, device)
        self._output = self._output_name()

    def scores(self, pairs: Sequence[Pair]) -> np.ndarray:
        """[pairs] the scores; of two labels, the second's minus the first's."""
        order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i][0]))  # longest first: threads finish together
        scores = np.zeros(len(pairs), np.float32)
        results = side_by_side(self._score, [pairs[i] for i in order], self.threads)
        for i, score in zip(order, results, strict=True):
            scores[i] = score
        return scores

    def _score(self, pair: Pair) -> float:
        ids, token_types = pair
        given = self.run(self._output, ids, len(ids), token_types)
        if given.shape not in ((1,), (1, 1), (1, 2)):
            raise self._not_a_score(given.shape[1:])
        values = given.reshape(-1).astype(np.float64)
        return float(values[-1] if len(values) == 1 else values[1] - values[0])

    def _output_name(self) -> str:
        outputs = {o.name: o for o in self.session.get_outputs()}
        if len(outputs) > 1 and LOGITS not in outputs:
            raise self.error(
                f"a cross-encoder gives {LOGITS}, and this network gives {', '.join(outputs)}: it is of another task"
            )
        name = LOGITS if LOGITS in outputs else next(iter(outputs))
        shape = outputs[name].shape
        if len(shape) > 2 or (len(shape) == 2 and isinstance(shape[1], int) and shape[1] not in (1, 2)):
            raise self._not_a_score(shape[1:])
        return name

    def _not_a_score(self, shape: Sequence[int | str]) -> InputError:
        numbers = " x ".join(map(str, shape))
        return self.error(
            f"a cross-encoder gives one score, or two labels, a pair, and this network gives {numbers} numbers: it is "
            "of another task"
        )


@dataclass(frozen=True)
class OnnxPairs:
    """Pairs of texts to scores by a network in an ONNX file, run by onnxruntime as it is.

    `length`: how many tokens of a pair it reads at most.
    """

    file: Path = field(compare=False)
    tokenizer_file: Path = field(compare=False)
    digest: str
    length: int
    device: str = field(default_factory=device_of_opening, compare=False, repr=False)

    @classmethod
    def open(cls, which: Path, precision: Precision | None = None) -> OnnxPairs:
        """The network in a folder or a file. A test pair is scored to check that it is a cross-encoder."""
        file = find_onnx(which, precision)
        folder, tokenizer = tokenizer_of(file)
        pairs = cls(file, tokenizer, digest(folder, [*parts_of(file), tokenizer]), read_length(folder, tokenizer))
        if fixed := pairs.running.longest:
            pairs = cls(file, tokenizer, pairs.digest, min(pairs.length, fixed))
        pairs.scores(["a"], ["b"], pairs.length, pairs.length)
        return pairs

    @property
    def folder(self) -> Path:
        """Where the tokenizer is: the folder of the model."""
        return self.tokenizer_file.parent

    def scores(self, queries: Sequence[str], texts: Sequence[str], query_length: int, length: int) -> np.ndarray:
        """The score of each query with the text at the same position.

        Queries are truncated to `query_length` tokens and texts so that the pair has `length`; both count special
        tokens, two for a query.
        """
        tokenizer = self.tokenizer
        special = tokenizer.num_special_tokens_to_add(True)
        distinct = dict.fromkeys(queries)
        cut_queries = self._encoded(list(distinct), max(min(query_length - 2, length - special), 0))
        by_query = dict(zip(distinct, cut_queries, strict=True))
        documents = self._encoded(texts)
        pairs = []
        for query, document in zip(queries, documents, strict=True):
            document.truncate(length - special - len(by_query[query]))
            both = tokenizer.post_process(by_query[query], document)
            pairs.append((both.ids, both.type_ids))
        return self.running.scores(pairs)

    def _encoded(self, texts: Sequence[str], length: int | None = None) -> list[Any]:
        encodings: list[Any] = self.tokenizer.encode_batch(valid_texts(texts), add_special_tokens=False)
        for encoding in encodings if length is not None else ():
            encoding.truncate(length)
        return encodings

    @once
    def running(self) -> OnnxPairSession:
        """The network, opened."""
        return OnnxPairSession(self.file, device=self.device)

    @once
    def tokenizer(self) -> Any:
        """The tokenizer, of the library tokenizers."""
        tokenizer = open_tokenizer(self.tokenizer_file)
        if tokenizer.num_special_tokens_to_add(True) == 0:
            raise InputError(
                "this tokenizer puts nothing between a query and a document", file=str(self.tokenizer_file)
            )
        return tokenizer

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("running", "tokenizer")}
