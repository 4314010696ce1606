"""A cross-encoder in an ONNX file, as others export it, run by onnxruntime without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.errors import InputError
from vizsla.neural.session import installed_onnxruntime, processors, session_options, side_by_side

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""What a cross-encoder may read, by transformers' names; it must read the first."""
SCORES = "logits"
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

Pair = tuple[Sequence[int], Sequence[int]]
"""The ids and the token types of a query and a document as one text."""


class OnnxPairSession:
    """Scores pairs, each in a run of its own, several at once, each on one thread.

    Networks in 8 bits often scale each layer by what is in the batch, so the score of a pair would depend on its
    neighbours. Here it does not.

    `threads`: how many pairs at once; by default as many as there are processors. It changes no result.
    `longest`: how many tokens of a pair a graph with a fixed shape reads; 0 where its shape is free.
    """

    def __init__(self, file: str | Path, threads: int | None = None) -> None:
        self.file = Path(file)
        self.threads = threads or processors()
        self._session = _open(self.file)
        self._types = self._input_types()
        self.longest = self._fixed_length()
        self._output = self._output_name()

    def scores(self, pairs: Sequence[Pair]) -> np.ndarray:
        """[pairs] the scores; of two labels, the second's minus the first's."""
        order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i][0]))  # so that all threads end together
        scores = np.zeros(len(pairs), np.float32)
        results = side_by_side(self._score, [pairs[i] for i in order], self.threads)
        for i, score in zip(order, results, strict=True):
            scores[i] = score
        return scores

    def _score(self, pair: Pair) -> float:
        ids, token_types = pair
        size = self.longest or len(ids)
        rows = dict(zip(INPUTS, (ids, [1] * len(ids), token_types), strict=True))
        feed = {name: np.zeros((1, size), kind) for name, kind in self._types.items()}
        for name, row in feed.items():
            row[0, : len(ids)] = rows[name]
        try:
            given = np.asarray(self._session.run([self._output], feed)[0])
        except Exception as e:  # onnxruntime's own exceptions have no common kind but this
            reason = " ".join(str(e).split())
            raise self._error(f"this network does not read a pair of {len(ids)} tokens ({reason})") from None
        if given.shape not in ((1,), (1, 1), (1, 2)):
            raise self._not_a_score(given.shape[1:])
        values = given.reshape(-1).astype(np.float64)
        return float(values[-1] if len(values) == 1 else values[1] - values[0])

    def _input_types(self) -> dict[str, Any]:
        inputs = {i.name: i for i in self._session.get_inputs()}
        foreign = [name for name in inputs if name not in INPUTS]
        if INPUTS[0] not in inputs or foreign:
            raise self._error(
                f"a cross-encoder reads {INPUTS[0]}, and perhaps {INPUTS[1]} and {INPUTS[2]}, and this network reads "
                f"{', '.join(inputs) or 'nothing'}"
            )
        for name, i in inputs.items():
            if i.type not in _TYPES or len(i.shape) != 2:
                raise self._error(f"{name} must be rows of whole numbers, and here it is {i.type} of shape {i.shape}")
            if isinstance(i.shape[0], int) and i.shape[0] != 1:
                raise self._error(f"this network reads {i.shape[0]} pairs at once; export it with a free batch size")
        return {name: _TYPES[i.type] for name, i in inputs.items()}

    def _fixed_length(self) -> int:
        sizes = {i.shape[1] for i in self._session.get_inputs() if isinstance(i.shape[1], int)}
        if len(sizes) > 1 or (sizes and INPUTS[1] not in self._types):
            raise self._error("this network reads pairs of one fixed length only; export it with a free length")
        return sizes.pop() if sizes else 0

    def _output_name(self) -> str:
        outputs = {o.name: o for o in self._session.get_outputs()}
        if len(outputs) > 1 and SCORES not in outputs:
            raise self._error(
                f"a cross-encoder gives {SCORES}, and this network gives {', '.join(outputs)}: it is of another task"
            )
        name = SCORES if SCORES in outputs else next(iter(outputs))
        shape = outputs[name].shape
        if len(shape) > 2 or (len(shape) == 2 and isinstance(shape[1], int) and shape[1] not in (1, 2)):
            raise self._not_a_score(shape[1:])
        return name

    def _not_a_score(self, shape: Sequence[int | str]) -> InputError:
        numbers = " x ".join(map(str, shape))
        return self._error(
            f"a cross-encoder gives one score, or two labels, a pair, and this network gives {numbers} numbers: it is "
            "of another task"
        )

    def _error(self, message: str) -> InputError:
        return InputError(message, file=str(self.file))


def _open(file: Path) -> Any:
    onnxruntime = installed_onnxruntime()
    try:
        # With all of onnxruntime's optimisations, as it runs by itself: in 8 bits each set of them has other scores.
        return onnxruntime.InferenceSession(file, session_options(), providers=["CPUExecutionProvider"])
    except Exception as e:  # onnxruntime's own exceptions have no common kind but this
        reason = " ".join(str(e).split())
        raise InputError(f"onnxruntime cannot open this file ({reason})", file=str(file)) from None
