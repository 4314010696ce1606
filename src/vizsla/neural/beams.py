"""Beam search in which a rule says which tokens may follow: generators that write only what a collection has.

The scores are log-probabilities over the whole vocabulary: what the rule forbids takes no part, and what it allows is
not made likelier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from vizsla import stopping

S = TypeVar("S")


class BeamStates(Protocol):
    """The states of a network that has read some inputs and writes several texts for each."""

    def start(self) -> np.ndarray:
        """[inputs, vocabulary] the logits of the first token."""

    def step(self, parents: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """[inputs, beam, vocabulary] the logits after one more token of each text.

        `parents`: [inputs, beam] which text of the last step each text continues; at the first step all are 0.
        """


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
    logits = states.start()[:, None]
    for step in range(steps):
        stopping.check()
        parents, tokens = np.zeros((2, inputs, beam), np.int64)
        for i, known in enumerate(best):
            best[i] = []
            for row, token, score in _best(logits[i], known, rule, beam):
                before = known[row]
                text = Written((*before.tokens, token), rule.after(before.state, token), score)
                written[i].append(text)
                if not rule.is_complete(text.state):
                    parents[i, len(best[i])], tokens[i, len(best[i])] = row, token
                    best[i].append(text)
        if step + 1 == steps or not any(best):
            break
        logits = states.step(parents, tokens)
    return written


def _best(logits: np.ndarray, known: Sequence[Written[S]], rule: Rule[S], beam: int) -> list[tuple[int, int, float]]:
    """The best continuations of some texts: which text, its next token, and its score."""
    texts, tokens, scores = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    for number, (text, row) in enumerate(zip(known, logits, strict=False)):
        allowed = np.flatnonzero(rule.allowed(text.state, len(row)))
        shifted = row - row.max()
        total = float(np.exp(shifted).sum(dtype=np.float64))
        texts.append(np.full(len(allowed), number))
        tokens.append(allowed)
        scores.append(text.score + shifted[allowed].astype(np.float64) - np.log(total))
    all_scores = np.concatenate(scores)
    count = min(beam, int(np.isfinite(all_scores).sum()))
    if not count:
        return []
    least = np.partition(all_scores, len(all_scores) - count)[len(all_scores) - count]
    places = np.flatnonzero(all_scores >= least)
    chosen = places[np.argsort(-all_scores[places], kind="stable")][:count]
    columns = (np.concatenate(part)[chosen].tolist() for part in (texts, tokens, scores))
    return list(zip(*columns, strict=True))
