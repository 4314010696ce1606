"""What SEAL's generator learns from, and a trained one that searches."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Cli
from tiny_checkpoints import tiny_causal, tiny_seq2seq
from vizsla import BeirDataset, Index, VizslaError, parse_model
from vizsla.engine import CollectionNgrams, SuffixArray
from vizsla.engine.suffix_array import BREAK, FIRST
from vizsla.engine.suffix_array import TITLE as TITLE_MARK
from vizsla.errors import InputError
from vizsla.models import Seal
from vizsla.models.generator import open_generator
from vizsla.neural.checkpoints.generator import NGRAMS, GeneratorCheckpoint
from vizsla.training import TrainingInputs, load_training_recipe, train
from vizsla.training.kinds.generator import drawn_ngrams, ngram_pairs, relevant_passages

PASSAGES = [
    {"_id": "a", "title": "Paris", "text": "Paris is a city. Its tower was built by Gustave Eiffel. It is high."},
    {"_id": "b", "title": "Eiffel", "text": "An engineer."},
    {"_id": "c", "title": "Paris", "text": " "},
    {"_id": "d", "title": "", "text": "Rivers flow to the sea, and ships sail on them."},
    {"_id": "e", "title": "", "text": ""},
]
QUESTIONS = {"q1": "who built the tower", "q2": "what flows", "q3": "what is nowhere", "q4": " "}
JUDGED = {"q1": ["b", "a", "c"], "q2": ["d"], "q3": ["e"], "q4": ["d"]}


@pytest.fixture
def dataset(tmp_path: Path) -> BeirDataset:
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(p) + "\n" for p in PASSAGES))
    rows = [{"_id": name, "text": text} for name, text in QUESTIONS.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = [f"{name}\t{passage}\t1" for name, passages in JUDGED.items() for passage in passages]
    for split, some in (("train", [*judged, "q2\ta\t0"]), ("dev", judged[:4]), ("test", ["q3\te\t1"])):
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *some]) + "\n")
    return BeirDataset.open(folder)


@pytest.fixture(scope="module", params=[tiny_causal, tiny_seq2seq])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = request.param(tmp_path_factory.mktemp("base"), scale=1)
    (folder / "generator.json").write_text(json.dumps({"task": NGRAMS, "length": 60, "prompt": "\nPassage:"}))
    return folder


@pytest.fixture
def checkpoint(base: Path) -> GeneratorCheckpoint:
    return GeneratorCheckpoint.read(base).with_task(NGRAMS, 60, "seal")


def test_tokens_know_their_place_in_a_text(checkpoint: GeneratorCheckpoint) -> None:
    texts = [str(p["text"]) for p in PASSAGES]
    for text, row, (tokens, places) in zip(
        texts, checkpoint.tokens(texts), checkpoint.placed_tokens(texts), strict=True
    ):
        assert tokens == row
        for token, (start, end) in zip(tokens, places, strict=True):
            assert checkpoint.tokenizer.decode([token]).strip() == text[start:end].strip()


def test_relevant_passages_are_those_of_judgements_and_of_the_file_of_hard_negatives(dataset: BeirDataset) -> None:
    named = {"query-id": "q2", "pos": ["a", "d", "nowhere"], "neg": ["b"]}
    (dataset.folder / "train_hard_negatives.jsonl").write_text(json.dumps(named) + "\n")
    found = relevant_passages(dataset, "train", ["q1", "q2"])
    assert {question: [p.id for p in passages] for question, passages in found.items()} == {
        "q1": ["b", "a", "c"], "q2": ["d", "a"],
    }  # fmt: skip


def test_pairs_are_ngrams_of_what_an_index_holds_and_titles_with_an_end(
    dataset: BeirDataset, checkpoint: GeneratorCheckpoint
) -> None:
    pairs = ngram_pairs(dataset, "train", checkpoint, ngrams=6, length=5, title_length=20)
    contents = {str(p["_id"]): {"title": p["title"], "text": p["text"]} for p in PASSAGES}
    rows = Seal(str(checkpoint.folder)).document_rows(list(contents.values()))
    held = dict(zip(contents, (row.tolist() for row in rows), strict=True))
    learnt: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for i, number in enumerate(pairs.rows.tolist()):
        learnt.setdefault(tuple(pairs.inputs[number].tolist()), []).append(tuple(pairs.targets[i].tolist()))
    asked = {name: checkpoint.inputs([QUESTIONS[name]])[0] for name in ("q1", "q2")}
    titled = tuple(checkpoint.inputs([QUESTIONS["q1"]], titles=True)[0].tolist())
    assert learnt.keys() == {titled, *(tuple(ids.tolist()) for ids in asked.values())}
    for name, ids in asked.items():
        ngrams = learnt[tuple(ids.tolist())]
        places = {
            tuple(t - FIRST for t in held[passage][i : i + 5])
            for passage in JUDGED[name]
            for i in range(len(held[passage]) - 4)
            if not {TITLE_MARK, BREAK} & set(held[passage][i : i + 5])
        }
        assert len(ngrams) == 6
        assert set(ngrams) <= places
    titles = {str(contents[passage]["title"]) for passage in JUDGED["q1"]}
    ends = [[TITLE_MARK, *(t + FIRST for t in title[:-1]), BREAK] for title in learnt[titled]]
    assert len(ends) == len(titles) == 2
    assert all(any(row[: len(end)] == end for row in held.values()) for end in ends)
    assert {title[-1] for title in learnt[titled]} == {checkpoint.ends[0]}
    again = ngram_pairs(dataset, "train", checkpoint, ngrams=6, length=5, title_length=20)
    assert again.targets.ids.tolist() == pairs.targets.ids.tolist()
    other = ngram_pairs(dataset, "train", checkpoint, ngrams=6, length=5, title_length=20, seed=1)
    assert other.targets.ids.tolist() != pairs.targets.ids.tolist()
    few = pairs.first(3)
    assert (len(few), len(few.inputs), len(pairs.first(None))) == (3, 1, len(pairs))
    assert few.targets.ids.tolist() == pairs.targets.ids[: pairs.targets.offsets[3]].tolist()
    with pytest.raises(VizslaError, match="no question of test has a relevant passage with a text or a title"):
        ngram_pairs(dataset, "test", checkpoint, ngrams=6, length=5, title_length=20)


def test_ngrams_with_words_of_the_question_are_drawn_more_often(checkpoint: GeneratorCheckpoint) -> None:
    text = "birds fly over towers and the fields are wide"
    (tokens,) = checkpoint.tokens([text])
    question = "Which bird? A tower!"
    every = drawn_ngrams(question, [text], checkpoint, 1000, 4, np.random.default_rng(0))
    assert sorted(map(tuple, every)) == sorted(tuple(tokens[i : i + 4]) for i in range(len(tokens) - 3))
    begun: list[int] = []  # how many of both words begin in each n-gram
    for i in range(len(tokens) - 3):
        before, within = (len(checkpoint.tokenizer.decode(tokens[:n]).lstrip()) for n in (i, i + 4))
        begun.append(sum(before <= text.index(word) < within for word in ("birds", "towers")))
    assert len(set(begun)) > 1
    weights = {tuple(tokens[i : i + 4]): math.exp(n) for i, n in enumerate(begun)}
    rng, times = np.random.default_rng(0), 2000
    drawn = [tuple(drawn_ngrams(question, [text], checkpoint, 1, 4, rng)[0].tolist()) for _ in range(times)]
    for ngram, weight in weights.items():
        expected = weight / sum(weights.values())
        assert drawn.count(ngram) / times == pytest.approx(expected, abs=4 * math.sqrt(expected / times))
    assert [n.tolist() for n in drawn_ngrams(question, ["x"], checkpoint, 5, 4, rng)] == checkpoint.tokens(["x"])
    assert drawn_ngrams(question, [], checkpoint, 5, 4, rng) == []


def recipe(base: Path, *changes: str) -> Any:
    small = ["training.steps=4", "training.batch_size=4", "training.eval_steps=2", "training.save_steps=2"]
    return load_training_recipe("seal").with_changes([f"network.base_model={base}", *small, *changes])


def test_a_trained_generator_finds_the_passages_it_learnt(dataset: BeirDataset, base: Path, tmp_path: Path) -> None:
    changes = ["data.ngrams=3", "data.ngram_length=5", "training.learning_rate=0.01", "training.warmup_steps=2"]
    changes += [f"training.{name}={size}" for name, size in (("steps", 100), ("batch_size", 8), ("eval_steps", 100))]
    inputs = TrainingInputs(datasets=[dataset], dev=[dataset])
    trained = train(recipe(base, *changes), tmp_path / "out", inputs)
    log = trained.result.log
    assert log[-1]["loss"] < 0.6 * log[0]["loss"]
    assert "data likelihood" in trained.result.figures
    generator = open_generator(tmp_path / "out")
    assert (generator.task, generator.writes_ngrams, generator.writes_titles) == (NGRAMS, True, True)
    with Index.create(tmp_path / "i", parse_model(f"seal(generator={tmp_path / 'out'}, ngram_length=5)")) as index:
        index.add(PASSAGES)
        index.commit()
        assert index.search(QUESTIONS["q2"])[0].id == "d"
        assert index.search(QUESTIONS["q1"])[0].id in JUDGED["q1"]
    model = Seal(str(tmp_path / "out"), ngram_length=5)
    array = SuffixArray.of(model.document_rows(PASSAGES)).built()
    (query,) = model.query_ngrams([QUESTIONS["q1"]], CollectionNgrams([array], [None], len(array.tokens)))
    written = [model.ngram_text(query.ngram(i).tolist()) for i in range(len(query))]
    assert {text for text in written if text.startswith("title: ")} & {"title: Paris", "title: Eiffel"}


def test_the_command_trains_and_says_how_to_search(cli: Cli, dataset: BeirDataset, tmp_path: Path) -> None:
    folder, out = tiny_causal(tmp_path / "base"), tmp_path / "out"
    changes = [
        part for change in ("steps=2", "batch_size=4", "warmup_steps=1") for part in ("--set", f"training.{change}")
    ]
    code, said, err = cli(
        "train", "seal", "--dataset", dataset.folder, "-o", out, "--set", f"network.base_model={folder}", *changes
    )
    assert (code, f'--model "seal(generator={out})"' in said + err) == (0, True), said + err
    for wrong in ("data.ngrams=0", "data.ngram_length=0"):
        code, _, err = cli("train", "seal", "--dataset", dataset.folder, "-o", tmp_path / "no", "--set", wrong)
        assert (code, "Traceback" in err, wrong.partition("=")[0] in err) == (2, False, True), err
    (dataset.folder / "qrels" / "train.tsv").unlink()
    with pytest.raises(InputError, match="unknown split 'train'"):
        train(recipe(folder), tmp_path / "none", TrainingInputs(datasets=[dataset]))
