"""Learning a teacher's scores of judged queries: margin MSE and KL, for every kind; scores that are computed once."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from small import documents_of
from vizsla import Analyzer, BeirDataset, Document, VizslaError
from vizsla.training import (
    ContrastiveLoss,
    MinedPairs,
    ScoredPairs,
    TokenCorpus,
    Trainer,
    TrainingInputs,
    TrainingRecipe,
    load_training_recipe,
)
from vizsla.training.loop.objectives import Step, contrastive_loss, distillation_loss, kl_loss, loss_of, own_margins
from vizsla.training.loop.trainer import Report
from vizsla.training.sources import teacher as teachers
from vizsla.training.sources.pairs import Margins, TrainingBatch
from vizsla.training.sources.teacher import MarginSquares, kept_scores, open_teacher, open_teachers, teacher_scores

CPU = torch.device("cpu")
SMALL = ["training.batch_size=8", "training.steps=4", "training.warmup_steps=1", "training.precision=float32",
         "training.save_steps=2", "training.eval_steps=4", "data.negatives_per_query=2"]  # fmt: skip


def recipe_of(name: str, start: Path, *changes: str) -> TrainingRecipe:
    return load_training_recipe(name).with_changes([f"network.base_model={start}", *SMALL, *changes])


def inputs_of(judged: Path) -> TrainingInputs:
    return TrainingInputs(datasets=[BeirDataset.open(judged)])


def trainer_of(recipe: TrainingRecipe, folder: Path, report: Report | None = None) -> Trainer:
    """What trains a recipe's network on what was prepared in a folder."""
    kind = recipe.make()
    data, network = kind.open_data(folder), kind.build_network(kind.load_base(), folder)
    return Trainer(
        network, data.pairs, recipe.settings.training, objective=kind.objective(), refresh=data.refresh,
        folder=folder, report=report,
    )  # fmt: skip


def losses(trainer: Trainer, *, resume: bool = False) -> list[float]:
    return [line["loss"] for line in trainer.run(resume=resume).log]


def whole_and_resumed(recipe: TrainingRecipe, inputs: TrainingInputs, folder: Path, last: int = 3) -> list[list[float]]:
    """The losses of a run, and of one that was stopped in its `last` step and resumed from the step before."""

    def stop(line: dict[str, Any]) -> None:
        if line["step"] == last:
            raise KeyboardInterrupt

    kind = recipe.make()
    kind.prepare(inputs, kind.load_base(), folder / "whole")
    shutil.copytree(folder / "whole", folder / "stopped")
    whole = losses(trainer_of(recipe, folder / "whole"))
    stopped = trainer_of(recipe, folder / "stopped", stop)
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    before = [line["loss"] for line in stopped.result.log[: last - 1]]
    return [whole, before + losses(trainer_of(recipe, folder / "stopped"), resume=True)]


# Losses


def test_kl_is_that_of_a_direct_computation() -> None:
    rng = np.random.default_rng(3)
    scores, teacher = rng.normal(size=(3, 9)), rng.normal(size=(3, 3))
    own = np.array([[scores[i, i], scores[i, 3 + 2 * i], scores[i, 4 + 2 * i]] for i in range(3)])
    student, wanted = (np.exp(x) / np.exp(x).sum(1, keepdims=True) for x in (own, teacher))
    expected = (wanted * np.log(wanted / student)).sum(1).mean()
    margins = torch.from_numpy(teacher[:, :1] - teacher[:, 1:])
    assert kl_loss(torch.from_numpy(scores), margins).item() == pytest.approx(expected, rel=1e-12)
    assert own_margins(torch.from_numpy(scores), 2).tolist() == (own[:, :1] - own[:, 1:]).tolist()
    student_scores = torch.from_numpy(scores).requires_grad_()
    kl_loss(student_scores, own_margins(student_scores.detach(), 2)).backward()
    assert student_scores.grad is not None
    assert student_scores.grad.abs().max() < 1e-12, "a student with the teacher's margins has nothing to learn"


def test_contrastive_loss_is_added_to_a_teachers() -> None:
    scores = torch.from_numpy(np.random.default_rng(4).normal(size=(3, 9)))
    margins = torch.from_numpy(np.random.default_rng(5).normal(size=(3, 2)))
    batch = TrainingBatch([], None, Margins(margins))
    step = Step(0, None, None, batch, [], ())  # type: ignore[arg-type]
    alone = loss_of(ContrastiveLoss(name="kl", symmetric=False), scores, step, {})
    both = loss_of(ContrastiveLoss(name="kl", symmetric=False, contrastive_weight=0.5), scores, step, {})
    assert both - alone == pytest.approx(0.5 * contrastive_loss(scores, symmetric=False).item())
    with pytest.raises(VizslaError, match=r"adds to margin-mse or kl, not to loss\.name=contrastive"):
        ContrastiveLoss(contrastive_weight=0.5)


