"""How vizsla-splade is made, from documents to an index: drawn queries, several seeds of one start, their mean."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import Cli
from vizsla import BeirDataset, Index, LearnedSparse, parse_model
from vizsla.neural.weights import read_weights

SMALL = ("network.layers=0/1", "network.output_terms=2000", "data.negatives=bm25-wp; bm25", "data.negatives_depth=6",
         "data.negatives_per_query=2", "data.teacher=bm25 + 0.5 * bm25-wp", "masked_lm.steps=2",
         "masked_lm.batch_size=8", "masked_lm.tokens_per_chunk=2000", "masked_lm.active_terms=20",
         "masked_lm.precision=float32", "training.steps=2", "training.batch_size=8", "training.warmup_steps=1",
         "training.tokens_per_chunk=2000", "training.precision=float32", "training.save_steps=1")  # fmt: skip


def sets(*changes: str) -> list[str]:
    return [part for change in changes for part in ("--set", change)]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Articles of two passages, with queries that a generator might have written."""
    rng = np.random.default_rng(1)
    words = "dog bark night cat sleep quark field theory river stone bridge summer winter music paint".split()  # noqa: SIM905
    file = tmp_path_factory.mktemp("documents") / "documents.jsonl"
    with file.open("w") as out:
        for number in range(30):
            sentences = [" ".join(rng.choice(words, 12)).capitalize() + "." for _ in range(3)]
            title = f"{words[number // 2 % 15]} {words[number // 30 + 3]}"
            out.write(
                json.dumps({
                    "_id": str(number), "title": title, "text": " ".join(sentences),
                    "queries": [" ".join(rng.choice(words, 4))],
                }) + "\n"
            )  # fmt: skip
    return file


def differs(folder: Path, other: Path) -> bool:
    """Whether two models have different weights."""
    one, another = parameters(folder), parameters(other)
    return any((one[name] != another[name]).any() for name in one)


def parameters(folder: Path) -> dict[str, np.ndarray]:
    model = parse_model(str(folder))
    assert isinstance(model, LearnedSparse)
    return {name: np.asarray(values, np.float64) for name, values in read_weights(model.network.folder).items()}


@pytest.mark.slow
def test_from_documents_to_the_mean_of_seeds(
    cli: Cli, documents: Path, judged: Path, start: Path, tmp_path: Path
) -> None:
    drawn, first = tmp_path / "drawn", tmp_path / "seed-0"
    styles = "sentences,keywords,titles,next,generated"
    code, _, said = cli("queries", "draw", documents, "-o", drawn, "--styles", styles)
    assert code == 0, said
    assert {q.partition("-")[0] for q in BeirDataset.open(drawn).queries()} == set(styles.split(","))
    options = sets(f"network.base_model={start}", *SMALL)
    code, _, said = cli("train", "vizsla-splade", "--dataset", judged, "--dataset", drawn, "-o", first, *options)
    assert code == 0, said
    assert "masked     2" in said
    other, mean = tmp_path / "seed-1", tmp_path / "mean"
    code, _, said = cli("train", "vizsla-splade", "--prepared", first, "-o", other, *sets("training.seed=1"))
    assert code == 0, said
    assert "masked" not in said
    starts = [(folder / "training" / "start.safetensors").read_bytes() for folder in (first, other)]
    assert starts[0] == starts[1]
    assert differs(first, other)
    code, _, said = cli("models", "average", first, other, "--corpus", documents, "-o", mean)
    assert code == 0, said
    for more in ("", ", inference_free=true"):
        model = f"bm25 + 1.3 * learned(network={mean}, max_terms=192, max_query_terms=64, max_added=1{more})"
        with Index.create(tmp_path / f"index{len(more)}", parse_model(model)) as index:
            index.add(BeirDataset.open(judged).documents())
            index.commit()
            assert index.search("dog bark")


def test_what_a_run_with_prepared_data_may_not_change(cli: Cli, judged: Path, start: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    small = [c for c in SMALL if c.startswith("training.")]
    options = sets(f"network.base_model={start}", "data.negatives_per_query=2", *small)
    assert cli("train", "unicoil", "--dataset", judged, "-o", first, *options)[0] == 0
    begins = ("train", "unicoil", "--prepared", first, "-o", tmp_path / "m")
    for arguments, problem in (
        (sets("data.negatives_depth=3"), "the run began with data.negatives_depth"),
        (("--dataset", judged), "leave out --corpus, --dataset, --dev and --resume"),
        (("--resume",), "leave out --corpus, --dataset, --dev and --resume"),
    ):
        code, _, said = cli(*begins, *arguments)
        assert (code, problem in " ".join(said.split())) == (2, True), said
    code, _, said = cli("train", "dpr", *begins[2:])
    assert (code, "the kind learned-sparse, and dpr is dense" in " ".join(said.split())) == (2, True), said
    code, _, said = cli("train", "unicoil", "--prepared", tmp_path / "nothing", "-o", tmp_path / "m")
    assert (code, "there is no run" in said) == (2, True), said
    assert not (tmp_path / "m").exists()
    assert cli(*begins)[0] == 0
    assert not differs(first, tmp_path / "m")  # the same seed is the same run
    code, _, said = cli(*begins[:-1], tmp_path / "k", *sets("training.learning_rate=0.001", "loss.temperature=2"))
    assert code == 0, said
    assert differs(first, tmp_path / "k")
    start_file = first / "training" / "start.safetensors"
    start_file.rename(start_file.with_suffix(".gone"))
    code, _, said = cli(*begins[:-1], tmp_path / "n")
    assert (code, "no initial network" in said) == (2, True), said


def test_a_missing_package_is_told_before_anything_is_done(
    cli: Cli, judged: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnx writes the model at the end of a run."""
    monkeypatch.setitem(sys.modules, "onnx", None)
    options = sets(f"network.base_model={start}")
    code, _, said = cli("train", "unicoil", "--dataset", judged, "-o", tmp_path / "m", *options)
    assert (code, "packages that are missing: onnx; install vizsla[train]" in " ".join(said.split())) == (2, True), said
    assert not (tmp_path / "m").exists()
