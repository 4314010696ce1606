"""Beam search under a rule: as by trying every text, and the same with the network of each kind of generator."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from tiny_checkpoints import tiny_causal, tiny_seq2seq
from vizsla.models.generator import CheckpointGenerator, export_generator, open_generator
from vizsla.neural.beams import BeamStates, beam_search
from vizsla.neural.torch_generator import open_model, start_token

pytestmark = pytest.mark.usefixtures("in_floats")

WORDS = 5
QUESTIONS = ["a dog barks", "who has a vizsla, and where does it sleep at night"]


@pytest.fixture(autouse=True)
def _in_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16, which some processors multiply faster, scores are rounded otherwise."""
    monkeypatch.setattr("vizsla.neural.torch_network.has_fast_bfloat16", lambda device: False)  # noqa: ARG005


class Table(BeamStates):
    """A network that looks the logits of each text up; equal numbers are rare but occur."""

    def __init__(self, inputs: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        pairs = product(range(inputs), all_texts(4))
        self._known = {pair: rng.integers(-3, 4, WORDS).astype(np.float32) for pair in pairs}
        self._texts: list[list[tuple[int, ...]]] = [[()] for _ in range(inputs)]

    def logits(self, i: int, text: tuple[int, ...]) -> np.ndarray:
        return self._known[i, text]

    def start(self) -> np.ndarray:
        return np.stack([self.logits(i, ()) for i in range(len(self._texts))])

    def step(self, parents: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        self._texts = [
            [(*own[p], t) for p, t in zip(*row, strict=True)]
            for own, row in zip(self._texts, zip(parents.tolist(), tokens.tolist(), strict=True), strict=True)
        ]
        return np.array([[self.logits(i, text) for text in own] for i, own in enumerate(self._texts)])


def all_texts(longest: int) -> list[tuple[int, ...]]:
    return [text for length in range(longest + 1) for text in product(range(WORDS), repeat=length)]


class Even:
    """After each token one of other parity may follow; 4 ends a text."""

    start: tuple[int, ...] = ()

    def allowed(self, state: tuple[int, ...], size: int) -> np.ndarray:
        return np.ones(size, np.bool_) if not state else (np.arange(size) + state[-1]) % 2 == 1

    def after(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        return (*state, token)

    def is_complete(self, state: tuple[int, ...]) -> bool:
        return state[-1:] == (4,)


def expected(logits_of, beam: int, steps: int) -> list[tuple[tuple[int, ...], float]]:
    """Every kept text and its log-probability, by the definition of a beam search."""
    rule, written, best = Even(), [], [((), 0.0)]
    for _ in range(steps):
        longer = []
        for text, score in best:
            logits = np.asarray(logits_of(text), np.float64)
            logs = logits - np.log(np.exp(logits).sum())
            allowed = rule.allowed(text, len(logits))
            longer += [((*text, t), score + float(logs[t])) for t in range(len(logits)) if allowed[t]]
        longer = sorted(longer, key=lambda pair: -pair[1])[:beam]
        written += longer
        best = [pair for pair in longer if not rule.is_complete(pair[0])]
    return written


@pytest.mark.parametrize("beam", [1, 3, 50])
@pytest.mark.parametrize("steps", [1, 4])
def test_beams_are_those_of_the_definition(beam: int, steps: int) -> None:
    for seed in range(5):
        table = Table(2, seed)
        found = beam_search(table, 2, Even(), beam, steps)
        for i, written in enumerate(found):
            wanted = expected(partial(table.logits, i), beam, steps)
            assert [text.score for text in written] == pytest.approx([score for _, score in wanted], abs=1e-5)
            assert all(text.tokens == text.state for text in written)
            if beam == 50:  # nothing is left out, so that ties do not matter
                assert {text.tokens for text in written} == {text for text, _ in wanted}


def test_a_rule_that_allows_nothing_ends_the_search() -> None:
    class Nothing(Even):
        def allowed(self, state: tuple[int, ...], size: int) -> np.ndarray:  # noqa: ARG002
            return np.zeros(size, np.bool_)

    assert beam_search(Table(2, 0), 2, Nothing(), 3, 4) == [[], []]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "t5", "bart"])
def test_the_networks_of_generators_give_the_scores_of_transformers(tmp_path: Path, kind: str) -> None:
    seq2seq = kind in ("t5", "bart")
    folder = (tiny_seq2seq if seq2seq else tiny_causal)(tmp_path, kind)
    generator = open_generator(folder)
    assert isinstance(generator, CheckpointGenerator)
    model = open_model(folder, seq2seq)
    for question, written in zip(QUESTIONS, generator.search(QUESTIONS, Even(), 4, 3), strict=True):
        (ids,) = generator.checkpoint.inputs([question])

        @torch.inference_mode()
        def logits_of(text: tuple[int, ...], ids: np.ndarray = ids) -> np.ndarray:
            given = torch.from_numpy(ids)[None]
            if seq2seq:
                before = torch.tensor([[start_token(model), *text]])
                made = model(input_ids=given, decoder_input_ids=before).logits
            else:
                made = model(input_ids=torch.cat([given, torch.tensor([text], dtype=torch.long)], 1)).logits
            return np.asarray(made[0, -1])

        wanted = expected(logits_of, 4, 3)
        assert [text.tokens for text in written] == [text for text, _ in wanted]
        assert [text.score for text in written] == pytest.approx([score for _, score in wanted], abs=1e-3)


def test_without_torch_a_bart_gives_the_same_beams(tmp_path: Path) -> None:
    floats = tiny_seq2seq(tmp_path / "floats", "bart")
    export_generator(floats, tmp_path / "exact", precision="float32")
    generator = open_generator(tmp_path / "exact")
    assert type(generator.running).__name__ == "OnnxGenerator"  # type: ignore[attr-defined]
    torch_generator = open_generator(floats)
    for own, other in zip(*(g.search(QUESTIONS, Even(), 4, 5) for g in (generator, torch_generator)), strict=True):
        assert [text.tokens for text in own] == [text.tokens for text in other]
        assert [text.score for text in own] == pytest.approx([text.score for text in other], abs=1e-2)
