"""`bench/passages.py`: more passages out of few, with the statistics that so many real ones would have."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FILE = Path(__file__).parents[1] / "bench" / "passages.py"


@pytest.fixture(scope="module")
def bench() -> Any:
    spec = importlib.util.spec_from_file_location("passages", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = np.random.default_rng(0)
    draws = [np.minimum(rng.zipf(1.5, rng.integers(5, 40)), 10**6) for _ in range(600)]
    return [" ".join(f"Word{n}," if n % 2 else f"wörd{n}" for n in some) for some in draws]


def test_the_real_passages_come_first(bench: Any, texts: list[str]) -> None:
    words = bench.Words(iter(texts))
    assert list(bench.grown(words, 600, 0.58)) == texts
    assert list(bench.grown(words, 1000, 0.58))[:600] == texts


def test_each_word_is_once_in_each_copy(bench: Any, texts: list[str]) -> None:
    words = bench.Words(iter(texts))
    copies = list(bench.grown(words, 1800, -60.0))[600:]  # no word is new
    for copy in (copies[:600], copies[600:]):
        assert copy != texts
        assert Counter(" ".join(copy).split()) == Counter(" ".join(texts).split())
        lengths = [sorted(len(text.split()) for text in some) for some in (copy, texts)]
        assert np.abs(np.subtract(*lengths)).mean() < 2


def test_new_words_are_rare_and_belong_to_their_copy(bench: Any, texts: list[str]) -> None:
    words = bench.Words(iter(texts))
    first, second = (" ".join(words.copy(copy, 0.58)).split() for copy in (1, 2))
    old = Counter(w for text in texts for w in set(text.split()))
    new, newer = set(first) - set(old), set(second) - set(old)
    assert not new & newer
    once = sum(count == 1 for count in old.values())
    assert len(new) == pytest.approx(once * 2**-0.42, rel=0.2)  # and a few that are in two documents
    endings = {word.rstrip(",")[-4:] for word in new}
    assert endings == {"kbcx"}
    often = [word for word, count in old.items() if count > 20]
    assert set(often) <= set(first)


def test_the_vocabulary_grows_by_heaps_law(bench: Any) -> None:
    rng = np.random.default_rng(1)
    texts = [" ".join(f"w{n}" for n in np.minimum(rng.zipf(1.6, 30), 10**9)) for _ in range(8000)]
    marks = [2000, 8000]
    real = bench.Counts(iter(texts), marks)
    growth = np.log(real.vocabulary[8000] / real.vocabulary[2000]) / np.log(4)
    made = bench.Counts(bench.grown(bench.Words(iter(texts[:2000])), 8000, growth), marks)
    assert made.vocabulary[2000] == real.vocabulary[2000]
    assert made.vocabulary[8000] == pytest.approx(real.vocabulary[8000], rel=0.05)
    assert set(made.rows()) == set(real.rows())
