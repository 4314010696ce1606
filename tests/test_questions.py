"""`bench/questions.py`, which ranks where the package itself cannot run: the same order as the package's."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoders import bert_config, made_encoder, save_bert_tokenizer, save_modules, torch
from vizsla.index import Index
from vizsla.models import parse_model

FILE = Path(__file__).parents[1] / "bench" / "questions.py"
WORDS = "dog bird field night river stone bridge summer winter music paint theory house water light year".split()  # noqa: SIM905


def bench() -> Any:
    spec = importlib.util.spec_from_file_location("questions", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A small BERT whose tokens' mean is taken, of length 1."""
    torch.manual_seed(2)
    folder = tmp_path / "encoder"
    made_encoder(bert_config(hidden_dropout_prob=0.0)).save_pretrained(folder)
    save_bert_tokenizer(folder)
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    save_modules(folder, ("1_Pooling", "Pooling", pooling), ("2_Normalize", "Normalize", {}))
    return folder


def test_it_ranks_as_the_package_does(tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(3)
    often = 1 / np.arange(1, len(WORDS) + 1) ** 1.5
    documents = [
        {
            "_id": str(i),
            "title": str(rng.choice(WORDS)),
            "text": " ".join(rng.choice(WORDS, size, p=often / often.sum())),
        }
        for i, size in enumerate(rng.integers(0, 20, 120))
    ]
    asked = [" ".join(rng.choice([*WORDS, "zebra"], rng.integers(1, 6))) for _ in range(30)] + ["zebra"]
    corpus, questions, folder = tmp_path / "corpus.jsonl", tmp_path / "asked.jsonl", tmp_path / "packed"
    corpus.write_text("\n".join(map(json.dumps, documents)))
    rows = [{"_id": str(i), "text": t, "metadata": {"answers": ["music"]}} for i, t in enumerate(asked)]
    questions.write_text("\n".join(map(json.dumps, rows)))
    module = bench()
    module.prepare(folder, corpus, [questions], encoder)
    module.rank(folder, encoder, [0.02], [128], depth=50)
    rankings = np.load(folder / "rankings.npz")
    dense = f"dense(checkpoint={encoder}, precision=float32)"
    models = {
        "bm25": "bm25",
        "dense": dense,
        "dense + 0.02 * bm25": f"{dense} + 0.02 * bm25",
        "sketch 128": "sketch(width=128)",
        "dense + 0.02 * sketch 128": f"spar(dense={dense}, lexical=sketch(width=128), mu=0.02)",
    }
    for number, (system, expression) in enumerate(models.items()):
        found = rankings[f"asked: {system}"]
        assert found.shape == (len(asked), 50)
        with Index.create(tmp_path / f"index{number}", parse_model(expression).fit(documents)) as index:
            index.add(documents)
            index.commit()
            for question, row in zip(asked, found, strict=True):
                scores = np.zeros(len(documents))
                for hit in index.search(question, len(documents)):
                    scores[int(hit.id)] = hit.score
                best = np.sort(scores)[::-1][:50]
                slack = 0.02 * (scores.max() - scores.min()) + 1e-4  # products were made in 16 bits
                np.testing.assert_allclose(scores[row], best, atol=slack, err_msg=f"{system}: {question}")
    module.judge(folder, corpus, [questions])
    told = capsys.readouterr().out
    alike = dict(line.strip().rsplit(maxsplit=3)[::3] for line in told.splitlines()[-len(models) :])
    assert alike["bm25"] == "1.0000"
    assert 0.0 < float(alike["sketch 128"]) < 1.0
