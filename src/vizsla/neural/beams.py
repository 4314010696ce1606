"""Beam search in which a rule says which tokens may follow: generators that write only what a collection has.

The scores are log-probabilities over the whole vocabulary: what the rule forbids takes no part, and what it allows is
not made likelier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from vizsla import stopping

S = TypeVar("S")


class BeamStates(ABC):
    """The states of a network that has read some inputs and writes several texts for each."""

    @abstractmethod
    def start(self) -> Any:
        """[inputs, vocabulary] the logits of the first token."""

    @abstractmethod
    def step(self, parents: np.ndarray, tokens: np.ndarray) -> Any:
        """[inputs, beam, vocabulary] the logits after one more token of each text.

        `parents`: [inputs, beam] which text of the last step each text continues; at the first step all are 0.
        """

    def log_probabilities(self, logits: Any, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """[n] float64: of some tokens, each after the text of a row in [rows, vocabulary] logits.

        Here logits are an array. A network on a GPU leaves them there and sends these alone.
        """
        values = np.empty(len(rows))
        bounds = np.searchsorted(rows, np.arange(len(logits) + 1))  # rows ascend
        for row, (a, z) in enumerate(pairwise(bounds.tolist())):
            if a < z:
                shifted = logits[row] - logits[row].max()
                values[a:z] = shifted[tokens[a:z]] - np.log(np.exp(shifted).sum(dtype=np.float64))
        return values


class Rule(Protocol[S]):
    """Which tokens may follow a text; the state of a text is what the rule remembers of it."""

    start: S

    def allowed(self, state: S, size: int) -> np.ndarray:
        """[size] which of the tokens of a vocabulary may follow."""

    def after(self, state: S, token: int) -> S:
        """The state after one more token that may follow."""

    def is_complete(self, state: S) -> bool:
        """Whether nothing is written after it."""


class Written(NamedTuple, Generic[S]):
    """A text, as tokens, what the rule remembers of it, and its log-probability."""

    tokens: tuple[int, ...]
    state: S
    score: float


def beam_search(states: BeamStates, inputs: int, rule: Rule[S], beam: int, steps: int) -> list[list[Written[S]]]:
    """For each input every text that was among the best `beam` of its length, up to `steps` tokens.

    Of equal scores the text of the better beginning comes first, then the smaller token.
    """
    written: list[list[Written[S]]] = [[] for _ in range(inputs)]
    best: list[list[Written[S]]] = [[Written((), rule.start, 0.0)] for _ in range(inputs)]
    logits, width = states.start(), 1
    for step in range(steps):
        stopping.check()
        rows, tokens = _allowed(best, rule, logits.shape[-1], width)
        values = states.log_probabilities(logits.reshape(inputs * width, -1), rows, tokens)
        bounds = np.searchsorted(rows, width * np.arange(inputs + 1)).tolist()
        parents, chosen = np.zeros((2, inputs, beam), np.int64)
        for i, (a, z) in enumerate(pairwise(bounds)):
            known, best[i] = best[i], []
            for row, token, score in _best(known, rows[a:z] - i * width, tokens[a:z], values[a:z], beam):
                before = known[row]
                text = Written((*before.tokens, token), rule.after(before.state, token), score)
                written[i].append(text)
                if not rule.is_complete(text.state):
                    parents[i, len(best[i])], chosen[i, len(best[i])] = row, token
                    best[i].append(text)
        if step + 1 == steps or not any(best):
            break
        logits, width = states.step(parents, chosen), beam
    return written


def _allowed(
    best: Sequence[Sequence[Written[S]]], rule: Rule[S], size: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Each token that may follow a text, after the row of that text, in order; there are `width` rows for an input."""
    known: dict[int, np.ndarray] = {}  # all inputs begin with the same state
    rows, tokens = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for i, texts in enumerate(best):
        for number, text in enumerate(texts):
            if id(text.state) not in known:
                known[id(text.state)] = np.flatnonzero(rule.allowed(text.state, size))
            tokens.append(known[id(text.state)])
            rows.append(np.full(len(tokens[-1]), i * width + number))
    return np.concatenate(rows), np.concatenate(tokens)


def _best(
    known: Sequence[Written[S]], numbers: np.ndarray, tokens: np.ndarray, values: np.ndarray, beam: int
) -> list[tuple[int, int, float]]:
    """The best continuations of some texts: which text, its next token, and its score."""
    scores = np.array([text.score for text in known])[numbers] + values
    count = min(beam, int(np.isfinite(scores).sum()))
    if not count:
        return []
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    places = np.flatnonzero(scores >= least)
    chosen = places[np.argsort(-scores[places], kind="stable")][:count]
    return list(zip(numbers[chosen].tolist(), tokens[chosen].tolist(), scores[chosen].tolist(), strict=True))
