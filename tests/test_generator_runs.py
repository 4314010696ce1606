"""Training generators: the loss, runs from data sets, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_checkpoints import tiny_causal, tiny_seq2seq, torch
from vizsla import BeirDataset, VizslaError
from vizsla.models.generator import CheckpointGenerator, Sampling
from vizsla.neural.chunks import packed
from vizsla.neural.torch_generator import Generator
from vizsla.training import TrainingInputs, load_training_recipe, train
from vizsla.training.kinds.generator import generation_pairs

PAIRS = [
    ("A dog that points at birds.", "which dog points"),
    ("A dog that points at birds.", "what does a pointer do"),
    ("Taxes on vehicles", "car taxes"),
    ("Young hounds learn to fetch.", "training of puppies"),
]


def write_dataset(folder: Path) -> BeirDataset:
    (folder / "qrels").mkdir(parents=True)
    passages = list(dict.fromkeys(passage for passage, _ in PAIRS))
    documents = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(passages)]
    queries = [{"_id": f"q{i}", "text": query} for i, (_, query) in enumerate(PAIRS)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    rows = [f"q{i}\td{passages.index(passage)}\t1" for i, (passage, _) in enumerate(PAIRS)]
    for split in ("train", "dev"):
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows) + "\n")
    return BeirDataset.open(folder)


def recipe(base: Path, *changes: str) -> Any:
    small = ["training.steps=4", "training.batch_size=4", "training.eval_steps=2", "training.save_steps=2"]
    return load_training_recipe("doc2query").with_changes([f"network.base_model={base}", *small, *changes])


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma", "t5", "bart"])
def test_the_loss_is_that_of_transformers_on_the_targets(tmp_path: Path, kind: str) -> None:
    from vizsla.neural.checkpoints.generator import GeneratorCheckpoint

    seq2seq = kind in ("t5", "bart")
    folder = (tiny_seq2seq if seq2seq else tiny_causal)(tmp_path / kind, kind)
    checkpoint = GeneratorCheckpoint.read(folder)
    from vizsla.neural.torch_generator import open_model

    network = Generator(open_model(folder, seq2seq), seq2seq)
    pairs = generation_pairs(PAIRS, checkpoint, 16)
    batch = packed(*pairs.texts(np.arange(len(pairs)), torch.device("cpu")), 40)
    assert len(batch.chunks) > 1
    losses = network.vectors([network(chunk) for chunk in batch.chunks], batch)
    for i, row in enumerate(losses.tolist()):
        source, target = pairs.inputs[pairs.rows[i]].tolist(), pairs.targets[i].tolist()
        if seq2seq:
            loss = network.model(input_ids=torch.tensor([source]), labels=torch.tensor([target])).loss
        else:
            labels = torch.tensor([[-100] * len(source) + target])
            loss = network.model(input_ids=torch.tensor([source + target]), labels=labels).loss
        assert row[1] == len(target)
        assert row[0] / row[1] == pytest.approx(loss.item(), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("tiny", [tiny_causal, tiny_seq2seq])
def test_a_generator_learns_its_pairs_and_is_opened_again(tmp_path: Path, tiny: Any) -> None:
    dataset = write_dataset(tmp_path / "data")
    base = tiny(tmp_path / "base", scale=1)
    changes = ("training.steps=60", "training.learning_rate=0.01", "training.warmup_steps=2", "training.eval_steps=20")
    trained = train(recipe(base, *changes), tmp_path / "out", TrainingInputs(datasets=[dataset], dev=[dataset]))
    log = trained.result.log
    assert log[-1]["loss"] < 0.5 * log[0]["loss"]
    assert trained.result.figures["data likelihood"] > 0.2
    generator = trained.model
    assert isinstance(generator, CheckpointGenerator)
    assert (generator.task, generator.name, generator.length) == ("query", "doc2query", 300)
    written = generator.generate([PAIRS[2][0]], Sampling(texts=5, top_k=2, max_tokens=20))[0]
    assert "car taxes" in written


def test_a_resumed_run_does_what_an_uninterrupted_one_does(tmp_path: Path) -> None:
    inputs = TrainingInputs(datasets=[write_dataset(tmp_path / "data")])
    base = tiny_causal(tmp_path / "base")
    whole = train(recipe(base), tmp_path / "whole", inputs)
    train(recipe(base, "training.steps=2"), tmp_path / "parts", inputs)
    (tmp_path / "parts" / "generator.json").unlink()
    train(recipe(base), tmp_path / "parts", resume=True)
    sampling = Sampling(texts=3, max_tokens=6)
    texts = [CheckpointGenerator.generate(whole.model, ["birds"], sampling)]  # type: ignore[arg-type]
    from vizsla.models.generator import open_generator

    assert [open_generator(tmp_path / "parts").generate(["birds"], sampling)] == texts
    assert open_generator(tmp_path / "parts").digest == open_generator(tmp_path / "whole").digest


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    base = tiny_causal(tmp_path / "base")
    with pytest.raises(VizslaError, match="name a data set with --dataset"):
        train(recipe(base), tmp_path / "out", TrainingInputs())
    dataset = write_dataset(tmp_path / "data")
    (tmp_path / "data" / "qrels" / "train.tsv").unlink()
    with pytest.raises(VizslaError, match="train"):
        train(recipe(base), tmp_path / "out", TrainingInputs(datasets=[dataset]))
    with pytest.raises(VizslaError, match="task"):
        recipe(base, "data.task=poem")