def test_squared_margins_are_those_of_all_pairs() -> None:
    positives, negatives = (
        TokenCorpus.of([np.arange(2), np.arange(1), np.arange(0)]),
        TokenCorpus.of([np.arange(3), np.arange(0), np.arange(2)]),
    )
    positive, negative = np.array([1.0, 2.0, 5.0]), np.array([0.0, 1.0, -1.0, 7.0, 7.0])
    expected = [(p - n) ** 2 for p in positive[:2] for n in negative[:3]]
    assert MarginSquares.of(positives, negatives, positive, negative) == (pytest.approx(sum(expected)), 6)


# Scores on disk


def test_scores_are_computed_once_and_go_on_after_a_stop(tmp_path: Path) -> None:
    file, calls = tmp_path / "folder" / "x.scores", []

    def score(first: int, last: int) -> np.ndarray:
        if (first, last) == (4, 6) and len(calls) < 3:
            calls.append((-1, -1))
            raise KeyboardInterrupt
        calls.append((first, last))
        return np.arange(first, last) / 2

    key, other = "a" * 64, "b" * 64
    with pytest.raises(KeyboardInterrupt):
        kept_scores(file, key, 7, 2, score)
    with file.open("ab") as opened:
        opened.write(b"123")  # half a score, as a kill leaves it
    assert kept_scores(file, key, 7, 2, score).tolist() == [i / 2 for i in range(7)]
    assert calls == [(0, 2), (2, 4), (-1, -1), (4, 6), (6, 7)]
    assert kept_scores(file, key, 7, 2, score).tolist() == [i / 2 for i in range(7)]
    assert len(calls) == 5
    kept_scores(file, other, 7, 7, score)
    assert calls[5:] == [(0, 7)]


def test_another_teacher_or_text_is_scored_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Document(d["id"], {"text": d["text"]}) for d in documents_of(12)]
    queries, pairs = ["dog bark", "river stone"], (np.array([1, 0, 1]), np.array([3, 2, 7]))
    scored = []
    real = teachers.PairScorer.scores
    monkeypatch.setattr(teachers.PairScorer, "scores", lambda *given: (scored.append(1), real(*given))[1])

    def scores(teacher: str, texts: list[str]) -> list[float]:
        found = teacher_scores(open_teacher(teacher), documents, texts, *pairs, tmp_path / "s")
        return found.tolist()

    first = scores("bm25", queries)
    assert first == teacher_scores(open_teacher("bm25"), documents, queries, *pairs).tolist()
    scored.clear()
    assert scores("bm25", queries) == first
    assert scored == []
    assert scores("bm25(k1=2.0)", queries) != first
    assert scores("bm25", ["dog bark", "summer"]) != first
    assert len(scored) == 2


# Pairs


def test_judged_pairs_have_the_scores_of_their_teacher(judged: Path, tmp_path: Path, start: Path) -> None:
    recipe = recipe_of("dpr", start, "data.teacher=bm25", "data.teacher_scale=2", "loss.name=kl")
    inputs = TrainingInputs(datasets=[BeirDataset.open(judged), BeirDataset.open(judged)])
    data = recipe.settings.data
    data.prepare(inputs, Analyzer.parse("wordpiece"), tmp_path)
    pairs = data.open_pairs(tmp_path)
    assert isinstance(pairs, ScoredPairs)
    dataset = BeirDataset.open(judged)
    texts, documents = list(dataset.queries_of(dataset.qrels("train")).values()), list(dataset.documents())
    for query in (4, 34):  # of the first data set, and the same of the second
        numbers = np.array(pairs.pairs.negatives[query]) % len(documents)
        expected = teacher_scores(open_teacher("bm25"), documents, texts, np.full(len(numbers), 4), numbers)
        own = slice(*pairs.pairs.negatives.offsets[query : query + 2])
        assert pairs.negative_scores[own] == pytest.approx(2 * expected, rel=1e-6)
    assert sorted(path.name for path in tmp_path.glob("*.scores")) == ["teacher-0.scores", "teacher-1.scores"]
    free = replace(data, teacher_scale=0.0)
    free.prepare(inputs, Analyzer.parse("wordpiece"), tmp_path)
    one = free.open_pairs(tmp_path)
    assert isinstance(one, ScoredPairs)
    assert isinstance(one.pairs, MinedPairs)
    total, count = MarginSquares.of(one.pairs.positives, one.pairs.negatives, one.positive_scores, one.negative_scores)
    assert total / count == pytest.approx(1.0, rel=1e-4)


