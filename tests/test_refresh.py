"""ANCE: hard negatives that the network finds itself, mined again inside one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from test_distillation import inputs_of, losses, recipe_of, trainer_of, whole_and_resumed
from vizsla import BeirDataset, VizslaError
from vizsla.neural.chunks import packed
from vizsla.training import MinedPairs, TokenCorpus, TrainingInputs, load_training_recipe, train
from vizsla.training.sources import dev_set
from vizsla.training.sources.refresh import mined_negatives
from vizsla.training.sources.token_corpus import with_special_tokens

CPU = torch.device("cpu")


def named_as_documents(judged: Path, folder: Path) -> Path:
    """The data set with half of its documents, and queries that have the ids of documents that do not answer them."""
    (folder / "qrels").mkdir(parents=True)
    lines = (judged / "corpus.jsonl").read_text().splitlines()[:20]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    texts = [json.loads(line)["text"] for line in lines]
    queries = [json.dumps({"_id": str(i + 1), "text": texts[i]}) for i in range(10)]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n")
    rows = [f"{i + 1}\t{i}\t1" for i in range(10)]
    (folder / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder


def vectors(network: Any, texts: TokenCorpus, side: int, length: int) -> np.ndarray:
    with torch.no_grad():
        batch = packed(*with_special_tokens(texts, range(len(texts)), CPU, max_length=length), 100_000, side)
        return network.vectors([network(chunk) for chunk in batch.chunks], batch).numpy()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["ance", "unicoil"])
def test_new_negatives_are_the_best_documents_of_the_own_data_set(
    judged: Path, start: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev_set, "_ENCODED", 7)  # so that blocks are merged
    recipe = recipe_of(name, start, "data.refresh_steps=2", "data.negatives_depth=6")
    other = named_as_documents(judged, tmp_path / "other")
    kind = recipe.make()
    base = kind.load_base()
    inputs = TrainingInputs(datasets=[BeirDataset.open(judged), BeirDataset.open(other)])
    kind.prepare(inputs, base, tmp_path / "run")
    refresh, network = kind.open_data(tmp_path / "run").refresh, base.network.eval()
    assert refresh is not None
    pairs = refresh.pairs
    found = mined_negatives(refresh, network, network.vectors, CPU)
    scores = vectors(network, pairs.queries, 0, 64) @ vectors(network, pairs.documents, 1, 256).T
    assert len(found) == 40
    for query in range(40):
        first, last = (0, 40) if query < 30 else (40, 60)
        banned = {*pairs.positives[query].tolist(), *([query + 11] if query >= 30 else [])}
        ranked = [d for d in first + np.argsort(-scores[query, first:last], kind="stable") if d not in banned]
        expected = [d for d in ranked if name == "ance" or scores[query, d] > 0][:6]
        assert scores[query, found[query]] == pytest.approx(scores[query, expected], rel=1e-4)
        assert not banned & set(found[query].tolist())
        assert all(first <= d < last for d in found[query].tolist())


def test_refreshing_changes_the_negatives(judged: Path, start: Path, tmp_path: Path) -> None:
    changes = ("data.refresh_steps=2", "data.negatives_depth=4", "training.learning_rate=1e-2", "training.steps=5")
    recipe = recipe_of("ance", start, *changes, "training.save_steps=100")
    train(recipe, tmp_path, inputs_of(judged))
    folder = tmp_path / "training"
    first, second = (TokenCorpus.open(folder / f"negatives-{step}") for step in (2, 4))
    begun = MinedPairs.open(folder / "pairs").negatives
    assert [len(row) for row in (first[0], second[0])] == [4, 4]
    assert any(set(begun[i].tolist()) != set(first[i].tolist()) for i in range(30))
    assert any(set(first[i].tolist()) != set(second[i].tolist()) for i in range(30))


@pytest.mark.slow
@pytest.mark.parametrize(("refresh", "save", "last", "kept"), [(2, 2, 3, "4"), (3, 4, 5, "3")])
def test_a_stopped_run_goes_on_identically(
    judged: Path, start: Path, tmp_path: Path, refresh: int, save: int, last: int, kept: str
) -> None:
    """It is resumed where new negatives are due, and where they were mined a step before."""
    changes = (f"data.refresh_steps={refresh}", f"training.save_steps={save}", "training.steps=6",
               "training.learning_rate=1e-2")  # fmt: skip
    recipe = recipe_of("ance", start, *changes)
    whole, resumed = whole_and_resumed(recipe, inputs_of(judged), tmp_path, last)
    assert whole == resumed
    for name in ("whole", "stopped"):  # those that the last checkpoint needs, and later ones
        assert {p.name for p in (tmp_path / name).glob("negatives-*")} == {f"negatives-{step}" for step in kept}
    static = losses(trainer_of(recipe.with_changes(["data.refresh_steps=0"]), tmp_path / "whole"))
    assert static[:refresh] == whole[:refresh]
    assert static[refresh:] != whole[refresh:]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (["data.refresh_steps=-1"], "data.refresh_steps must be 0 or more, not -1"),
        (["data.negatives_per_query=0"], "data.refresh_steps finds hard negatives"),
        (["data.teacher=bm25", "loss.name=kl"], "data.teacher does not score what data.refresh_steps finds"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: list[str], problem: str) -> None:
    with pytest.raises(VizslaError) as caught:
        load_training_recipe("ance").with_changes(changes)
    assert problem in str(caught.value)
