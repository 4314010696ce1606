"""Texts to texts without torch: a network that `write_seq2seq` wrote, run by onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.errors import InputError
from vizsla.neural.seq2seq_graph import DECODER, ENCODER, NEW, past_names, source_names
from vizsla.neural.session import open_graph, processors, side_by_side

_TEXTS = 64  # written at once on a thread
_LEFT = 7 / 8  # share of texts that are still written, from which on the others leave


class OnnxGenerator:
    """A generator in a folder. Passages of like length are read and written for together, each group on one thread.

    `start`: the token that texts begin with. `ends`: those that end a text. `threads`: how many groups at once; by
    default as many as there are processors. It changes no text.
    """

    def __init__(self, folder: str | Path, start: int, ends: Sequence[int], threads: int | None = None) -> None:
        self.folder, self.start, self.ends = Path(folder), start, np.array(ends, np.int64)
        self.threads = threads or processors()
        self.encoder, self.decoder = (open_graph(self.folder, name) for name in (ENCODER, DECODER))
        about = self.decoder.get_modelmeta().custom_metadata_map
        try:
            self.words, self.longest, self.most = (int(about[name]) for name in ("words", "longest", "most"))
            self.layers, self.heads, self.size = (int(about[name]) for name in ("layers", "heads", "size"))
        except (KeyError, ValueError):
            raise InputError("this generator was not written by Vizsla", file=str(self.folder / DECODER)) from None

    def generate(
        self, inputs: Sequence[np.ndarray], uniform: np.ndarray, *, top_k: int, top_p: float, temperature: float
    ) -> list[list[list[int]]]:
        """The tokens of some texts for each input; [inputs, texts, tokens] uniform random numbers say how many."""
        self._check(inputs, uniform.shape[2])
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]), reverse=True)
        size = max(1, _TEXTS // uniform.shape[1])
        groups = [order[first : first + size] for first in range(0, len(order), size)]
        sampling = _Sampling(top_k if 0 < top_k < self.words else 0, top_p, temperature)

        def work(group: list[int]) -> list[list[list[int]]]:
            return self._write([inputs[i] for i in group], uniform[group], sampling)

        written: list[list[list[int]]] = [[] for _ in inputs]
        for group, texts in zip(groups, side_by_side(work, groups, self.threads), strict=True):
            for i, own in zip(group, texts, strict=True):
                written[i] = own
        return written

    def _check(self, inputs: Sequence[np.ndarray], tokens: int) -> None:
        longest = max(map(len, inputs), default=0)
        if longest > self.longest:
            raise InputError(
                f"an input has {longest} tokens, and this generator reads at most {self.longest}", file=str(self.folder)
            )
        if any(ids.max(initial=0) >= self.words for ids in inputs):
            raise InputError(
                f"a token of an input is outside of this generator's vocabulary of {self.words}", file=str(self.folder)
            )
        if tokens > self.most:
            raise InputError(
                f"texts of {tokens} tokens are asked for, and this generator writes at most {self.most}",
                file=str(self.folder),
            )

    def _write(self, inputs: list[np.ndarray], uniform: np.ndarray, sampling: _Sampling) -> list[list[list[int]]]:
        """The tokens of the texts of some inputs, without end tokens."""
        count, texts, steps = uniform.shape
        written: list[list[list[int]]] = [[[] for _ in range(texts)] for _ in range(count)]
        states = _States(self, inputs)
        logits, numbers = states.step(np.full(count, self.start), sampling)
        rows, slots = np.repeat(np.arange(count), texts), np.tile(np.arange(texts), count)
        states.keep(rows)
        logits, numbers = logits[rows], numbers[rows]
        live = np.ones(len(rows), bool)
        for step in range(steps):
            tokens = sampling.tokens(logits, numbers, uniform[rows, slots, step])
            live &= ~np.isin(tokens, self.ends)
            for row, slot, token in zip(rows[live].tolist(), slots[live].tolist(), tokens[live].tolist(), strict=True):
                written[row][slot].append(token)
            if step + 1 == steps or not live.any():
                break
            if live.mean() <= _LEFT:
                states.keep(np.flatnonzero(live))
                rows, slots, tokens, live = rows[live], slots[live], tokens[live], live[live]
            logits, numbers = states.step(tokens, sampling)
        return written


@dataclass(frozen=True)
class _Sampling:
    """How tokens are drawn; `top_k` 0 is no limit."""

    top_k: int
    top_p: float
    temperature: float

    def count(self, words: int) -> int:
        """How many of the highest logits are looked at, in their order; 0 for all in the vocabulary's order."""
        if self.temperature == 0:
            return 1
        return self.top_k or (words if self.top_p < 1 else 0)

    def tokens(self, logits: np.ndarray, numbers: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """[texts] the next token of each text, drawn by one uniform random number a text.

        `logits`: [texts, tokens] of those that can be drawn, `numbers` what they are. With a top_p below 1 the
        likeliest come first, and only those that have this share of the probability together can be drawn.

        >>> sampling = _Sampling(top_k=2, top_p=1.0, temperature=1.0)
        >>> logits, numbers = np.array([[3.0, 2.0], [9.0, 0.0]], np.float32), np.array([[1, 2], [0, 1]])
        >>> sampling.tokens(logits, numbers, np.array([0.9, 0.2], np.float32)).tolist()
        [2, 0]
        """
        if self.temperature == 0:
            return np.asarray(numbers[:, 0])
        probabilities = np.exp((logits - logits.max(1, keepdims=True)) / self.temperature)
        probabilities /= probabilities.sum(1, keepdims=True)
        if self.top_p < 1:
            before = probabilities.cumsum(1) - probabilities
            probabilities *= before < self.top_p
        cumulative = probabilities.cumsum(1)
        drawn = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(1)
        drawn = np.minimum(drawn, probabilities.shape[1] - 1 - (probabilities[:, ::-1] > 0).argmax(1))
        return np.asarray(numbers[np.arange(len(drawn)), drawn])


class _States:
    """What a decoder remembers of some inputs and of the texts it writes for them; at first one text for each."""

    def __init__(self, generator: OnnxGenerator, inputs: Sequence[np.ndarray]) -> None:
        self.generator, self.position = generator, 0
        self.lengths = np.array([len(ids) for ids in inputs])
        layers = range(generator.layers)
        self._sources = dict(zip([name for i in layers for name in source_names(i)], self._read(inputs), strict=True))
        nothing = np.zeros((len(inputs), generator.heads, 0, generator.size), np.float32)
        self._past = {name: nothing for i in layers for name in past_names(i)}
        self._inputs = np.arange(len(inputs))  # of each text
        self._arrange()

    def _read(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The keys and values of inputs, each read by itself: in 8 bits they then do not depend on one another."""
        padded: list[np.ndarray] = []
        for number, ids in enumerate(inputs):
            given = {"ids": ids[None], "lengths": np.array([len(ids)])}
            for place, values in enumerate(self.generator.encoder.run(None, given)):
                if not number:
                    shape = (len(inputs), *values.shape[1:2], int(self.lengths.max()), values.shape[3])
                    padded.append(np.zeros(shape, np.float32))
                padded[place][number, :, : len(ids)] = values[0]
        return padded

    def step(self, tokens: np.ndarray, sampling: _Sampling) -> tuple[np.ndarray, np.ndarray]:
        """Read one more token of each text; gives the logits of tokens that can follow, and these tokens."""
        count = sampling.count(self.generator.words)
        given = {"tokens": tokens, "position": np.array(self.position), "count": np.array([max(count, 1)])}
        given |= {"grid": self._grid, "places": self._places, "lengths": self.lengths}
        wanted = ["highest", "numbers"] if count else ["logits"]
        made: list[Any] = self.generator.decoder.run(
            [*wanted, *(NEW + name for name in self._past)], given | self._sources | self._past
        )
        self._past = dict(zip(self._past, made[len(wanted) :], strict=True))
        self.position += 1
        if count:
            return made[0], made[1]
        return made[0], np.broadcast_to(np.arange(self.generator.words), made[0].shape)

    def keep(self, texts: np.ndarray) -> None:
        """Go on with these texts, in the order of their inputs; a text may be there several times."""
        self._past = {name: values[texts] for name, values in self._past.items()}
        kept, self._inputs = np.unique(self._inputs[texts], return_inverse=True)
        if len(kept) < len(self.lengths):
            self.lengths = self.lengths[kept]
            self._sources = {name: values[kept, :, : self.lengths.max()] for name, values in self._sources.items()}
        self._arrange()

    def _arrange(self) -> None:
        """Where texts are among those of their input."""
        counts = np.bincount(self._inputs, minlength=len(self.lengths))
        firsts = np.cumsum(counts) - counts
        self._places = self._inputs * counts.max() + np.arange(len(self._inputs)) - firsts[self._inputs]
        self._grid = np.zeros(len(counts) * counts.max(), np.int64)
        self._grid[self._places] = np.arange(len(self._inputs))
        self._grid = self._grid.reshape(len(counts), -1)