def test_a_model_beside_adds_to_what_is_learnt(judged: Path, tmp_path: Path, start: Path) -> None:
    """Margins of the sum are compared with the teacher's: of the network, and of the model beside it."""
    settings = ["data.teacher=bm25(k1=2.0)", "data.beside=bm25", "loss.name=kl", "data.teacher_scale=1"]
    data = recipe_of("dpr", start, *settings).settings.data
    inputs = TrainingInputs(datasets=[BeirDataset.open(judged)])
    data.prepare(inputs, Analyzer.parse("wordpiece"), tmp_path)
    pairs = data.open_pairs(tmp_path)
    assert isinstance(pairs, ScoredPairs)
    assert pairs.beside is not None
    batch = pairs.batch(4, 0, 0, torch.device("cpu"))
    margins, beside = batch.extra.pairs, batch.extra.beside
    assert beside.shape == margins.shape
    assert not torch.equal(beside, margins)
    count = margins.shape[1]
    scores = torch.randn(4, 4 + 4 * count, dtype=torch.float64)
    for name in ("kl", "margin-mse"):
        moved = scores.clone()
        for query in range(4):  # the definition: negatives of a query score less by what the other model tells apart
            own = slice(4 + query * count, 4 + (query + 1) * count)
            moved[query, own] -= beside[query]
        expected = distillation_loss(name, moved, margins)
        assert distillation_loss(name, scores, margins, beside).item() == pytest.approx(expected.item(), rel=1e-9)
    with pytest.raises(VizslaError, match=r"set both"):
        recipe_of("dpr", start, "data.beside=bm25")


def test_several_teachers_count_equally(judged: Path, tmp_path: Path, start: Path) -> None:
    names = "bm25", "bm25(k1=0.1, b=0.0)"
    inputs = TrainingInputs(datasets=[BeirDataset.open(judged)])
    found = []
    for number, teacher in enumerate((*names, "; ".join(names))):
        data = recipe_of("dpr", start, f"data.teacher={teacher}", "loss.name=kl").settings.data
        data.prepare(inputs, Analyzer.parse("wordpiece"), tmp_path / str(number))
        pairs = data.open_pairs(tmp_path / str(number))
        assert isinstance(pairs, ScoredPairs)
        found.append(pairs)
    alone = np.mean([one.negative_scores for one in found[:2]], axis=0)
    factor = np.median(found[2].negative_scores[alone > 0] / alone[alone > 0])
    assert found[2].negative_scores == pytest.approx(factor * alone, rel=1e-4)
    kept = sorted(path.name for path in (tmp_path / "2").glob("*.scores"))
    assert kept == ["teacher-0-1.scores", "teacher-0.scores"]
    with pytest.raises(VizslaError, match="empty name"):
        open_teachers("bm25; ")


# Runs


@pytest.mark.parametrize(("name", "loss"), [("dpr", "kl"), ("unicoil", "margin-mse"), ("bm25-augmented", "kl")])
def test_every_kind_learns_from_a_teacher(judged: Path, start: Path, tmp_path: Path, name: str, loss: str) -> None:
    more = ["vocabulary.max_df=1.0", "vocabulary.size=10"] if name == "bm25-augmented" else []
    more += ["training.steps=6", "training.learning_rate=1e-3", "training.save_steps=100"]
    more += ["training.batch_size=30", "data.negatives_per_query=4"]  # all queries in each step
    recipe = recipe_of(name, start, "data.teacher=bm25-wp", f"loss.name={loss}", *more)
    kind = recipe.make()
    kind.prepare(inputs_of(judged), kind.load_base(), tmp_path)
    found = losses(trainer_of(recipe, tmp_path))
    assert np.mean(found[-3:]) < np.mean(found[:3])


def test_a_stopped_run_with_a_teacher_goes_on_identically(judged: Path, start: Path, tmp_path: Path) -> None:
    recipe = recipe_of("bm25-augmented", start, "data.teacher=bm25-wp", "loss.name=margin-mse", "vocabulary.max_df=1.0")
    whole, resumed = whole_and_resumed(recipe, inputs_of(judged), tmp_path)
    assert whole == resumed


@pytest.mark.parametrize(
    ("name", "changes", "problem"),
    [
        ("dpr", ["loss.name=kl"], "loss.name=kl learns the scores of data.teacher, so set both or neither"),
        ("splade", ["data.teacher=bm25"], "loss.name=contrastive does not read the scores of data.teacher"),
        ("bm25-augmented", ["loss.name=margin-mse"], "set both or neither"),
        ("bm25-augmented", ["loss.name=binary"], "known: contrastive, margin-mse, kl"),
        ("dpr", ["loss.name=kl", "data.teacher=x", "data.negatives_per_query=0"], "set data.negatives_per_query=1"),
        ("dpr", ["data.teacher_scale=-1"], "data.teacher_scale must be 0 or more, not -1"),
        ("lambda", ["loss.name=kl"], "loss.name=kl learns a teacher's scores, but lambda learns its ranking"),
    ],
)
def test_teachers_that_make_no_sense_are_refused(name: str, changes: list[str], problem: str) -> None:
    with pytest.raises(VizslaError) as caught:
        load_training_recipe(name).with_changes(changes)
    assert problem in str(caught.value)
